# SPDX-License-Identifier: BSD-2-Clause
"""What the commands of this folder share whose programs are linked with Debian's Open MPI."""

import os
import re
import shutil
import subprocess
import sys

from client import Client, Test
from launch import ROOT

sys.path.insert(0, os.path.join(ROOT, "tests/clients"))
import openmpi  # pylint: disable=wrong-import-position


class OpenMpi(Client):
    stacks = ("tcp", "tcp;ofi_rxm", "udp;ofi_rxd", "sockets", "cxi")

    def open(self):
        if shutil.which("mpirun") is None:
            self.stop("no mpirun: install Debian's openmpi-bin")
        said = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False).stdout
        found = re.match(r"mpirun \(Open MPI\) (\S+)", said)
        if found is None:
            self.stop("the mpirun in PATH is not Open MPI's")
        self.version = f"Open MPI {found[1]}"

    def ranks(self, name, command, stack, count, says=""):
        """The test that `count` ranks of a program are."""
        return Test(name, openmpi.mpirun(openmpi.settings(stack), count) + command, openmpi.environment(stack), says=says)
