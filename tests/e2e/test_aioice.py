"""aioice, the ICE stack of Python's WebRTC library, with nothing but relayed candidates."""
import asyncio

import pytest

import netns
import turnlib

aioice = pytest.importorskip("aioice", reason="python3-aioice is installed by scripts/install-packages --tests")

N_MESSAGES = 200


async def relay_connection(controlling, user, password):
    connection = aioice.Connection(ice_controlling=controlling, turn_server=(netns.SERVER_IP, 3478),
                                   turn_username=user, turn_password=password, use_ipv6=False,
                                   transport_policy=aioice.TransportPolicy.RELAY)
    await connection.gather_candidates()
    return connection


async def introduce(one, other):
    for candidate in one.local_candidates:
        await other.add_remote_candidate(candidate)
    await other.add_remote_candidate(None)
    other.remote_username, other.remote_password = one.local_username, one.local_password


async def exchange(source, sink, label):
    for i in range(N_MESSAGES):
        await source.send(b"%s %d" % (label, i))
        assert await asyncio.wait_for(sink.recv(), 5) == b"%s %d" % (label, i)


async def relayed_call():
    a = await relay_connection(True, "alice", "wonder")
    b = await relay_connection(False, "bob", "builder")
    try:
        for end in (a, b):
            assert [c.type for c in end.local_candidates] == ["relay"]
        await introduce(a, b)
        await introduce(b, a)
        await asyncio.wait_for(asyncio.gather(a.connect(), b.connect()), 20)
        await exchange(a, b, b"there")
        await exchange(b, a, b"and back")
    finally:
        await a.close()
        await b.close()


@pytest.mark.core
def test_relay_only_connection_carries_data_both_ways(net, turnserver):
    with net.client:
        asyncio.run(asyncio.wait_for(relayed_call(), 60))


class Sink(asyncio.DatagramProtocol):
    def __init__(self):
        self.queue = asyncio.Queue()

    def datagram_received(self, data, address):
        self.queue.put_nowait((data, address))


async def talk_to_peer(peer):
    transport, sink = await aioice.turn.create_turn_endpoint(Sink, server_addr=(netns.SERVER_IP, 3478),
                                                             username="alice", password="wonder")
    try:
        relayed = transport.get_extra_info("sockname")
        for i in range(20):
            transport.sendto(b"up %d" % i, peer.address)
            data, source = await asyncio.get_running_loop().run_in_executor(None, peer.receive)
            assert (data, source) == (b"up %d" % i, relayed)
            peer.send(b"down %d" % i, relayed)
            assert await asyncio.wait_for(sink.queue.get(), 5) == (b"down %d" % i, peer.address)
    finally:
        transport.close()
        await asyncio.sleep(0.2)


def test_turn_endpoint_talks_to_a_plain_peer(net, turnserver, make_peer):
    peer = make_peer()
    with net.client:
        asyncio.run(asyncio.wait_for(talk_to_peer(peer), 60))
