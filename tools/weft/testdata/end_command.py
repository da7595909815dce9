#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""end_command.py COMMAND...: whether a command that SIGTERM ends takes along its child and the child of that, which asks plugins.

Both are stopped first, so that they are gone only if somebody ends them.
"""
import os
import signal
import subprocess
import sys
import time

DEADLINE = 60  # seconds: far more than it takes


def processes():
    """pid -> (parent, state)"""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(name)] = (int(fields[1]), fields[0])
    return found


def child_of(parent):
    return next((pid for pid, (of, state) in processes().items() if of == parent and state != "Z"), None)


def is_ready(pid):
    """Whether it has begun its work: it keeps what it says on stderr (supervise.cc)."""
    try:
        return True if "memfd" in os.readlink(f"/proc/{pid}/fd/2") else None
    except OSError:
        return None


def wait_for(condition, what):
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if (answer := condition()) is not None:
            return answer
        time.sleep(0.01)
    return sys.exit(f"{what}: not within {DEADLINE} s")


def main():
    with subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as command:
        family = []
        parent = command.pid
        for what in ("a child", "a child of that"):
            parent = wait_for(lambda of=parent: child_of(of), what)
            family.append(parent)
        wait_for(lambda: is_ready(parent), "its work")
        for pid in reversed(family):
            os.kill(pid, signal.SIGSTOP)
        command.terminate()
        command.wait()
        try:
            wait_for(lambda: True if all(processes().get(pid, (0, "Z"))[1] == "Z" for pid in family) else None, "the end of both")
        finally:
            for pid in family:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass


if __name__ == "__main__":
    main()
