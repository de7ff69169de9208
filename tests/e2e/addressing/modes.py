"""The four ways to give out relayed addresses that the tests compare, and the server in each of them.

TURN_E2E_REQUIRE_STEERED=1   a server that can't do `steered` here fails the tests instead of skipping them
"""
import os
import shlex

import pytest

import processes

THREADS = 2


class Mode:
    def __init__(self, name, base, own_ports, pairs=0, **options):
        self.name, self.base, self.own_ports, self.pairs, self.options = name, base, own_ports, pairs, options

    def __repr__(self):
        return self.name


MODES = [
    Mode("steered", "dedicated", True, relay_addressing="steered"),
    Mode("dedicated", "dedicated", True),
    Mode("shared-1", "shared", False, pairs=1, multiplex_peer_ports=1),
    Mode("shared-8", "shared", False, pairs=8, multiplex_peer_ports=8),
]
NO_CAPABILITIES = "no-capabilities"


def columns():
    """(mode, privileges) of every run of a case: steering needs capabilities, nothing else does."""
    runs = [(mode, "root") for mode in MODES]
    return runs + [(mode, NO_CAPABILITIES) for mode in MODES if mode.name != "steered"]


def column_name(mode, privileges):
    return mode.name if privileges == "root" else "%s, %s" % (mode.name, privileges.replace("-", " "))


class Case:
    """One case in one column: starts the server, and keeps what was found out for the table."""

    def __init__(self, mode, privileges, start_server, work_dir, monkeypatch, table):
        self.mode, self.privileges = mode, privileges
        self._start_server, self._table = start_server, table
        if privileges == NO_CAPABILITIES:
            monkeypatch.setenv("TURNSERVER", without_capabilities(work_dir))

    @property
    def own_ports(self):
        return self.mode.own_ports

    def start(self, **options):
        options = dict(dict(relay_threads=THREADS, max_port=53247, **self.mode.options), **options)
        server = self._start_server(self.mode.base, ready=False, **options)
        try:
            server.wait_ready()
        except AssertionError:
            if self.mode.name != "steered" or os.environ.get("TURN_E2E_REQUIRE_STEERED"):
                raise
            line = next((l for l in server.log().splitlines() if "relay-addressing" in l), None)
            if line is None or server.is_alive():
                raise
            pytest.skip(line)
        if self.mode.name == "steered":
            assert "relay-addressing=steered" in server.log(), server.tail()
        if self.privileges == NO_CAPABILITIES:
            assert effective_capabilities(server.pid) == 0
        return server

    def record(self, case, text):
        self._table.add(case, column_name(self.mode, self.privileges), text)


def without_capabilities(work_dir):
    """A script that runs the server with every capability gone for good."""
    path = os.path.join(str(work_dir), "turnserver-without-capabilities")
    with open(path, "w") as f:
        f.write("#!/bin/sh\nexec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs -- %s \"$@\"\n"
                % shlex.quote(processes.server_binary()))
    os.chmod(path, 0o755)
    return path


def effective_capabilities(pid):
    with open("/proc/%d/status" % pid) as f:
        return int(next(line for line in f if line.startswith("CapEff")).split()[1], 16)


def open_descriptors(pid):
    return len(os.listdir("/proc/%d/fd" % pid))
