"""Several calls at once between clients of one server, all on one shared port: told apart by their ICE checks."""
import time

import pytest

from turnlib import Message

BINDING, USERNAME = 0x001, 0x0006
CALLS = 5


def check(to_fragment, from_fragment):
    """An ICE connectivity check as RFC 8445 sends it: the receiver's fragment comes first."""
    return Message(BINDING).add(USERNAME, b"%s:%s" % (to_fragment, from_fragment)).encode(fingerprint=True)


def start_calls(make_client):
    calls = []
    for n in range(CALLS):
        a = make_client(n % 2, user="alice", password="wonder").allocate()
        b = make_client((n + 1) % 2, user="alice", password="wonder").allocate()
        a.permit(b.relayed)
        b.permit(a.relayed)
        calls.append((a, b))
    return calls


@pytest.mark.core
@pytest.mark.parametrize("threads", [1, 2])
def test_calls_side_by_side_on_one_shared_port(start_server, make_client, threads):
    start_server("shared", multiplex_peer_ports=1, relay_threads=threads)
    calls = start_calls(make_client)
    for n, (a, b) in enumerate(calls):
        fragment_a, fragment_b = b"fragA%d" % n, b"fragB%d" % n
        for _ in range(2):  # the first check of all finds nobody who could be meant; ICE repeats it
            a.send(b.relayed, check(fragment_b, fragment_a))
            b.send(a.relayed, check(fragment_a, fragment_b))
            time.sleep(0.05)  # as ICE does: the two checks go through different threads, in no order
        assert a.receive() is not None and b.receive() is not None, "call %d: no check came through" % n
    for n, (a, b) in enumerate(calls):
        while a.receive(0.1) is not None or b.receive(0.1) is not None:
            pass
    for n, (a, b) in enumerate(calls):
        a.send(b.relayed, b"a%d" % n)
        b.send(a.relayed, b"b%d" % n)
    for n, (a, b) in enumerate(calls):
        assert a.receive() == (b"b%d" % n, b.relayed)
        assert b.receive() == (b"a%d" % n, a.relayed)
    for a, b in calls:
        assert a.receive(0.05) is None and b.receive(0.05) is None


def test_without_checks_nothing_is_guessed(start_server, make_client):
    """Plain data between clients that nothing tells apart reaches nobody rather than the wrong one."""
    start_server("shared", multiplex_peer_ports=1, relay_threads=1)
    calls = start_calls(make_client)
    for a, b in calls:
        a.send(b.relayed, b"for b alone")
    for a, b in calls:
        assert a.receive(0.1) is None and b.receive(0.1) is None
