"""What the network does to a relay: several addresses, dead and forbidden peers, small MTUs, TTL and TOS."""
import os
import socket
import threading
import time

import pytest

import netns
import turnlib

UDP_SEGMENT = 103
IP_RECVTTL, IP_RECVTOS = 12, 13
IPV6_RECVTCLASS, IPV6_TCLASS = 66, 67


def payloads(n, n_bytes):
    """Payloads that differ in every byte position."""
    return [bytes([i]) + os.urandom(n_bytes - 1) for i in range(n)]


# ---- addresses

@pytest.mark.core
@pytest.mark.parametrize("listening_ip", [pytest.param(["0.0.0.0", "::"], marks=pytest.mark.linux, id="wildcard"),
                                          pytest.param(None, id="no-option")])
def test_the_answer_comes_from_the_address_asked(start_server, make_client, mode, listening_ip):
    """turnlib.Client takes nothing from another address than the one it asked. (The portable UDP back end has no
    packet info: with it a wildcard socket answers from whatever address the kernel chooses.)"""
    start_server(mode, listening_ip=listening_ip)
    for ip in (netns.SERVER_IP, netns.SERVER_IP_B):
        client = make_client(server=(ip, 3478))
        assert client.binding() == client.address
        client.allocate()
        client.refresh()
    client = make_client(v6=True, server=(netns.SERVER_IP6, 3478))
    assert client.binding() == client.address


# ---- peers that cannot be reached

def check_traffic_beside(start_server, mode, make_client, make_peer, bad_peer):
    """alice floods bad_peer in bursts while bob talks to a live one, in the same batches; bob loses nothing."""
    server = start_server(mode, relay_threads=1)
    alice = make_client(0).allocate()
    bob, live = make_client(1, user="bob", password="builder").allocate(), make_peer(0)
    alice.bind_channel(0x4000, bad_peer)
    bob.bind_channel(0x4000, live.address)
    sent = payloads(100, 200)
    for at in range(0, 100, 20):
        with server.held():
            for payload in sent[at:at + 20]:
                alice.send_channel(0x4000, b"lost")
                bob.send_channel(0x4000, payload)
        assert live.receive_many(20) == sent[at:at + 20]
    for payload in sent:
        live.send(payload, bob.relayed)
    assert bob.receive_many(100) == sent
    alice.bind_channel(0x4001, live.address)
    alice.send_channel(0x4001, b"alice lives")
    assert live.receive() == (b"alice lives", alice.relayed)


@pytest.mark.core
def test_a_dead_peer_costs_others_nothing(start_server, mode, make_client, make_peer):
    check_traffic_beside(start_server, mode, make_client, make_peer, (netns.PEER_IPS[1], 9))


def test_an_unroutable_peer_costs_others_nothing(start_server, mode, make_client, make_peer):
    check_traffic_beside(start_server, mode, make_client, make_peer, ("192.0.2.1", 7000))


@pytest.mark.parametrize("verdict", ["drop", "reject"])
def test_a_firewalled_peer_costs_others_nothing(net, start_server, mode, make_client, make_peer, verdict):
    """A local firewall rule makes sendmsg fail with EPERM."""
    net.server.run("nft add table inet e2e",
                   "nft add chain inet e2e out { type filter hook output priority 0 ; }",
                   "nft add rule inet e2e out ip daddr %s %s" % (netns.PEER_IPS[2], verdict))
    try:
        check_traffic_beside(start_server, mode, make_client, make_peer, (netns.PEER_IPS[2], 7000))
    finally:
        net.server.run("nft delete table inet e2e")


@pytest.mark.core
@pytest.mark.linux
def test_icmp_of_a_dead_peer_is_told_to_its_client_only(start_server, mode, make_client, make_peer):
    """RFC 8656, 11.5. Both clients permit the same IP; the dead port is alice's."""
    start_server(mode, relay_threads=1)
    alice = make_client(0).allocate()
    bob, live = make_client(1, user="bob", password="builder").allocate(), make_peer(1)
    dead = (netns.PEER_IPS[1], 9)
    alice.bind_channel(0x4000, dead)
    bob.bind_channel(0x4000, live.address)
    for _ in range(5):
        alice.send_channel(0x4000, b"anyone?")
        told = alice.receive_icmp(0.5)
        if told:
            break
    assert told == (3, 3, dead)
    assert bob.receive_icmp(0.3) is None
    live.send(b"still here", bob.relayed)
    assert bob.receive() == (b"still here", live.address)


# ---- segmentation offload

def burst_both_ways(server, client, channel, peer, n=48, n_bytes=1000):
    """Equal sizes with a shorter last one, held until they make one batch; byte for byte, in order."""
    sent = payloads(n, n_bytes) + [b"tail"]
    with server.held():
        for payload in sent:
            client.send_channel(channel, payload)
    assert peer.receive_many(n + 1) == sent
    with server.held():
        for payload in sent:
            peer.send(payload, client.relayed)
    assert client.receive_many(n + 1) == sent


@pytest.fixture(params=[4, 6], ids=["ipv4", "ipv6"])
def relayed_pair(request, start_server, mode, make_client, make_peer):
    """(server, client, peer) with channel 0x4000 bound."""
    server = start_server(mode, relay_threads=1, udp_sendmmsg_log=True, udp_recvmmsg_log=True)
    v6 = request.param == 6
    client, peer = make_client(v6=v6).allocate(family=request.param), make_peer(v6=v6)
    client.bind_channel(0x4000, peer.address)
    return server, client, peer


@pytest.mark.core
@pytest.mark.parametrize("n_bytes", [1, 160, 1000, 1400])
def test_bursts_arrive_byte_for_byte(relayed_pair, n_bytes):
    server, client, peer = relayed_pair
    burst_both_ways(server, client, 0x4000, peer, n_bytes=n_bytes)


@pytest.mark.parametrize("option", [dict(udp_gso=0), dict(udp_recvmmsg=0), dict(udp_sendmmsg=0)],
                         ids=["no-gso", "no-recvmmsg", "no-sendmmsg"])
def test_bursts_arrive_with_a_mechanism_switched_off(start_server, mode, make_client, make_peer, option):
    server = start_server(mode, relay_threads=1, **option)
    client, peer = make_client().allocate(), make_peer()
    client.bind_channel(0x4000, peer.address)
    burst_both_ways(server, client, 0x4000, peer)


@pytest.mark.core
@pytest.mark.linux
def test_an_interface_without_checksum_offload_loses_nothing(net, relayed_pair):
    """The kernel refuses segmentation there (EIO) on some versions: the run is sent again as singles."""
    server, client, peer = relayed_pair
    devices = ("to-clients", "to-peers")
    net.server.run(*["ethtool -K %s tx off" % device for device in devices])
    try:
        for _ in range(3):
            burst_both_ways(server, client, 0x4000, peer)
    finally:
        net.server.run(*["ethtool -K %s tx on" % device for device in devices])
    burst_both_ways(server, client, 0x4000, peer)


@pytest.mark.linux
def test_an_interface_without_segmentation_offload_loses_nothing(net, relayed_pair):
    """The kernel segments in software."""
    server, client, peer = relayed_pair
    net.server.run("ethtool -K to-peers tx-udp-segmentation off", "ethtool -K to-clients tx-udp-segmentation off")
    try:
        burst_both_ways(server, client, 0x4000, peer)
    finally:
        net.server.run("ethtool -K to-peers tx-udp-segmentation on", "ethtool -K to-clients tx-udp-segmentation on")


@pytest.mark.core
def test_a_route_with_a_small_mtu_loses_nothing(net, start_server, mode, make_client, make_peer):
    """A segment over the route's MTU fails the whole message (EMSGSIZE); as singles the kernel fragments."""
    server = start_server(mode, relay_threads=1)
    client, near, far = make_client().allocate(), make_peer(0), make_peer(1)
    net.server.run("ip route add %s/32 dev to-peers mtu 800" % far.address[0],
                   "ip route add %s/32 dev to-clients mtu 800" % client.address[0])
    try:
        client.bind_channel(0x4000, near.address)
        client.bind_channel(0x4001, far.address)
        burst_both_ways(server, client, 0x4001, far)
        sent = payloads(24, 1000)
        with server.held():
            for payload in sent:
                client.send_channel(0x4000, payload)
                client.send_channel(0x4001, payload)
        assert near.receive_many(24) == sent
        assert far.receive_many(24) == sent
    finally:
        net.server.run("ip route del %s/32 dev to-peers" % far.address[0],
                       "ip route del %s/32 dev to-clients" % client.address[0])


def test_a_small_path_mtu_over_ipv6_loses_nothing(net, start_server, mode, make_client, make_peer):
    server = start_server(mode, relay_threads=1)
    client, peer = make_client(v6=True).allocate(family=6), make_peer(v6=True)
    net.server.run("ip -6 route add %s/128 dev to-peers mtu 1280" % peer.address[0],
                   "ip -6 route add %s/128 dev to-clients mtu 1280" % client.address[0])
    try:
        client.bind_channel(0x4000, peer.address)
        burst_both_ways(server, client, 0x4000, peer, n=24, n_bytes=1300)
    finally:
        net.server.run("ip -6 route del %s/128 dev to-peers" % peer.address[0],
                       "ip -6 route del %s/128 dev to-clients" % client.address[0])


def test_the_largest_datagrams_pass(turnserver, make_client, make_peer):
    client, peer = make_client().allocate(), make_peer()
    client.bind_channel(0x4000, peer.address)
    big = os.urandom(9000)
    client.send_channel(0x4000, big)
    assert peer.receive() == (big, client.relayed)
    peer.send(big, client.relayed)
    assert client.receive() == (big, peer.address)


# ---- header fields

def received_with(s, level, kind, timeout_s=3.0):
    """(data, value of the control message) of the next datagram on a socket."""
    s.settimeout(timeout_s)
    data, control, _, _ = s.recvmsg(65536, 128)
    return data, next(v[0] for l, k, v in control if (l, k) == (level, kind))


def test_what_leaves_has_the_kernels_ttl(turnserver, make_client, make_peer):
    """A relay is no router: neither side's TTL shows on the other."""
    client, peer = make_client().allocate(), make_peer()
    client.bind_channel(0x4000, peer.address)
    for s in (client.socket, peer.socket):
        s.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
        s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 3)
    client.send_channel(0x4000, b"up")
    client.send(peer.address, b"up too")
    for expected in (b"up", b"up too"):
        assert received_with(peer.socket, socket.IPPROTO_IP, socket.IP_TTL) == (expected, 64)
    peer.send(b"down", client.relayed)
    data, ttl = received_with(client.socket, socket.IPPROTO_IP, socket.IP_TTL)
    assert client.relayed_data(data) == (b"down", peer.address) and ttl == 64
    client.socket.sendto(turnlib.Message(turnlib.BINDING).encode(), client.server)
    assert received_with(client.socket, socket.IPPROTO_IP, socket.IP_TTL)[1] == 64


TOS_VALUES = [0x00, 0xB8, 0x88, 0x28, 0xBA, 0x02]


@pytest.mark.core
@pytest.mark.linux
@pytest.mark.parametrize("v6", [False, True], ids=["ipv4", "ipv6"])
def test_tos_is_carried_over_datagram_by_datagram(start_server, mode, make_client, make_peer, v6):
    """DSCP and ECN, mixed inside one batch of one flow."""
    level, receive, value = (socket.IPPROTO_IPV6, IPV6_RECVTCLASS, IPV6_TCLASS) if v6 else \
        (socket.IPPROTO_IP, IP_RECVTOS, socket.IP_TOS)
    server = start_server(mode, relay_threads=1)
    client, peer = make_client(v6=v6).allocate(family=6 if v6 else 4), make_peer(v6=v6)
    client.bind_channel(0x4000, peer.address)
    for s in (client.socket, peer.socket):
        s.setsockopt(level, receive, 1)
    wanted = [tos for tos in TOS_VALUES for _ in range(3)]

    def send_all(s, send):
        with server.held():
            for i, tos in enumerate(wanted):
                s.setsockopt(level, value, tos)
                send(b"%d" % i)

    send_all(client.socket, lambda data: client.send_channel(0x4000, data))
    assert [received_with(peer.socket, level, value) for _ in wanted] == \
        [(b"%d" % i, tos) for i, tos in enumerate(wanted)]
    send_all(peer.socket, lambda data: peer.send(data, client.relayed))
    got = [received_with(client.socket, level, value) for _ in wanted]
    assert [(client.relayed_data(data)[0], tos) for data, tos in got] == \
        [(b"%d" % i, tos) for i, tos in enumerate(wanted)]


# ---- load from strangers

def flood(space, source_ip, to, seconds, per_second):
    """Small datagrams at about the given rate, 60 of them a call."""
    s = turnlib.open_udp(space, source_ip)
    s.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 20)
    burst = os.urandom(20 * 60)
    begin = time.monotonic()
    n_sent = 0
    with s:
        while time.monotonic() - begin < seconds:
            behind = (time.monotonic() - begin) * per_second - n_sent
            for _ in range(int(behind // 60)):
                s.sendto(burst, to)
                n_sent += 60
            time.sleep(0.002)
    return n_sent


@pytest.mark.parametrize("permitted", [False, True], ids=["stranger", "permitted-peer"])
def test_a_flood_on_a_relayed_address_leaves_bindings_answered(net, start_server, mode, make_client, permitted):
    """200,000 datagrams a second for two seconds, on one thread. How fast the answers are is for the benchmarks."""
    start_server(mode, relay_threads=1)
    victim, bystander = make_client(0).allocate(), make_client(1)
    if permitted:
        victim.permit((netns.PEER_IPS[0], 0))
    flooding = threading.Thread(target=flood, args=(net.peer, netns.PEER_IPS[0], victim.relayed, 2.0, 200000))
    flooding.start()
    answered = 0
    while flooding.is_alive():
        assert bystander.binding() == bystander.address
        answered += 1
        time.sleep(0.02)
    flooding.join()
    assert answered >= 3
    assert victim.refresh().kind == turnlib.SUCCESS
