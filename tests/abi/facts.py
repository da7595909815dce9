#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""facts.py INCLUDE_DIR FACTS.json [--cc CC] [--cxx CXX] [--break]: checks the C API headers against recorded facts.

Turns every size, offset, constant, enumerator and function name of the JSON into a static assertion, and compiles them against
INCLUDE_DIR/rdma as C11 and as C++20. Prints a line per fact that does not hold; exits 1 where there is one.

With --break one fact of each kind is made wrong first, and exactly those must be found: the test of this test.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile

HEADERS = """fabric fi_errno fi_domain fi_endpoint fi_eq fi_cm fi_rma fi_tagged fi_atomic fi_collective fi_trigger
             fi_profile fi_ext fi_cxi_ext providers/fi_prov providers/fi_log providers/fi_peer""".split()

# For these macros the JSON holds where the text happened to lie, which is no fact.
TEXTS = {f"FI_CXI_DOM_OPS_{i}": f"dom_ops_v{i}" for i in range(1, 7)}
TEXTS |= {"FI_CXI_COUNTER_OPS": "cxi_counter_ops", "FI_SET_OPS_HMEM_OVERRIDE": "hmem_override_ops",
          "FI_LIB_EXTENSION": "fi", "FI_LIB_SUFFIX": "fi.so"}


def wrong_facts(facts):
    """One wrong fact of each kind; the texts that must be reported."""
    facts["structs"]["struct fi_info"]["size"] += 8
    facts["structs"]["struct fi_tx_attr"]["members"]["tclass"][0] += 4
    facts["structs"]["struct fi_ep_attr"]["members"]["protocol"][1] += 4
    facts["constants"]["FI_MSG"] += 1
    facts["enums"]["enum fi_ep_type"]["FI_EP_RDM"] += 1
    return {"struct fi_info: size", "struct fi_tx_attr.tclass: offset", "struct fi_ep_attr.protocol: size", "FI_MSG",
            "enum fi_ep_type: FI_EP_RDM"}


def assertions(facts):
    """(text of the fact, condition) for each."""
    for name, struct in facts["structs"].items():
        yield f"{name}: size is not {struct['size']}", f"sizeof({name}) == {struct['size']}"
        for member, (offset, size, _) in struct["members"].items():
            yield f"{name}.{member}: offset is not {offset}", f"offsetof({name}, {member}) == {offset}"
            if size > 0:  # else an array without a length at the end
                yield f"{name}.{member}: size is not {size}", f"sizeof((({name} *)0)->{member}) == {size}"
    for name, value in facts["constants"].items():
        if name in TEXTS:
            yield f"{name} is not {TEXTS[name]}", f'__builtin_strcmp({name}, "{TEXTS[name]}") == 0'
            continue
        yield f"{name} is not {value:#x}", f"(unsigned long long)({name}) == {value}ULL"
    for enum, names in facts["enums"].items():
        for name, value in names.items():
            yield f"{enum}: {name} is not {value}", f"(long long)({name}) == {value}LL"


def source(facts, language):
    lines = ["#include <stddef.h>"] + [f"#include <rdma/{header}.h>" for header in HEADERS]
    keyword = "static_assert" if language == "c++" else "_Static_assert"
    count = 0
    for text, condition in assertions(facts):
        lines.append(f'{keyword}({condition}, "FACT {text}");')
        count += 1
    # A function must exist under its name, inline or not.
    lines.append("void (*const weft_functions[])(void) = {")
    for name in facts["functions"]:
        lines.append(f"(void (*)(void)){name},")
        count += 1
    lines.append("};")
    return "\n".join(lines) + "\n", count


def check(facts, include, compiler, language, standard):
    """What does not hold, and how many facts there were."""
    text, count = source(facts, language)
    with tempfile.NamedTemporaryFile("w", suffix=".cc" if language == "c++" else ".c") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([compiler, f"-std={standard}", f"-I{include}", "-w", "-fsyntax-only", "-fmax-errors=0", file.name],
                              capture_output=True, text=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin:/usr/local/bin"})
    bad = []
    for line in done.stderr.splitlines():
        if "error:" not in line:
            continue
        fact = re.search(r'FACT ([^"]*)', line)
        bad.append(fact.group(1) if fact else line.split("error:", 1)[1].strip())
    if done.returncode != 0 and not bad:
        bad.append(f"{compiler} failed: {done.stderr.strip()}")
    return bad, count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("include")
    parser.add_argument("facts")
    parser.add_argument("--cc", default="gcc")
    parser.add_argument("--cxx", default="g++")
    parser.add_argument("--break", dest="broken", action="store_true")
    args = parser.parse_args()
    with open(args.facts) as file:
        facts = json.load(file)
    expected = wrong_facts(facts) if args.broken else set()
    failed = False
    for compiler, language, standard in (args.cc, "c", "gnu11"), (args.cxx, "c++", "gnu++20"):
        bad, count = check(facts, args.include, compiler, language, standard)
        if args.broken:
            found = {text for text in expected if any(line.startswith(text) for line in bad)}
            if found != expected or len(bad) != len(expected):
                failed = True
                print(f"{language}: of the wrong facts {sorted(expected)}, found: {bad}")
            continue
        for line in bad:
            print(f"{language}: {line}")
        print(f"{language}: {count - len(bad)} facts hold, {len(bad)} do not")
        failed |= bool(bad) or count == 0
    return 1 if failed else 0


sys.exit(main())
