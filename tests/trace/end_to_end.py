#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""end_to_end: weft-bench under `weft trace`, over connected and unconnected endpoints, and the files that remain.

    end_to_end.py --bin build/release/bin --lib build/release/lib --program build/release/tests/conformance_rdm
                  --bench build/release/bin/weft-bench

The report's median must agree with the benchmark's own, of the same round trips, to within 10 %.
"""

import argparse
import csv
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

OPTIONS = None
ROUNDS = 4000  # of a ping-pong


class Trace(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="weft-trace-test-")
        self.work = pathlib.Path(self.folder.name)
        self.runtime = self.work / "runtime"
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("FI_", "WEFT_"))}
        self.environment.update(LD_LIBRARY_PATH=OPTIONS.lib, WEFT_RUNTIME_DIR=str(self.runtime),
                                XDG_CACHE_HOME=str(self.work / "cache"))

    def tearDown(self):
        left = [path.name for path in self.runtime.glob("*") if path.suffix != ".sock"] if self.runtime.exists() else []
        self.folder.cleanup()
        self.assertEqual(left, [], "left behind in the runtime folder")

    def run_weft(self, *arguments, status=0, **environment):
        done = subprocess.run([OPTIONS.bin + "/weft", *map(str, arguments)], env={**self.environment, **environment},
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, status, f"weft {arguments}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done

    def wait_for_death(self, *pids):
        """Of processes that were killed: one stays until its parent has waited for it."""
        for pid in pids:
            try:
                while pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                    pass
            except (FileNotFoundError, ProcessLookupError):
                pass

    def bench(self, *arguments):
        return [OPTIONS.bench, "--local", "--expect-library", OPTIONS.lib, *arguments]

    def report(self, *traces):
        return json.loads(self.run_weft("trace", "report", "--json", *traces).stdout)

    def ping_pong(self, kind, provider, *more, **environment):
        trace, result = self.work / f"{kind}.trace", self.work / f"{kind}.json"
        self.run_weft("trace", "record", "-o", trace, "--", *self.bench(
            "-t", "lat", "-S", "64", "-n", str(ROUNDS), "-e", kind, "-p", provider, "--json", str(result), *more),
            **environment)
        return trace, json.loads(result.read_text())

    def agree(self, report, result):
        """The client's half round trips, by the trace and by the benchmark."""
        measured = next(row for row in result["results"] if row["test"] == "lat")
        best = None
        for process in report["processes"]:
            for one in process["ping_pong"]:
                if one["bytes"] != 64 or one["half_round_trip_ns"]["count"] < 0.95 * ROUNDS:
                    continue
                seen = one["half_round_trip_ns"]
                # Both saw the same round trips. Not the tail: the benchmark leaves its warm-up out of its own figures.
                off = abs(seen["p50"] / 1000 / measured["us"]["p50"] - 1)
                best = off if best is None else min(best, off)
        self.assertIsNotNone(best, "no ping-pong in the report")
        self.assertLess(best, 0.1, f"report {json.dumps(report['processes'][0]['ping_pong'])}, benchmark {measured}")

    def check_whole(self, report):
        self.assertEqual(len(report["processes"]), 2)
        for process in report["processes"]:
            lost = process["lost"]
            self.assertEqual([lost[name] for name in ("overwritten", "torn", "without_ring")], [0, 0, 0])
            self.assertEqual(lost["completions_without_post"], 0)
            # Only receives are still posted when a benchmark ends.
            self.assertEqual(process["unmatched"]["sends"], 0, process["unmatched"])
            self.assertTrue(process["pairs"], "sends of one process are received by the other")
            self.assertEqual(process["clock"].split()[-1] in ("timeline", "clock"), True)

    def test_connected(self):
        trace, result = self.ping_pong("msg", "tcp")
        report = self.report(trace)
        self.check_whole(report)
        self.agree(report, result)
        names = {(op["element"], op["op"]) for op in report["processes"][0]["operations"]}
        for name in ("send", "recv", "completion", "cq_read", "endpoint", "bind", "close", "control"):
            self.assertIn(("tcp", name), names)

    def test_unconnected(self):
        trace, result = self.ping_pong("rdm", "tcp", "--tagged")
        report = self.report(trace)
        self.check_whole(report)
        self.agree(report, result)

    def test_layers_nest_and_pair(self):
        config = self.work / "weft.yaml"
        config.write_text("version: 1\nstacks:\n  traced: [{hook: trace}, {layer: rxm}, {hook: trace}, {provider: tcp}]\n"
                          "use: [traced]\n")
        trace, result = self.ping_pong("rdm", "tcp;ofi_rxm", FI_CONFIG=str(config), FI_HOOK="")
        report = self.report(trace)
        self.agree(report, result)
        for process in report["processes"]:
            elements = {op["element"] for op in process["operations"] if op["op"] == "completion"}
            self.assertEqual(elements, {"rxm", "tcp"})
        # Outer and inner sends, as a program that reads the CSV sees them.
        table = self.work / "out.csv"
        self.run_weft("trace", "convert", trace, "--to", "csv", "-o", table)
        with open(table, newline="") as file:
            rows = list(csv.DictReader(file))
        inner = [row for row in rows if row["element"] == "tcp" and row["depth"] != "0" and row["op"].startswith("send")]
        self.assertGreater(len(inner), 5000)
        chrome = self.work / "out.json"
        self.run_weft("trace", "convert", trace, "--to", "chrome", "-o", chrome)
        events = json.loads(chrome.read_text())["traceEvents"]
        self.assertGreater(sum(event["ph"] == "f" and event["cat"] == "message" for event in events), 5000)
        perfetto = self.work / "out.perfetto-trace"
        self.run_weft("trace", "convert", trace, "-o", perfetto)
        self.assertGreater(perfetto.stat().st_size, 100000)

    def test_a_clean_exit_leaves_nothing(self):
        done = subprocess.run(self.bench("-t", "lat", "-S", "8", "-n", "100", "-e", "msg", "-p", "tcp"),
                              env={**self.environment, "FI_HOOK": "trace"}, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(self.run_weft("trace", "ls", "--json").stdout), [])

    def test_a_signal_ends_record(self):
        job = subprocess.Popen(self.bench("-t", "lat", "-S", "64", "--seconds", "60", "-e", "msg", "-p", "tcp"), env=self.environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            pid = None
            while pid is None:
                self.assertIsNone(job.poll())
                pid = next((one["pid"] for one in json.loads(self.run_weft("hook", "ls", "--json").stdout)), None)
            for number in (signal.SIGINT, signal.SIGTERM):
                saved = self.work / f"{number.name}.trace"
                with subprocess.Popen([OPTIONS.bin + "/weft", "trace", "record", "-p", str(pid), "--for", "100", "-o", saved],
                                      env=self.environment, stderr=subprocess.PIPE, text=True) as recorder:
                    self.assertIn("recording", recorder.stderr.readline())
                    recorder.send_signal(number)
                    recorder.send_signal(number)  # somebody is impatient
                    self.assertEqual(recorder.wait(timeout=60), 0)
                self.assertEqual([one["pid"] for one in self.report(saved)["processes"]], [pid])
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        self.wait_for_death(pid)
        self.run_weft("trace", "rm")

    def test_a_killed_process_can_be_read(self):
        server = subprocess.Popen(self.bench("-t", "lat", "-S", "64", "--seconds", "60", "-e", "msg", "-p", "tcp"),
                                  env={**self.environment, "FI_HOOK": "trace"}, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            # Waits until both sides have exchanged messages.
            while True:
                self.assertIsNone(server.poll())
                listed = json.loads(self.run_weft("trace", "ls", "--json").stdout)
                if len(listed) == 2 and all(one.get("records", 0) > 2000 for one in listed):
                    break
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
        pids = [one["pid"] for one in listed]
        self.wait_for_death(*pids)
        listed = json.loads(self.run_weft("trace", "ls", "--json").stdout)
        self.assertEqual([one["state"] for one in listed], ["dead", "dead"])
        report = self.report(*pids)
        for process in report["processes"]:
            self.assertEqual(process["state"], "dead")
            self.assertGreater(process["records"], 2000)
            self.assertIn(64, [one["bytes"] for one in process["ping_pong"]])
        self.run_weft("trace", "rm", pids[0])
        self.assertEqual([one["pid"] for one in json.loads(self.run_weft("trace", "ls", "--json").stdout)], pids[1:])
        self.run_weft("trace", "rm")

    def test_filters(self):
        trace = self.work / "few.trace"
        self.run_weft("trace", "record", "-o", trace, "--set", "ops=send", "--set", "sample=2", "--", *self.bench(
            "-t", "lat", "-S", "64", "-n", "4000", "-e", "msg", "-p", "tcp"))
        for process in self.report(trace)["processes"]:
            self.assertEqual({op["op"] for op in process["operations"]} - {"retries"}, {"send"})
            calls = sum(op["calls"] for op in process["operations"])
            self.assertLess(calls, 3500)
            self.assertGreater(calls, 1000)

    def test_bad_questions_get_answers(self):
        self.assertIn("size", self.run_weft("trace", "record", "--set", "size", "--", "true", status=2).stderr)
        self.assertIn("no trace", self.run_weft("trace", "record", "--", "true", status=2).stderr)
        self.assertIn("-- COMMAND", self.run_weft("trace", "record", status=2).stderr)
        self.assertIn("no trace", self.run_weft("trace", "report", "999999999", status=2).stderr)
        odd = self.work / "odd"
        odd.write_bytes(b"WEFTTRC1" + bytes(5000))
        self.assertIn("version", self.run_weft("trace", "report", odd, status=2).stderr)
        self.assertIn("perfetto", self.run_weft("trace", "convert", "--to", "xml", odd, status=2).stderr)
        wrong = subprocess.run([OPTIONS.bin + "/weft", "why", "tcp"], env={**self.environment, "FI_HOOK": "trace", "FI_TRACE_OPS": "tsned"},
                               capture_output=True, text=True, timeout=60)
        self.assertIn('ops: "tsned" is neither', wrong.stderr)

    def test_ids_that_the_user_gave_are_taken_for_nobodys_address(self):
        # Each of two peers has the other's fi_addr_t as its id.
        trace = self.work / "ids.trace"
        self.run_weft("trace", "record", "-o", trace, "--", OPTIONS.program,
                      "--gtest_filter=*RdmUserId.CallsTakeTheAddress/Table", WEFT_TEST_STACK="tcp", WEFT_TEST_REQUIRED="1")
        process, = self.report(trace)["processes"]
        self.assertEqual(sum(pair["send_to_receive_ns"]["count"] for pair in process["pairs"]), 4)


def main():
    global OPTIONS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--lib", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--bench", required=True, help="weft-bench")
    OPTIONS, rest = parser.parse_known_args()
    OPTIONS.bin, OPTIONS.lib, OPTIONS.bench = map(os.path.realpath, (OPTIONS.bin, OPTIONS.lib, OPTIONS.bench))
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)


if __name__ == "__main__":
    main()
