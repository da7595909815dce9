#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""library.py LIBRARY SYMBOLS.txt [--sanitized]: checks what libfabric.so.1 shows to the dynamic linker.

It must export exactly the symbols of the list with their versions, be called libfabric.so.1, need only libraries that every Debian
has, and neither name a search path nor relocate its code. Needs binutils. Prints a line per difference; exits 1 where there is one.
"""
import re
import subprocess
import sys

ALLOWED = r"(libc|libm|libstdc\+\+|libgcc_s|ld-linux-x86-64)\.so\.\d+"
SANITIZERS = r"lib(asan|ubsan|tsan|lsan)\.so\.\d+"


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exported(library):
    """{"fi_open FABRIC_1.5", "fi_dupinfo (FABRIC_1.0)"}: parentheses for a version that is not the name's default."""
    symbols = set()
    for line in run("nm", "-D", "--defined-only", "--with-symbol-versions", library).splitlines():
        _, kind, name = line.split()
        if kind == "A":  # the version's own entry
            continue
        match = re.fullmatch(r"(.+?)(@@?)(.+)", name)
        if not match:
            symbols.add(f"{name} (no version)")
        elif match[2] == "@@":
            symbols.add(f"{match[1]} {match[3]}")
        else:
            symbols.add(f"{match[1]} ({match[3]})")
    return symbols


def main():
    library, list_file = sys.argv[1:3]
    allowed = f"{ALLOWED}|{SANITIZERS}" if "--sanitized" in sys.argv[3:] else ALLOWED
    with open(list_file) as file:
        want = {line.strip() for line in file if line.strip()}
    have = exported(library)
    bad = [f"missing: {symbol}" for symbol in sorted(want - have)]
    bad += [f"must not be exported: {symbol}" for symbol in sorted(have - want)]

    needed = []
    names = []
    for line in run("readelf", "-dW", library).splitlines():
        match = re.search(r"\((\w+)\)\s*(?:.*\[(.*)\])?", line)
        if not match:
            continue
        tag, value = match.groups()
        if tag == "NEEDED":
            needed.append(value)
        elif tag == "SONAME":
            names.append(value)
        elif tag in ("RPATH", "RUNPATH", "TEXTREL"):
            bad.append(f"has {tag} {value or ''}".rstrip())
    if names != ["libfabric.so.1"]:
        bad.append(f"is called {names}, not libfabric.so.1")
    bad += [f"needs {name}, which not every system has" for name in needed if not re.fullmatch(allowed, name)]
    for line in bad:
        print(line)
    print(f"{len(have)} symbols exported, {len(want)} wanted, needs {' '.join(needed)}")
    return 1 if bad or not want else 0


sys.exit(main())
