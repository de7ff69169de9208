"""Tagged datagrams in all directions while clients join, leave and come back: each that arrives is judged.

TURN_E2E_DATAGRAMS=N   how many (default 100000; the full count is 1000000)
"""
import json
import os

import pytest

import netns
from addressing import crowd as crowds
from addressing.fixtures import case  # noqa: F401
from processes import server_binary

DATAGRAMS = int(os.environ.get("TURN_E2E_DATAGRAMS", "100000"))
SECONDS = 60 + DATAGRAMS // 10000


def load_binary():
    path = os.environ.get("RELAY_CHURN") or os.path.join(os.path.dirname(server_binary()), "relay_churn")
    assert os.access(path, os.X_OK), "%s is missing: build it (TURN_TESTS), or set RELAY_CHURN" % path
    return path


def count(n):
    return "{:,}".format(n)


@pytest.fixture
def churn(net, spawn):
    """churn(case, seed) gives what relay_churn found out."""
    program = load_binary()  # before the server is wrapped

    def run(case, seed):
        options = ["--server", netns.SERVER_IP + ":3478", "--client-ip", netns.CLIENT_IPS[0],
                   "--client-ns", net.client.path, "--peer-ns", net.peer.path, "--secret", crowds.SECRET,
                   "--datagrams", DATAGRAMS, "--seconds", SECONDS, "--seed", seed]
        for ip in netns.PEER_IPS:
            options += ["--peer-ip", ip]
        if case.own_ports:
            options.append("--own-ports")
        load = spawn(net.client, [program] + options)
        status = load.wait(SECONDS + 60)
        assert status in (0, 1), "ended with %s\n%s" % (status, load.tail())
        return json.loads(load.log().splitlines()[-1]), load
    return run


def test_nothing_reaches_anybody_it_is_not_for(churn, case):
    server = case.start(**crowds.SERVER_OPTIONS)
    found, load = churn(case, seed=int(os.environ.get("TURN_E2E_SEED", "1")))
    what = "%s\n%s\n--- server\n%s" % (json.dumps(found, indent=1), load.tail(), server.tail())
    assert found["violations"] == 0, what
    assert found["failed"] == 0, what
    assert found["datagrams"] >= DATAGRAMS, what
    assert found["reloaded"] > DATAGRAMS // 10000 and found["left"] > DATAGRAMS // 5000, what
    # It was a test only if what was for somebody came.
    for direction in ("up", "down"):
        assert found[direction]["delivered"] >= 0.98 * found[direction]["sent"], what
    if case.own_ports:
        assert found["local"]["delivered"] > 0, what
    arrived = sum(found[kind]["delivered"] for kind in ("up", "down", "stray", "local"))
    case.record("%s datagrams while clients join, leave and reload: delivered to anyone they are not for"
                % count(DATAGRAMS), "%d of %s" % (found["violations"], count(arrived)))
