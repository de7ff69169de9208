"""Processes of the tests: each in its namespace, each with a log file, each ended by its own id.

They run under setpriv --pdeathsig, so that they end even if the test runner is killed.
"""
import glob
import os
import re
import signal
import socket
import subprocess
import time
from contextlib import contextmanager

import turnlib

REPOSITORY = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


class Process:
    def __init__(self, space, argv, log_path, cwd=None, env=None):
        self.argv = argv
        self.log_path = str(log_path)
        environment = dict(os.environ, **(env or {}))
        with open(self.log_path, "wb") as out, space:
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "--"] + [str(a) for a in argv],
                                            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                            cwd=cwd, env=environment)

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        with open(self.log_path, "rb") as f:
            return f.read().decode("utf-8", "replace")

    def tail(self, n_lines=25):
        return "\n".join(self.log().splitlines()[-n_lines:])

    def is_alive(self):
        return self.process.poll() is None

    def wait(self, timeout_s):
        """Exit status, or None when it still runs."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def wait_log(self, pattern, timeout_s):
        end = time.monotonic() + timeout_s
        while True:
            found = re.search(pattern, self.log())
            if found or time.monotonic() > end or not self.is_alive():
                return found or re.search(pattern, self.log())
            time.sleep(0.05)

    def signal(self, number):
        self.process.send_signal(number)

    @contextmanager
    def held(self):
        """All threads stand still meanwhile: what is sent to it now is waiting together afterwards."""
        self.signal(signal.SIGSTOP)
        try:
            while self.is_alive() and not all(state == "T" for state in self._thread_states()):
                time.sleep(0.001)
            yield
            time.sleep(0.02)  # what was sent has to cross the wire
        finally:
            self.signal(signal.SIGCONT)

    def _thread_states(self):
        for path in glob.glob("/proc/%d/task/*/stat" % self.pid):
            with open(path) as f:
                yield f.read().rpartition(")")[2].split()[0]

    def stop(self, patience_s=10):
        if self.is_alive():
            self.process.send_signal(signal.SIGTERM)
            if self.wait(patience_s) is None:
                self.process.kill()
                self.process.wait()
        return self.process.returncode


def server_binary():
    path = os.environ.get("TURNSERVER", os.path.join(REPOSITORY, "build", "bin", "turnserver"))
    return os.path.abspath(path)


class TurnServer(Process):
    """options: a list of configuration file lines."""

    def __init__(self, space, options, work_dir, address, port=3478):
        self.address, self.port, self.space = address, port, space
        self.conf = os.path.join(str(work_dir), "turnserver.conf")
        with open(self.conf, "w") as f:
            f.write("\n".join(options) + "\n")
        super().__init__(space, [server_binary(), "-c", self.conf], os.path.join(str(work_dir), "server.log"),
                         cwd=str(work_dir))

    def wait_ready(self, timeout_s=20):
        """Asks from its own namespace until a Binding request is answered."""
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        with self.space:
            probe = socket.socket(family, socket.SOCK_DGRAM)
        end = time.monotonic() + timeout_s
        with probe:
            probe.settimeout(0.1)
            while time.monotonic() < end:
                if not self.is_alive():
                    raise AssertionError("the server ended with status %s:\n%s" % (self.process.returncode,
                                                                                    self.tail()))
                try:
                    probe.sendto(turnlib.Message(turnlib.BINDING).encode(), (self.address, self.port))
                    probe.recv(2048)
                    return self
                except OSError:
                    time.sleep(0.05)
        raise AssertionError("no answer from the server in %d s:\n%s" % (timeout_s, self.tail()))

    def sanitizer_report(self):
        found = re.search(r"(ERROR: \w*Sanitizer|WARNING: ThreadSanitizer|runtime error:)[\s\S]{0,3000}", self.log())
        return found.group(0) if found else None
