#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""hostile_users: what another user of the host prepares for a user of weft, and what killed processes leave behind.

    hostile_users.py --bin build/quick/bin --lib build/quick/lib

Two users, the owner and the other one, of whom neither is root. The other one makes the names that weft will use first, as a file,
a folder, a link, a FIFO or a socket, each open to everybody. The owner's program works, or says what is wrong and what to do; it
hangs on nothing, and nothing of either user is written to. Becoming two users takes root: without, the test is skipped.
"""

import argparse
import fcntl
import os
import pathlib
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import unittest

OPTIONS = None
OWNER, OTHER = 54321, 54322
LIMIT = 120  # seconds: what takes longer hangs
PRIVATE = "private"


def kinds(path, owners_file):
    """What the other user makes at a path, by name. `owners_file` is a file of the owner's."""
    def make_socket():
        made = socket.socket(socket.AF_UNIX)
        made.bind(str(path))
        made.close()
    return {
        "a file": lambda: path.write_text(PRIVATE),
        "a folder": path.mkdir,
        "a link to a file of the owner": lambda: path.symlink_to(owners_file),
        "a link to a folder": lambda: path.symlink_to(path.parent),
        "a link to nothing": lambda: path.symlink_to(path.parent / "nothing"),
        "a FIFO": lambda: os.mkfifo(path),
        "a socket": make_socket,
    }


class HostileUsers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weft-users-")
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)
        self.work.chmod(0o755)
        self.shared = self.work / "shared"  # any user may make and remove files there, as in a careless /tmp
        self.shared.mkdir()
        self.shared.chmod(0o777)
        self.home = self.work / "home"
        self.home.mkdir()
        os.chown(self.home, OWNER, OWNER)
        self.mine = self.home / "mine"  # a file that must stay as it is
        self.mine.write_text(PRIVATE)
        os.chown(self.mine, OWNER, OWNER)
        self.runtime = self.home / "run"
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("FI_", "WEFT_", "XDG_"))}
        self.environment.update(LD_LIBRARY_PATH=str(OPTIONS.lib), HOME=str(self.home), WEFT_RUNTIME_DIR=str(self.runtime),
                                FI_PROVIDER="tcp")

    def as_other(self, make, path):
        """Runs a function as the other user, in a child."""
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.setresgid(OTHER, OTHER, OTHER)
                os.setresuid(OTHER, OTHER, OTHER)
                os.umask(0)
                make()
                if not path.is_symlink():
                    path.chmod(0o777)
                status = 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0, f"{path} could not be made")

    def start(self, *command, **environment):
        return subprocess.Popen([str(word) for word in command], env={**self.environment, **environment}, user=OWNER, group=OWNER,
                                extra_groups=[], cwd=self.home, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def run_owner(self, *command, **environment):
        process = self.start(*command, **environment)
        try:
            out, err = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.fail(f"{command} hangs")
        self.assertGreaterEqual(process.returncode, 0, f"{command} was killed: {err}")
        return process.returncode, out, err

    def server(self, **environment):
        """A program with an open fabric, which waits for a client. It is killed at the end of the test."""
        process = self.start(OPTIONS.bin / "fi_pingpong", "-p", "tcp", "-e", "rdm", **environment)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        return process

    def wait_for(self, condition, what):
        """Within LIMIT seconds. Nothing tells that a file is there, so this looks a hundred times a second."""
        for _ in range(LIMIT * 100):
            if condition():
                return
            select.select([], [], [], 0.01)
        self.fail(what)

    def expect_untouched(self, path, what):
        self.assertEqual(self.mine.read_text(), PRIVATE, f"{what}: the owner's file was written to")
        if path.is_symlink() or not path.exists():
            self.assertTrue(path.is_symlink(), f"{what}: it is gone")
            return
        self.assertEqual(path.stat().st_uid, OTHER, f"{what}: it was replaced")
        if path.is_file():
            self.assertEqual(path.read_text(), PRIVATE, f"{what}: it was written to")
        if path.is_dir():
            self.assertEqual(list(path.iterdir()), [], f"{what}: something was put into it")

    def each_kind(self, name):
        for what in kinds(self.shared / "x", self.mine):
            path = self.shared / name
            with self.subTest(what):
                self.as_other(kinds(path, self.mine)[what], path)
                yield path, what
                self.expect_untouched(path, what)
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def test_the_runtime_folder(self):
        for path, what in self.each_kind("run"):
            for command in (["weft", "stats"], ["weft", "hook", "ls"], ["weft", "trace", "ls"]):
                status, out, err = self.run_owner(OPTIONS.bin / command[0], *command[1:], WEFT_RUNTIME_DIR=str(path))
                self.assertNotEqual(status, 0, (what, out, err))
                self.assertIn(str(path), err, what)
                self.assertIn("set WEFT_RUNTIME_DIR", err, what)
            status, out, err = self.run_owner(OPTIONS.bin / "fi_info", "-p", "tcp", WEFT_RUNTIME_DIR=str(path))
            self.assertEqual(status, 0, (what, err))

    def test_the_default_runtime_folder(self):
        path = pathlib.Path(f"/dev/shm/weft-{OWNER}")
        instead = path.with_name(path.name + ".1")
        for folder in (path, instead):
            self.addCleanup(lambda folder=folder: shutil.rmtree(folder, ignore_errors=True))
        self.as_other(path.mkdir, path)
        for provider in ("tcp", "cxi"):
            status, out, err = self.run_owner(OPTIONS.bin / "fi_info", "-p", provider, WEFT_RUNTIME_DIR="", FI_PROVIDER=provider)
            self.assertEqual(status, 0, (provider, out, err))
        status, out, err = self.run_owner(OPTIONS.bin / "weft", "stats", WEFT_RUNTIME_DIR="")
        self.assertIn("no process counts anything", out, (status, err))
        self.assertEqual(list(path.iterdir()), [])
        self.assertEqual((instead.stat().st_uid, stat.S_IMODE(instead.stat().st_mode)), (OWNER, 0o700))

    def test_a_trace_in_a_shared_folder(self):
        """The name is PID.trace, so the program tells its number and waits before it begins."""
        for what in kinds(self.shared / "x", self.mine):
            with self.subTest(what):
                process = self.start("sh", "-c", 'echo $$; read line; exec "$@"', "sh", OPTIONS.bin / "fi_pingpong", "-p", "tcp",
                                     "-e", "rdm", FI_HOOK="trace", FI_TRACE_DIRECTORY=str(self.shared))
                try:
                    number = process.stdout.readline().strip()
                    path = self.shared / f"{number}.trace"
                    self.as_other(kinds(path, self.mine)[what], path)
                    process.stdin.write("go\n")
                    process.stdin.flush()
                    own = self.shared / f"{number}.1.trace"
                    self.wait_for(lambda: own.exists() or process.poll() is not None, "no trace file")
                    self.assertTrue(own.exists(), process.stderr.read() if process.poll() is not None else "")
                    self.assertEqual((own.stat().st_uid, stat.S_IMODE(own.stat().st_mode)), (OWNER, 0o600))
                finally:
                    process.kill()
                    process.communicate()
                self.expect_untouched(path, what)

    def test_a_record_of_calls_in_a_shared_folder(self):
        """The name is HOST.PID.calls."""
        for what in kinds(self.shared / "x", self.mine):
            with self.subTest(what):
                process = self.start("sh", "-c", 'echo $$; read line; exec "$@"', "sh", OPTIONS.bin / "fi_info", "-p", "tcp",
                                     WEFT_WHY=str(self.shared))
                number = process.stdout.readline().strip()
                path = self.shared / f"{socket.gethostname()}.{number}.calls"
                self.as_other(kinds(path, self.mine)[what], path)
                out, err = process.communicate("go\n", timeout=LIMIT)
                self.assertEqual(process.returncode, 0, (what, out, err))
                self.expect_untouched(path, what)

    def test_files_that_are_named(self):
        """In the environment: a configuration, a key."""
        for path, what in self.each_kind("named"):
            if what.startswith("a link to a file") or what == "a file":
                continue  # the user named it
            status, out, err = self.run_owner(OPTIONS.bin / "fi_info", "-p", "tcp", FI_CONFIG=str(path))
            self.assertIn(str(path), err, (what, status, out))
            status, out, err = self.run_owner(OPTIONS.bin / "fi_pingpong", "-p", "tcp", "-e", "rdm",
                                              FI_TCP_AUTH_KEY_FILE=str(path), FI_LOG_LEVEL="warn")
            self.assertNotEqual(status, 0, (what, out))
            self.assertIn(str(path), err, what)

    def test_the_cache_of_verdicts(self):
        """Plugins without an index are probed, and what comes of it is remembered, in no folder of others."""
        folder = self.home / "plugins"
        shutil.copytree(OPTIONS.lib / "weft" / "plugins.d", folder / "plugins.d")
        shutil.copy(OPTIONS.lib / "weft" / "tcp.so", folder)
        for path, what in self.each_kind("weft"):
            status, out, err = self.run_owner(OPTIONS.bin / "fi_info", "-p", "tcp", FI_PROVIDER_PATH=str(folder),
                                              XDG_CACHE_HOME=str(self.shared))
            self.assertEqual(status, 0, (what, err))
            self.assertIn("provider: tcp", out, what)

    def test_a_process_that_answers_a_byte_at_a_time(self):
        """Of the same user: what asks it gives up."""
        self.runtime.mkdir(0o700)
        os.chown(self.runtime, OWNER, OWNER)
        slow = self.start("python3", "-c", """if True:
            import os, socket, time
            door = socket.socket(socket.AF_UNIX)
            door.bind(f"{os.environ['WEFT_RUNTIME_DIR']}/{os.getpid()}.sock")
            door.listen()
            print(os.getpid(), flush=True)
            while True:
                caller = door.accept()[0]
                try:
                    while True:
                        caller.sendall(b"{")
                        time.sleep(0.1)
                except OSError:
                    pass
            """)
        self.addCleanup(lambda: (slow.kill(), slow.communicate()))
        number = slow.stdout.readline().strip()
        status, out, err = self.run_owner(OPTIONS.bin / "weft", "stats", number)
        self.assertNotEqual(status, 0, out)
        self.assertIn("did not answer within 2 s", err)

    def test_what_killed_processes_leave(self):
        killed = self.server(FI_HOOK="trace;profile")
        files = {suffix: self.runtime / f"{killed.pid}.{suffix}" for suffix in ("sock", "trace", "profile")}
        self.wait_for(lambda: all(path.exists() for path in files.values()) or killed.poll() is not None, "no files")
        self.assertIsNone(killed.poll(), killed.stderr.read() if killed.poll() is not None else "")
        recorder = self.start(OPTIONS.bin / "weft", "trace", "record", "--", "cat")  # until its input ends
        self.addCleanup(lambda: (recorder.kill(), recorder.communicate()))
        self.wait_for(lambda: list(self.runtime.glob("record-*")), "no folder")
        left = list(self.runtime.glob("record-*"))
        for process in (killed, recorder):
            process.send_signal(signal.SIGKILL)
            process.wait()
        self.assertTrue(all(path.exists() for path in files.values()), "killed processes remove nothing")
        self.run_owner(OPTIONS.bin / "weft", "hook", "ls")
        self.run_owner(OPTIONS.bin / "weft", "stats")
        self.assertEqual([files["sock"].exists(), files["profile"].exists()], [False, False])
        status, out, err = self.run_owner(OPTIONS.bin / "weft", "trace", "ls")
        self.assertRegex(out, rf"{killed.pid} +dead", "its trace is still there to be read")
        self.run_owner(OPTIONS.bin / "weft", "trace", "record", "--", "true")
        self.assertEqual([path for path in left if path.exists()], [])
        self.run_owner(OPTIONS.bin / "weft", "trace", "rm", killed.pid)
        self.assertEqual(list(self.runtime.iterdir()), [])


    def test_links_of_shm(self):
        """A process of another user that finds an endpoint of shm gets no link: no answer, and the socket is closed."""
        if not (OPTIONS.lib / "weft" / "shm.so").exists():
            self.skipTest("shm is not built")
        pingpong = (OPTIONS.bin / "fi_pingpong", "-p", "shm", "-e", "rdm", "-I", "999999999")  # until they are killed
        server = self.start(*pingpong, FI_PROVIDER="shm")
        self.addCleanup(lambda: (server.kill(), server.communicate()))

        def names():
            with open("/proc/net/unix", encoding="utf-8") as sockets:
                return [line.split()[-1] for line in sockets if "@weft-shm/" in line and f":{OWNER}:" in line]
        clients = []
        self.addCleanup(lambda: [(client.kill(), client.communicate()) for client in clients])

        def has_two():  # the server opens its endpoint when the client has come, which ends where the server is not ready
            if not clients or clients[-1].poll() is not None:
                clients.append(self.start(*pingpong, "127.0.0.1", FI_PROVIDER="shm"))
            return len(names()) == 2
        self.wait_for(has_two, "no endpoints")
        name = names()[0]
        for user, is_answered in ((OWNER, True), (OTHER, False)):
            self.assertEqual(self.ask_for_link(user, name), is_answered, f"user {user}")
        self.assertIsNone(server.poll(), "it goes on")

    @staticmethod
    def ask_for_link(user, name):
        """Whether an endpoint of shm answers a process of this user (plugins/shm/wire/hello.h)."""
        lines, payload = 512, 128 << 10
        page = os.sysconf("SC_PAGESIZE")
        memory = os.memfd_create("test", os.MFD_ALLOW_SEALING)
        os.ftruncate(memory, -(-2 * (64 + lines * 64 + payload) // page) * page)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        hello = struct.pack("<8sIIQQII48s", b"weftshmh", 1, 0, 0, 0, lines, payload, b"asker")
        child = os.fork()
        if child == 0:
            status = 2
            try:
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asker:
                    asker.settimeout(LIMIT)
                    asker.connect(name.replace("@", "\0", 1))
                    try:
                        socket.send_fds(asker, [hello], [memory])
                        status = 0 if asker.recv(128).startswith(b"weftshma") else 1
                    except (BrokenPipeError, ConnectionResetError):
                        status = 1
            finally:
                os._exit(status)
        os.close(memory)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status not in (0, 1):
            raise AssertionError(f"the child of user {user} could not ask")
        return status == 0


def main():
    global OPTIONS
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, type=pathlib.Path)
    parser.add_argument("--lib", required=True, type=pathlib.Path)
    OPTIONS, rest = parser.parse_known_args()
    OPTIONS.bin, OPTIONS.lib = OPTIONS.bin.resolve(), OPTIONS.lib.resolve()
    if os.geteuid() != 0:
        print("skipped: becoming two users takes root")
        sys.exit(77)
    try:
        subprocess.run([str(OPTIONS.bin / "weft"), "--version"], user=OWNER, group=OWNER, extra_groups=[], check=True,
                       env={**os.environ, "LD_LIBRARY_PATH": str(OPTIONS.lib)}, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"skipped: another user cannot run {OPTIONS.bin}/weft: {error}")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)


if __name__ == "__main__":
    main()
