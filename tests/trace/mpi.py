#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""mpi: Open MPI ranks under `weft trace`: attached to while they run, and killed.

    mpi.py --bin build/release/bin --lib build/release/lib --program build/release/tests/mpi_client

One rank gets the hook while it runs, and loses it again. The job ends with correct results, which its program checks.
A rank that is killed while it is traced leaves a readable trace. Exits 77 (not run) where there is no Open MPI.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

LIMIT = 120


def fail(message):
    print(f"mpi: FAILED: {message}")
    sys.exit(1)


class Job:
    """mpirun with two ranks of the program."""

    def __init__(self, options, work, **environment):
        self.work = work
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(work), "TMPDIR": str(work), "LANG": "C.UTF-8",
            "LD_LIBRARY_PATH": options.lib, "WEFT_RUNTIME_DIR": str(work / "runtime"), "XDG_CACHE_HOME": str(work / "cache"),
            "FI_PROVIDER": "^ofi_rxm", **environment}
        settings = {"pml": "cm", "mtl": "ofi", "mtl_ofi_provider_include": "tcp", "osc": "pt2pt", "btl": "self",
                    "orte_tmpdir_base": str(work), "coll": "^sm,hcoll", "hwloc_base_binding_policy": "none",
                    "mpi_yield_when_idle": "1"}
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
        for key, value in settings.items():
            command += ["--mca", key, value]
        command += [options.program, "storm"]  # not --quick: it must still run when the test looks at it
        self.log = open(work / "log", "wb")
        self.process = subprocess.Popen(command, env=self.environment, stdout=self.log, stderr=subprocess.STDOUT,
                                        stdin=subprocess.DEVNULL, start_new_session=True)
        self.weft = options.bin + "/weft"
        self.deadline = time.monotonic() + LIMIT

    def run(self, *arguments, check=True):
        done = subprocess.run([self.weft, *map(str, arguments)], env=self.environment, capture_output=True, text=True,
                              timeout=60)
        if check and done.returncode != 0:
            fail(f"weft {' '.join(map(str, arguments))}: {done.stderr}\n{self.text()}")
        return done

    def text(self):
        return (self.work / "log").read_text(errors="replace")[-4000:]

    def until(self, what, look):
        while time.monotonic() < self.deadline:
            found = look()
            if found:
                return found
            if self.process.poll() is not None:
                fail(f"the job ended before {what}: {self.text()}")
        fail(f"no {what} within {LIMIT} s: {self.text()}")

    def wait(self):
        try:
            return self.process.wait(timeout=max(1, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            fail(f"the job does not end: {self.text()}")

    def stop(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()


def attach_and_detach(options, work):
    job = Job(options, work)
    try:
        name = os.path.basename(options.program)
        pid = job.until("a rank that listens", lambda: next(
            (one["pid"] for one in json.loads(job.run("hook", "ls", "--json").stdout)
             if os.path.basename(one["program"]) == name), None))
        saved = work / "rank.trace"
        recorder = subprocess.Popen([job.weft, "trace", "record", "-p", str(pid), "--for", str(LIMIT), "-o", saved], env=job.environment)
        try:
            # The rank may still be in MPI_Init, and the machine slow.
            job.until("100 records", lambda: any(
                one["pid"] == pid and one["records"] >= 100 for one in json.loads(job.run("trace", "ls", "--json").stdout)))
            recorder.send_signal(signal.SIGINT)
            if recorder.wait(timeout=60) != 0:
                fail(f"weft trace record ended with {recorder.returncode}")
        finally:
            recorder.kill()
            recorder.wait()
        status = job.wait()
        if status != 0:
            fail(f"the job that was traced ended with {status}: {job.text()}")
        report = json.loads(job.run("trace", "report", "--json", saved).stdout)
        process = report["processes"][0]
        if process["pid"] != pid or process["records"] < 100:
            fail(f"the trace of rank {pid} has {process['records']} records")
        print(f"mpi: rank {pid}: {process['records']} records, job passed")
        left = list((work / "runtime").glob("*"))
        if left:
            fail(f"left behind: {left}")
    finally:
        job.stop()


def killed(options, work):
    job = Job(options, work, FI_HOOK="trace")
    try:
        traced = job.until("a rank with records", lambda: next(
            (one for one in json.loads(job.run("trace", "ls", "--json").stdout)
             if one.get("state") == "alive" and one.get("records", 0) > 5000), None))
        os.kill(traced["pid"], signal.SIGKILL)
        job.wait()
        report = json.loads(job.run("trace", "report", "--json", traced["pid"]).stdout)
        process = report["processes"][0]
        if process["state"] != "dead" or process["records"] < 5000:
            fail(f"killed rank: {process['state']}, {process['records']} records")
        if not any(op["op"] == "completion" for op in process["operations"]):
            fail("the killed rank's trace has no completions")
        job.run("trace", "rm")
        print(f"mpi: killed rank {traced['pid']}: {process['records']} records could be read")
    finally:
        job.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--lib", required=True)
    parser.add_argument("--program", required=True)
    options = parser.parse_args()
    options.bin, options.lib, options.program = map(os.path.realpath, (options.bin, options.lib, options.program))
    if not shutil.which("mpirun"):
        print("mpi: skipped: no mpirun (package openmpi-bin)")
        sys.exit(77)
    for test in (attach_and_detach, killed):
        with tempfile.TemporaryDirectory(prefix="weft-trace-mpi-") as name:
            test(options, pathlib.Path(name))


if __name__ == "__main__":
    main()
