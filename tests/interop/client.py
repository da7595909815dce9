# SPDX-License-Identifier: BSD-2-Clause
"""What the commands of this folder share that run a client's tests: options, runs over weft and stock, results.

A command says how its client's tests are found and how one of them is started:

    class Mpich(Client):
        title = "MPICH's test/mpi"
        def tests(self, stack): return [Test("pt2pt/pingping 2", ["mpiexec", "-n", "2", "./pingping"], ...), ...]
    sys.exit(Mpich(__doc__).main())

A test passes when its program ends with 0, and says what Test.says asks for. Over one library it is "passed",
"failed" or "late"; over stock also "none", where that passes nothing on this stack. The verdict is "passed", "both"
(it does not pass over stock, either) or "WORSE".
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from launch import ROOT, launch

VERDICTS = ("passed", "both", "WORSE")
PATIENCE = 5  # so many tests without one that passes over stock, and --both is given up for this stack


@dataclass
class Test:
    name: str
    command: list
    environment: dict = field(default_factory=dict)
    folder: str = None  # where it runs; else in an empty one of its own
    seconds: float = 0  # the client's own limit, if that is longer
    says: str = ""  # a regular expression, for each line or for the whole output
    suite: str = ""  # the part of the client's tests that it belongs to, if these are many; a row of its own in the table


def version_of(library):
    """MAJOR.MINOR of the libfabric in a folder, which another process loads."""
    code = "import ctypes, sys; v = ctypes.CDLL(sys.argv[1]).fi_version(); print(f'{v >> 16}.{v & 0xffff}')"
    return subprocess.run([sys.executable, "-c", code, os.path.join(library, "libfabric.so.1")], capture_output=True,
                          text=True, check=True).stdout.strip()


class Client:
    title = ""
    stacks = ("tcp;ofi_rxm", )
    timeout = 60
    version = ""

    def __init__(self, usage):
        self.command = os.path.basename(sys.argv[0])
        self.stock_tried, self.stock_passed = 0, 0  # over this stack
        self.parser = argparse.ArgumentParser(description=usage, formatter_class=argparse.RawDescriptionHelpFormatter)
        self.options = None

    def add_options(self):
        """Adds the options that only this client has."""

    def open(self):
        """Looks at the options, finds what is installed, and sets `version`."""

    def tests(self, stack):
        raise NotImplementedError

    def stop(self, reason):
        sys.exit(f"{self.command}: {reason}; see {self.command} --help")

    def needs(self, path, what):
        if not os.path.exists(path):
            self.stop(f"no {path}: {what}")

    def loads(self, program):
        """Stops where a program of the client would not load the libfabric of choice: its own path (DT_RPATH) goes first."""
        for library in filter(None, (self.options.weft, self.options.stock)):
            said = subprocess.run(["ldd", program], env=os.environ | {"LD_LIBRARY_PATH": path_of(library)}, capture_output=True,
                                  text=True, check=False).stdout
            found = re.search(r"libfabric\.so\.1 => (\S+)", said)
            if found is None:
                self.stop(f"{program} is not linked with libfabric.so.1")
            if os.path.dirname(os.path.realpath(found[1])) != os.path.realpath(library):
                self.stop(f"{program} loads {found[1]} although LD_LIBRARY_PATH is {library}: build it with --enable-new-dtags")

    def parse(self, arguments):
        add = self.parser.add_argument
        add("--weft", default=os.path.join(ROOT, "build/release/lib"), help="the folder of libfabric.so.1")
        add("--stock", help="the same of a stock libfabric")
        add("--both", action="store_true", help="everything runs over stock, and not only what fails over weft")
        add("--stack", action="append", help=f"one of them, or several (default: {' '.join(self.stacks)})")
        add("--only", default="", metavar="REGEX", help="tests whose names match")
        add("--timeout", type=float, default=self.timeout, help=f"seconds for one test (default: {self.timeout})")
        add("--jobs", type=int, default=1, help="tests at a time")
        add("--json", help="a file for the results")
        self.add_options()
        self.options = self.parser.parse_args(arguments)
        for name in ("weft", "stock"):
            folder = getattr(self.options, name)
            if folder is not None:
                setattr(self.options, name, os.path.realpath(folder))
                self.needs(os.path.join(folder, "libfabric.so.1"), f"build it, or say --{name}")
        if self.options.both and self.options.stock is None:
            self.stop("--both wants --stock")
        try:
            re.compile(self.options.only)
        except re.error as error:
            self.stop(f"--only {self.options.only}: {error}")
        if self.options.jobs < 1:
            self.stop("--jobs is 1 or more")
        self.open()

    def run(self, test, library):
        """passed, failed or late; the seconds; the output."""
        with tempfile.TemporaryDirectory() as runtime, tempfile.TemporaryDirectory() as own:
            status, seconds, text = launch(test.command, {"LD_LIBRARY_PATH": path_of(library), "WEFT_RUNTIME_DIR": runtime} | test.environment,
                                           max(self.options.timeout, test.seconds), test.folder or own)
        passed = status == 0 and re.search(test.says, text, re.M)
        return "passed" if passed else "late" if status is None else "failed", seconds, text

    def compare(self, test, stack):
        """The row of one test, and the end of what it has printed where it failed."""
        client = f"{self.title}, {test.suite}" if test.suite else self.title
        row = {"client": client, "version": self.version, "stack": stack, "name": test.name, "stock": None}
        row["weft"], row["seconds"], text = self.run(test, self.options.weft)
        if self.options.stock is not None:
            row["stock_version"] = self.stock_version
            hopeless = self.stock_tried >= PATIENCE and self.stock_passed == 0
            if row["weft"] != "passed" or (self.options.both and not hopeless):
                row["stock"] = self.run(test, self.options.stock)[0]
                self.stock_tried += 1
                self.stock_passed += row["stock"] == "passed"
        row["verdict"] = verdict_of(row)
        return row, "" if row["weft"] == "passed" else text

    def again(self, rows, tests):
        """What is late over one library alone may have been beside too many others: it runs once more, with nothing of ours
        beside it."""
        for row, test in zip(rows, tests):
            late = [name for name in ("weft", "stock") if row[name] == "late"]
            if len(late) != 1 or row[{"weft": "stock", "stock": "weft"}[late[0]]] == "failed":
                continue
            print(f"{row['stack']} {row['name']}: late over {late[0]}, so once more by itself", flush=True)
            row[late[0]], seconds, text = self.run(test, getattr(self.options, late[0]))
            if late[0] == "weft":
                row["seconds"] = seconds
            row["verdict"] = verdict_of(row)
            show(row, text)

    def doubt_stock(self, rows, tests):
        """A stack over which stock passes nothing may not be there: then it does not count."""
        if any(row["stock"] == "passed" for row in rows) or all(row["stock"] is None for row in rows):
            return
        passed = [test for test, row in zip(tests, rows) if row["weft"] == "passed" and row["stock"] is None]
        if passed and self.run(passed[0], self.options.stock)[0] == "passed":
            return
        print(f"{rows[0]['stack']}: nothing passes over stock, so it does not count", flush=True)
        for row in rows:
            row["stock"] = "none"
            row["verdict"] = verdict_of(row)

    def write(self, rows):
        if self.options.json:
            with open(self.options.json + ".new", "w", encoding="utf-8") as out:
                json.dump(rows, out, indent=1)
            os.replace(self.options.json + ".new", self.options.json)

    def run_stack(self, stack, before):
        tests = [test for test in self.tests(stack) if re.search(self.options.only, test.name)]
        if not tests:
            self.stop(f"no test is named '{self.options.only}'")
        self.stock_tried, self.stock_passed, rows = 0, 0, []
        with ThreadPoolExecutor(self.options.jobs) as pool:
            jobs = [pool.submit(self.compare, test, stack) for test in tests]
            try:
                for number, job in enumerate(jobs, 1):
                    row, text = job.result()
                    rows.append(row)
                    show(row, text)
                    self.write(before + rows)
                    if sys.stderr.isatty():
                        print(f"\r{stack}: {number} of {len(tests)} ", end="", file=sys.stderr)
            except KeyboardInterrupt:
                pool.shutdown(cancel_futures=True)
                raise
        self.doubt_stock(rows, tests)
        self.again(rows, tests)
        counts = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in VERDICTS}
        stock = [row for row in rows if row["stock"] not in (None, "none")]
        print(f"{stack}: {counts['passed']} of {len(rows)} passed, {counts['both']} fail over stock, too, "
              f"{counts['WORSE']} over weft alone"
              + (f"; stock passes {sum(row['stock'] == 'passed' for row in stock)} of {len(stock)}" if stock else ""), flush=True)
        for row in rows:
            if row["verdict"] == "WORSE":
                print(f"WORSE  {stack} {row['name']}: {row['weft']}", flush=True)
        return rows

    def main(self, arguments=None):
        self.parse(arguments)
        self.stock_version = version_of(self.options.stock) if self.options.stock else None
        rows = []
        for stack in self.options.stack or self.stacks:
            rows += self.run_stack(stack, rows)
            self.write(rows)
        return any(row["verdict"] == "WORSE" for row in rows)


def path_of(library):
    return ":".join(filter(None, [library, os.environ.get("LD_LIBRARY_PATH")]))


def verdict_of(row):
    return "passed" if row["weft"] == "passed" else "both" if row["stock"] in ("failed", "late") else "WORSE"


def show(row, text):
    if row["verdict"] == "passed" and row["stock"] in (None, "none", "passed"):
        return
    stock = f", stock {row['stock']}" if row["stock"] is not None else ""
    print(f"{row['verdict']:6} {row['stack']} {row['name']}: {row['weft']} after {row['seconds']} s{stock}", flush=True)
    print("".join(f"    {line}\n" for line in text.splitlines()[-12:]), end="", flush=True)
