"""Who gets what from which peer: takeover, conference servers, peers behind NAT, relay to relay."""
import itertools

import pytest

import netns

ONE_PORT = dict(multiplex_peer_ports=1, relay_threads=1)


def both_ways(client, channel, peer, label):
    """One datagram up and one down."""
    client.send_channel(channel, label + b" up")
    got = peer.receive()
    assert got is not None, "%r: nothing reached the peer" % label
    data, source = got
    assert data == label + b" up" and source == client.relayed
    peer.send(label + b" down", source)
    assert client.receive() == (label + b" down", peer.address)


@pytest.mark.core
def test_channel_and_indications_both_ways(turnserver, make_client, make_peer):
    client, peer, other = make_client().allocate(), make_peer(0), make_peer(1)
    client.bind_channel(0x4000, peer.address)
    client.permit(other.address)
    both_ways(client, 0x4000, peer, b"channel")
    client.send(other.address, b"indication")
    assert other.receive() == (b"indication", client.relayed)
    other.send(b"back", client.relayed)
    assert client.receive() == (b"back", other.address)


@pytest.mark.core
def test_ipv6_both_ways(turnserver, make_client, make_peer):
    client, peer = make_client(v6=True).allocate(family=6), make_peer(v6=True)
    client.bind_channel(0x4000, peer.address)
    both_ways(client, 0x4000, peer, b"six")


def test_a_stranger_reaches_nobody(turnserver, make_client, make_peer):
    client, peer, stranger = make_client().allocate(), make_peer(0), make_peer(1)
    client.permit(peer.address)
    stranger.send(b"stranger", client.relayed)
    peer.send(b"peer", client.relayed)
    assert client.receive() == (b"peer", peer.address)
    assert client.receive(0.3) is None


@pytest.mark.core
@pytest.mark.parametrize("options", [ONE_PORT, {}], ids=["one-shared-port", "several"])
def test_a_reconnect_of_the_same_user_takes_over_at_once(start_server, make_client, make_peer, mode, options):
    """A phone changes networks: the old 5-tuple is dead, and its allocation lives on for minutes."""
    start_server(mode, **options)
    peer = make_peer()
    before = make_client(0).allocate()
    before.bind_channel(0x4000, peer.address)
    both_ways(before, 0x4000, peer, b"before")
    after = make_client(1).allocate()
    after.bind_channel(0x4000, peer.address)
    both_ways(after, 0x4000, peer, b"after")
    peer.send(b"only for the new one", after.relayed)
    assert after.receive() == (b"only for the new one", peer.address)
    assert before.receive(0.3) is None


@pytest.mark.core
def test_two_users_share_one_conference_server(turnserver, make_client, make_peer):
    sfu = make_peer()
    users = [make_client(0).allocate(), make_client(1, user="bob", password="builder").allocate()]
    assert users[0].relayed != users[1].relayed
    for user in users:
        user.bind_channel(0x4000, sfu.address)
    for i in range(20):
        for n, user in enumerate(users):
            both_ways(user, 0x4000, sfu, b"user %d, %d" % (n, i))


def test_the_second_user_of_an_endpoint_is_not_refused(start_server, make_client, make_peer):
    """With a single shared port both have one relayed address. The request succeeds and the uplink flows."""
    start_server("shared", **ONE_PORT)
    sfu = make_peer()
    first = make_client(0).allocate()
    second = make_client(1, user="bob", password="builder").allocate()
    assert first.relayed == second.relayed
    first.bind_channel(0x4000, sfu.address)
    both_ways(first, 0x4000, sfu, b"first")
    second.bind_channel(0x4000, sfu.address)
    second.send_channel(0x4000, b"second")
    assert sfu.receive() == (b"second", second.relayed)
    both_ways(first, 0x4000, sfu, b"first again")
    assert second.receive(0.3) is None


@pytest.mark.core
def test_a_peer_behind_a_symmetric_nat_is_heard(turnserver, make_client, make_peer):
    """It answers from a port that the client never named."""
    client, named, unnamed = make_client().allocate(), make_peer(0), make_peer(0)
    client.permit(named.address)
    unnamed.send(b"from another port", client.relayed)
    assert client.receive() == (b"from another port", unnamed.address)
    client.bind_channel(0x4000, unnamed.address)
    both_ways(client, 0x4000, unnamed, b"learnt")


def talk_relay_to_relay(one, other, number):
    one.bind_channel(number, other.relayed)
    other.bind_channel(number, one.relayed)
    for i in range(10):
        one.send_channel(number, b"there %d" % i)
        assert other.receive() == (b"there %d" % i, one.relayed)
        other.send_channel(number, b"back %d" % i)
        assert one.receive() == (b"back %d" % i, other.relayed)


@pytest.mark.core
def test_relay_to_relay_across_threads_on_own_ports(start_server, make_client):
    """Eight clients over two threads, each with its neighbour: some pair crosses."""
    start_server("dedicated", relay_threads=2)
    clients = [make_client(i).allocate() for i in range(8)]
    for n, (one, other) in enumerate(itertools.pairwise(clients)):
        talk_relay_to_relay(one, other, 0x4000 + n)


@pytest.mark.core
@pytest.mark.parametrize("same_thread", [False, True], ids=["across-threads", "same-thread"])
def test_relay_to_relay_on_shared_ports(start_server, make_client, same_thread):
    start_server("shared", relay_threads=2, multiplex_peer_ports=1)
    first = make_client(0).allocate()
    for i in range(40):
        second = make_client(i % 8, user="bob", password="builder").allocate()
        if (second.relayed == first.relayed) == same_thread:
            break
        second.close()
    assert (second.relayed == first.relayed) == same_thread
    talk_relay_to_relay(first, second, 0x4000)


def test_relay_to_relay_needs_the_receivers_permission(turnserver, make_client):
    one = make_client(0).allocate()
    other = make_client(1, user="bob", password="builder").allocate()
    one.bind_channel(0x4000, other.relayed)
    one.send_channel(0x4000, b"unwanted")
    assert other.receive(0.5) is None


@pytest.mark.core
def test_deleting_an_allocation_ends_it_at_once(turnserver, make_client, make_peer):
    client, peer = make_client().allocate(), make_peer()
    client.bind_channel(0x4000, peer.address)
    both_ways(client, 0x4000, peer, b"alive")
    client.refresh(0)
    peer.send(b"too late", client.relayed)
    client.send_channel(0x4000, b"too late")
    assert client.receive(0.3) is None
    assert peer.receive(0.3) is None


def test_external_ip_is_what_clients_are_told(start_server, make_client, make_peer, mode):
    public = "192.0.2.33"
    start_server(mode, relay_ip=netns.RELAY_IP, external_ip="%s/%s" % (public, netns.RELAY_IP))
    one, peer = make_client(0).allocate(), make_peer()
    other = make_client(1, user="bob", password="builder").allocate()
    assert one.relayed[0] == public and other.relayed[0] == public
    one.bind_channel(0x4000, peer.address)
    one.send_channel(0x4000, b"out")
    assert peer.receive() == (b"out", (netns.RELAY_IP, one.relayed[1]))
    talk_relay_to_relay(one, other, 0x4001)
