# SPDX-License-Identifier: BSD-2-Clause
"""A Debian in a folder, in which commands run.

    root = Chroot.make(folder, "bookworm", ["libfabric-bin"], cache, log)
    root.run(["apt-get", "install", "-y", "/debs/a.deb"], log, binds={folder_of_debs: "/debs"})

Each command has namespaces of its own for mounts and processes: nothing is mounted afterwards, and no process is left. It is no
sandbox: the commands are root.
"""
import hashlib
import os
import pathlib
import shutil
import subprocess

# Runs in the new namespaces. Its arguments: the folder, pairs of a path and where it appears, `--`, the command.
ENTER = r"""
set -eu
root=$1; shift
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t proc proc "$root/proc"
while [ "$1" != -- ]; do
  mkdir -p "$root$2"
  mount --bind "$1" "$root$2"
  shift 2
done
shift
exec chroot "$root" "$@"
"""

CLEAN = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8",
         "DEBIAN_FRONTEND": "noninteractive", "TERM": "dumb"}


class Failed(Exception):
    """A command did not do what it should; the text says which."""


def call(command, log, **options):
    """Runs a command of this host, with its output in the open file `log`."""
    log.write(f"+ {' '.join(map(str, command))}\n")
    log.flush()
    status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False, **options).returncode
    if status:
        raise Failed(f"{' '.join(map(str, command[:4]))} ... ended with {status}")


class Chroot:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    @classmethod
    def make(cls, folder, suite, packages, cache, log):
        """A fresh one with these packages. The archive that it is unpacked from is kept in the folder `cache`."""
        key = hashlib.sha256(" ".join([suite, *packages]).encode()).hexdigest()[:12]
        archive = pathlib.Path(cache) / f"{suite}-{key}.tar"
        if not archive.exists():
            archive.parent.mkdir(parents=True, exist_ok=True)
            part = archive.with_suffix(".part.tar")
            call(["mmdebstrap", "--variant=minbase", f"--include={','.join(packages)}", "--skip=cleanup/apt/lists",
                  suite, str(part)], log)
            part.rename(archive)
        root = cls(folder)
        root.remove()
        root.folder.mkdir(parents=True)
        call(["tar", "-xf", str(archive), "-C", str(root.folder), "--exclude=./dev/*", "--numeric-owner"], log)
        for name in ("resolv.conf", "hosts"):
            shutil.copy(f"/etc/{name}", root.folder / "etc" / name)
        no_services = root.folder / "usr/sbin/policy-rc.d"
        no_services.write_text("#!/bin/sh\nexit 101\n")
        no_services.chmod(0o755)
        return root

    def run(self, command, log, binds=None, environment=None, timeout=None):
        mounts = [str(part) for pair in (binds or {}).items() for part in pair]
        variables = [f"{name}={value}" for name, value in (CLEAN | (environment or {})).items()]
        call(["unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--propagation", "private", "sh", "-c", ENTER, "enter",
              str(self.folder), *mounts, "--", "env", "-i", *variables, *map(str, command)], log, timeout=timeout)

    def remove(self):
        if self.folder.exists():
            if any(line.split()[1].startswith(f"{self.folder}/") for line in open("/proc/mounts", encoding="utf-8")):
                raise Failed(f"something is mounted in {self.folder}")
            shutil.rmtree(self.folder)
