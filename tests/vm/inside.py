# SPDX-License-Identifier: BSD-2-Clause
"""inside.py FILE: makes the checks of a file (JSON) in the guest, prints a line of JSON for each.

It judges nothing: `run`, outside, does. It keeps to few modules: they load slowly in the guest.
"""
import json
import os
import re
import signal
import subprocess
import sys
import time

KEPT = 30000  # characters of a program's output
TIMES = 10  # that a check with `again` is made at most


class Program:
    """One program of a check, in a process group of its own."""

    def __init__(self, words, environment):
        self.out = os.memfd_create("output")
        self.trouble = None
        self.process = None
        try:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=self.out,
                                            stderr=self.out, env={**os.environ, **environment},
                                            start_new_session=True)
        except OSError as error:
            self.trouble = f"{words[0]}: {error.strerror}"

    def wait(self, deadline):
        """True when it has ended, False when the time ran out."""
        try:
            if self.process:
                self.process.wait(max(deadline - time.monotonic(), 0))
            return True
        except subprocess.TimeoutExpired:
            self.trouble = "it did not end in time"
            return False

    def end(self):
        """Ends what is left of it, and tells what came of it."""
        if self.process:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()
        os.lseek(self.out, 0, os.SEEK_SET)
        with os.fdopen(self.out, errors="replace") as file:
            output = file.read()
        return {"status": self.process.returncode if self.process else None,
                "trouble": self.trouble, "output": output[-KEPT:]}


def listens(port):
    """Whether a socket or an RDMA CM identifier listens on the port."""
    for path in ["/proc/net/tcp", "/proc/net/tcp6"]:
        with open(path, encoding="ascii") as file:
            if re.search(rf"^ *\d+: [0-9A-F]+:{port:04X} [0-9A-F:]+ 0A ", file.read(), re.M):
                return True
    identifiers = subprocess.run(["rdma", "resource", "show", "cm_id"], capture_output=True,
                                 text=True, check=False)
    return re.search(rf"state LISTEN .*src-addr \S*:{port}\b", identifiers.stdout) is not None


def make_once(check, deadline):
    environments = check["environments"]
    if "command" in check:
        program = Program(check["command"], environments["command"])
        program.wait(deadline)
        return {"command": program.end()}
    server = Program(check["server"], environments["server"])
    while server.process and not listens(check["port"]):
        if server.process.poll() is not None:
            server.trouble = "it ended before it listened"
            break
        if time.monotonic() > deadline:
            server.trouble = f"it did not listen on port {check['port']} in time"
            break
        time.sleep(0.2)  # between two questions; nothing depends on it
    if server.trouble:
        return {"server": server.end()}
    client = Program(check["client"], environments["client"])
    client.wait(deadline)
    if client.process and client.process.returncode == 0:
        server.wait(deadline)  # of a client that fails the server may never hear
    return {"client": client.end(), "server": server.end()}


def make(check):
    """What came of the programs of a check, and whether that is a verdict."""
    deadline = time.monotonic() + check["seconds"]
    for _ in range(TIMES):
        programs = make_once(check, deadline)
        again = check["again"] and any(re.search(check["again"], program["output"])
                                       for program in programs.values())
        if not again or time.monotonic() > deadline:
            break
    return {"programs": programs, "undecided": bool(again)}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        checks = json.load(file)
    print(json.dumps({"started": len(checks)}), flush=True)
    for check in checks:
        began = time.monotonic()
        result = make(check)
        print(json.dumps({**result, "seconds": time.monotonic() - began}), flush=True)


if __name__ == "__main__":
    main()
