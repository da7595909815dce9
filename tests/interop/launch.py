# SPDX-License-Identifier: BSD-2-Clause
"""Starts one program, or a launcher of ranks (mpiexec), in a network namespace of its own, for the commands of this folder."""

import os
import signal
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
GRACE = 10  # seconds that a launcher has to end its ranks


def launch(command, environment, limit, folder=None):
    """The exit status (None: it did not end within `limit` seconds), the seconds, and the output of all processes."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        with subprocess.Popen([os.path.join(ROOT, "tests/own_network")] + command, env=os.environ | environment,
                              stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder,
                              start_new_session=True) as job:
            try:
                status = job.wait(limit)
            except subprocess.TimeoutExpired:
                status = None
                os.killpg(job.pid, signal.SIGTERM)  # the launcher ends the others
                try:
                    job.wait(GRACE)
                except subprocess.TimeoutExpired:
                    pass
            finally:
                try:
                    os.killpg(job.pid, signal.SIGKILL)  # and what it has left
                except ProcessLookupError:
                    pass
        output.seek(0)
        return status, round(time.monotonic() - began, 2), output.read().decode(errors="replace")
