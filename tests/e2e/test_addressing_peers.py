"""Peers nobody named, clients that come back, and claims nobody uses, in every way to give out relayed addresses."""
import socket

import pytest

import netns
from addressing import crowd as crowds
from addressing import modes
from addressing.fixtures import case, sfu  # noqa: F401
from turnlib import BINDING, DATA, SUCCESS, XOR_PEER_ADDRESS, Message, decode

CHANNEL = 0x4000
BOB = dict(user="bob", password="builder")


def both_ways(client, channel, peer, label):
    client.send_channel(channel, label + b" up")
    assert peer.receive() == (label + b" up", client.relayed)
    peer.send(label + b" down", client.relayed)
    assert client.receive() == (label + b" down", peer.address)


def receive_indication(client, data, peer):
    """The next datagram is a Data indication, not ChannelData, with this peer."""
    raw = client.receive_raw()
    assert raw is not None, "nothing came"
    message = decode(raw)
    assert message is not None and message.method == DATA, raw
    assert message.get_address(XOR_PEER_ADDRESS) == peer.address
    assert client.relayed_data(raw)[0] == data


def until_same_address(make_client, first, **who):
    """Another client with the relayed address of the first. The others stay: a new one gets the emptiest pair."""
    for i in range(400):
        other = make_client(i % 8, **who).allocate()
        if other.relayed == first.relayed:
            return other
    raise AssertionError("400 allocations and not one more on %s:%d" % first.relayed)


@pytest.mark.parametrize("named_by", ["permission", "channel", "data"])
def test_a_peer_answers_from_a_port_the_client_never_named(case, make_client, make_peer, named_by):
    case.start()
    client, named, unnamed = make_client().allocate(), make_peer(0), make_peer(0)
    client.permit(named.address)
    if named_by == "channel":
        client.bind_channel(CHANNEL, named.address)
        both_ways(client, CHANNEL, named, b"named")
    if named_by == "data":
        client.send(named.address, b"to the named port")
        assert named.receive() == (b"to the named port", client.relayed)
    for i in range(5):
        unnamed.send(b"unnamed %d" % i, client.relayed)
        receive_indication(client, b"unnamed %d" % i, unnamed)
    client.send(unnamed.address, b"found you")
    assert unnamed.receive() == (b"found you", client.relayed)
    case.record("a peer answers from a port never named", "Data indication")


def test_a_port_two_clients_may_mean_reaches_one_or_nobody(case, make_client, make_peer):
    """Both permit the peer's IP. With an address each, that says it; on one shared address only ICE can."""
    case.start()
    first = make_client(0).allocate()
    second = make_client(1, **BOB).allocate() if case.own_ports else until_same_address(make_client, first, **BOB)
    clients = [first, second]
    named, unnamed = make_peer(0), make_peer(0)
    for client in clients:
        client.permit(named.address)
    unnamed.send(b"whose is this?", first.relayed)
    if case.own_ports:
        receive_indication(first, b"whose is this?", unnamed)
    assert [client.receive(0.3) for client in clients] == [None, None]
    # Each has told the peer its fragments, so the peer's check names the client.
    for n, client in enumerate(clients):
        client.send(named.address, crowds.check(b"theirs%d" % n, b"mine%d" % n))
        assert named.receive() is not None
    for n, client in enumerate(clients):
        unnamed = make_peer(0)
        request = crowds.check(b"mine%d" % n, b"theirs%d" % n)
        unnamed.send(request, client.relayed)
        receive_indication(client, request, unnamed)
        client.send(unnamed.address, Message(BINDING, SUCCESS, decode(request).transaction).encode())
        assert unnamed.receive() is not None
        unnamed.send(b"data after the check", client.relayed)
        receive_indication(client, b"data after the check", unnamed)
    assert [client.receive(0.2) for client in clients] == [None, None]
    case.record("the same, two clients permit the peer: plain data", "right" if case.own_ports else "nobody")
    case.record("the same, two clients permit the peer: after its ICE check", "right")


def test_a_stranger_is_never_heard(case, make_client, make_peer):
    case.start()
    first, stranger = make_client(0).allocate(), make_peer(1)
    second = make_client(1, **BOB).allocate()
    first.permit(make_peer(0).address)
    second.bind_channel(CHANNEL, make_peer(2).address)
    for client in (first, second):
        stranger.send(b"plain", client.relayed)
        stranger.send(crowds.check(b"a", b"b"), client.relayed)
        stranger.send(b"\x40\x00\x00\x01x", client.relayed)
    assert first.receive_raw(0.3) is None and second.receive_raw(0.3) is None


@pytest.mark.parametrize("old_is", ["silent", "talking"])
def test_a_reload_works_at_once(case, make_client, sfu, old_is):
    """The same user comes again from a new port while the old allocation lives. Every pair of ports is tried."""
    case.start()
    old = [make_client(i).allocate() for i in range(8)]
    for n, client in enumerate(old):
        client.bind_channel(CHANNEL, sfu.address)
        if old_is == "talking":
            both_ways(client, CHANNEL, sfu, b"old %d" % n)
    met = 0
    for n in range(16):
        new = make_client(n % 8).allocate()
        met += any(new.relayed == client.relayed for client in old)
        new.bind_channel(CHANNEL, sfu.address)
        both_ways(new, CHANNEL, sfu, b"new %d" % n)
        sfu.send(b"only for new %d" % n, new.relayed)
        assert new.receive() == (b"only for new %d" % n, sfu.address)
        assert all(client.receive(0) is None for client in old)
        old.append(new)
    assert met == 0 if case.own_ports else met >= 8
    case.record("the same user again from a new port", "works at once")


def test_the_end_of_the_old_allocation_takes_nothing_from_the_new(case, make_client, sfu):
    case.start()
    old = make_client(0).allocate()
    old.bind_channel(CHANNEL, sfu.address)
    both_ways(old, CHANNEL, sfu, b"old")
    new = make_client(1).allocate() if case.own_ports else until_same_address(make_client, old)
    new.bind_channel(CHANNEL, sfu.address)
    both_ways(new, CHANNEL, sfu, b"new")
    old.refresh(0)
    both_ways(new, CHANNEL, sfu, b"still new")


def test_nobody_keeps_a_port_by_naming_it(case, make_client, sfu):
    """A user binds a channel to a popular port at every address and never sends: others are served all the same."""
    case.start()
    for i in range(64):
        make_client(i % 8).allocate().bind_channel(CHANNEL, sfu.address)
    for n in range(16):
        victim = make_client(n % 8, **BOB).allocate()
        victim.bind_channel(CHANNEL, sfu.address)
        both_ways(victim, CHANNEL, sfu, b"victim %d" % n)
        victim.close()
    case.record("another user holds the port at every address but sends nothing", "served at once")


def test_a_live_claim_is_not_taken_by_another_user(case, make_client, sfu):
    case.start()
    holder = make_client(0).allocate()
    holder.bind_channel(CHANNEL, sfu.address)
    both_ways(holder, CHANNEL, sfu, b"holder")
    other = make_client(1, **BOB).allocate() if case.own_ports else until_same_address(make_client, holder, **BOB)
    other.bind_channel(CHANNEL, sfu.address)
    other.send_channel(CHANNEL, b"other")
    assert sfu.receive() == (b"other", other.relayed)
    for i in range(5):
        both_ways(holder, CHANNEL, sfu, b"holder again %d" % i)
    assert other.receive(0.2) is None
    sfu.send(b"for the other", other.relayed)
    served = other if case.own_ports else holder
    assert served.receive() == (b"for the other", sfu.address)


def test_ipv6_has_the_same_rules(case, make_client, make_peer):
    case.start()
    clients = [make_client(i, v6=True).allocate(family=6) for i in range(4)]
    for n, client in enumerate(clients):
        named, unnamed = make_peer(n, v6=True), make_peer(n, v6=True)
        client.bind_channel(CHANNEL, named.address)
        both_ways(client, CHANNEL, named, b"named %d" % n)
        unnamed.send(b"unnamed %d" % n, client.relayed)
        receive_indication(client, b"unnamed %d" % n, unnamed)


@pytest.mark.parametrize("across", [False, True], ids=["one-thread", "two-threads"])
def test_an_icmp_error_reaches_the_client_it_belongs_to(case, make_client, make_peer, across):
    case.start(relay_threads=modes.THREADS if across else 1)
    clients = [make_client(i, **(BOB if i % 2 else {})).allocate() for i in range(8)]
    dead = []
    for i in range(8):
        peer = make_peer(i)
        dead.append(peer.address)
        peer.close()
    for client, address in zip(clients, dead):
        client.permit(address)
    for n, client in enumerate(clients):
        client.send(dead[n], b"anybody?")
        assert client.receive_icmp() == (3, 3, dead[n])  # destination unreachable, port unreachable
    assert all(client.receive_raw(0.05) is None for client in clients)
    case.record("ICMP port unreachable", "reaches its client")


def test_the_port_of_another_program_is_never_given_out(case, net, make_client, cleanup):
    """Ports of the range that others on the host have bound stay theirs: what comes for them goes to them."""
    if not case.own_ports:
        pytest.skip("shared addresses do not come out of a range")
    taken = [crowds.Peer(net.server, netns.RELAY_IP, port) for port in range(50000, 50040, 2)]
    cleanup.extend(taken)
    server = case.start(min_port=50000, max_port=50039)
    assert server.is_alive()
    ports = []
    for i in range(20):
        client = make_client(i % 8).allocate()
        ports.append(client.relayed[1])
    assert sorted(ports) == list(range(50001, 50040, 2))
    with net.peer:
        probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with probe:
        for peer in taken:
            probe.sendto(b"not yours", peer.address)
            assert peer.receive()[0] == b"not yours"
