"""A thousand clients of one server, in every way to give out relayed addresses: at one media server's port,
and calling each other."""
import collections

import pytest

from addressing import crowd as crowds
from addressing import modes
from addressing.fixtures import case, make_crowd, sfu  # noqa: F401
from turnlib import BINDING, SUCCESS, USERNAME, Message, decode

CLIENTS = 1000
PAIRS = 500
CHANNEL = 0x4000


def send_up(crowd, sfu, note):
    """Everyone sends a tag. {relayed address: the clients that have it}, once every tag came from its sender's."""
    owners = collections.defaultdict(list)
    for part in crowds.chunks(crowds.shuffled(crowd.clients, note)):
        for client in part:
            client.send_channel(CHANNEL, b"%d up %d" % (client.index, note))
        waiting = {b"%d up %d" % (client.index, note): client for client in part}
        while waiting:
            got = sfu.receive(5)
            assert got is not None, "%d of a part of %d never reached the peer" % (len(waiting), len(part))
            data, source = got
            client = waiting.pop(data)  # a tag of nobody or a second time is a KeyError
            assert source == client.relayed
            owners[source].append(client)
    return owners


def answer(crowd, sfu, owners, note):
    """The peer answers everyone at the address it saw: [(client that was meant, client that got it, peer)]."""
    found = []
    everyone = [(address, client) for address, clients in owners.items() for client in clients]
    for part in crowds.chunks(crowds.shuffled(everyone, note)):
        for address, client in part:
            sfu.send(b"%d down %d" % (client.index, note), address)
        for receiver, raw in crowd.gather(len(part)):
            data, peer = receiver.relayed_data(raw)
            index, word, number = data.split()
            assert word == b"down" and int(number) == note
            found.append((crowd.clients[int(index)], receiver, peer))
    return found


def check_holders(owners, found):
    """On a shared address all answers reach one client, which asked for them; it is always the same one."""
    receivers = collections.defaultdict(set)
    for meant, receiver, _ in found:
        assert receiver.relayed == meant.relayed, "delivered to another relayed address"
        receivers[meant.relayed].add(receiver)
    assert set(receivers) == set(owners)
    assert all(len(those) == 1 for those in receivers.values()), "the answers of one address were spread"
    return {address: those.pop() for address, those in receivers.items()}


def test_a_thousand_clients_of_one_peer_port(case, make_crowd, sfu):
    server = case.start(**crowds.SERVER_OPTIONS)
    crowd = make_crowd(CLIENTS)
    for client in crowd.clients:
        client.bind_channel(CHANNEL, sfu.address)  # raises when refused
    descriptors = modes.open_descriptors(server.pid)
    served, holders = 0, None
    for note in range(3):
        owners = send_up(crowd, sfu, note)
        found = answer(crowd, sfu, owners, note)
        assert len(found) == CLIENTS, "%d of %d answers came through" % (len(found), CLIENTS)
        assert all(peer == sfu.address for _, _, peer in found)
        served = sum(meant is receiver for meant, receiver, _ in found)
        if case.own_ports:
            assert len(owners) == CLIENTS and served == CLIENTS
        else:
            assert len(owners) == modes.THREADS * case.mode.pairs
            now = check_holders(owners, found)
            assert holders in (None, now), "a holder that sends lost its claim"
            holders = now
    if case.mode.name != "dedicated":
        assert descriptors < 2 * modes.THREADS * max(1, case.mode.pairs) + 40
    case.record("1,000 clients bound to one peer port: hear their own answers, of 1,000", "%d, 0 refused" % served)
    case.record("descriptors of the server meanwhile", "%d" % descriptors)


def exchange_checks(crowd, sfu, part):
    """Each checks the peer; the peer answers and checks back. {client index: what it got}."""
    expected = {}
    for client in part:
        mine, theirs = b"client%d" % client.index, b"media%d" % client.index
        request = crowds.check(theirs, mine)
        back = crowds.check(mine, theirs)
        client.send(sfu.address, request)
        got = sfu.receive(5)
        assert got == (request, client.relayed)
        reply = Message(BINDING, SUCCESS, decode(request).transaction).encode(fingerprint=True)
        expected[client] = [reply, back]
    for client, messages in expected.items():
        for message in messages:
            sfu.send(message, client.relayed)
    found = collections.defaultdict(list)
    for client, raw in crowd.gather(2 * len(part)):
        data, peer = client.relayed_data(raw)
        assert peer == sfu.address
        found[client].append(data)
    return expected, found


def test_the_ice_checks_of_a_thousand_clients_of_one_peer_port(case, make_crowd, sfu):
    """Checks say whose they are: on a shared address each reaches its own client too."""
    case.start(**crowds.SERVER_OPTIONS)
    crowd = make_crowd(CLIENTS)
    for client in crowd.clients:
        client.permit(sfu.address)
    answered = 0
    for part in crowds.chunks(crowds.shuffled(crowd.clients, 1)):
        expected, found = exchange_checks(crowd, sfu, part)
        for client, messages in found.items():
            assert client in expected, "a check reached a client that made none"
            wrong = [decode(m).get(USERNAME) for m in messages if m not in expected[client]]
            assert not wrong, "client %d got %r" % (client.index, wrong)
        answered += sum(sorted(found[client]) == sorted(expected[client]) for client in part)
    assert answered == CLIENTS
    case.record("ICE checks of 1,000 clients with one peer port, both ways: right, of 1,000", "%d" % answered)


# ---- relay to relay

def pair_up(server, crowd, across):
    """PAIRS pairs: of one thread, or of two different ones."""
    threads = crowds.by_thread(server, crowd.clients)
    while across and min(len(threads.get(t, [])) for t in range(modes.THREADS)) < PAIRS:
        assert len(crowd.clients) < 3 * PAIRS, "the clients crowd on one thread"
        crowd.add(50)
        threads = crowds.by_thread(server, crowd.clients)
    if across:
        return list(zip(threads[0], threads[1]))[:PAIRS]
    assert set(threads) == {0}
    return list(zip(crowd.clients[0::2], crowd.clients[1::2]))


def talk(crowd, pairs, note, timeout_s=5.0, n=3):
    """n datagrams each way. {(receiver, sender): [numbers in order]} and the source each was shown with."""
    heard = collections.defaultdict(list)
    for part in crowds.chunks(pairs, 100):
        for i in range(n):
            for a, b in part:
                a.send(b.relayed, b"%d to %d: %d %d" % (a.index, b.index, note, i))
                b.send(a.relayed, b"%d to %d: %d %d" % (b.index, a.index, note, i))
        for receiver, raw in crowd.gather(2 * n * len(part), timeout_s, quiet_s=0.05):
            data, source = receiver.relayed_data(raw)
            if b" to " not in data:
                continue  # a check that was still on its way
            names, numbers = data.split(b": ")
            sender, meant = (crowd.clients[int(x)] for x in names.split(b" to "))
            assert receiver is meant, "%r reached client %d" % (data, receiver.index)
            assert source == sender.relayed
            assert int(numbers.split()[0]) == note
            heard[receiver, sender].append(int(numbers.split()[1]))
    return heard


def complete(pairs, heard, n=3):
    want = list(range(n))
    return sum(heard[a, b] == want and heard[b, a] == want for a, b in pairs)


def permit_pairs(pairs):
    for a, b in pairs:
        a.permit(b.relayed)
        b.permit(a.relayed)


def check_pairs(crowd, pairs):
    """ICE, both ways and twice: the first check of all finds nobody who could be meant."""
    for part in crowds.chunks(pairs, 100):
        for _ in range(2):
            for a, b in part:
                mine, theirs = b"fragment%d" % a.index, b"fragment%d" % b.index
                a.send(b.relayed, crowds.check(theirs, mine))
                b.send(a.relayed, crowds.check(mine, theirs))
            for receiver, raw in crowd.gather(4 * len(part), timeout_s=0.4):
                data, _ = receiver.relayed_data(raw)
                to, _ = decode(data).get(USERNAME).split(b":")
                assert to == b"fragment%d" % receiver.index, "%r reached client %d" % (to, receiver.index)


@pytest.mark.parametrize("across", [False, True], ids=["one-thread", "two-threads"])
def test_five_hundred_pairs_call_each_other(case, make_crowd, across):
    server = case.start(relay_threads=modes.THREADS if across else 1, **crowds.SERVER_OPTIONS)
    crowd = make_crowd(2 * PAIRS)
    pairs = pair_up(server, crowd, across)
    permit_pairs(pairs)
    what = "500 calls between clients on %s: data arrives, of 500, " % ("two threads" if across else "one thread")
    served = complete(pairs, talk(crowd, pairs, 1, timeout_s=5.0 if case.own_ports else 0.5))
    if case.own_ports:
        assert served == PAIRS
    case.record(what + "without ICE", "%d" % served)
    check_pairs(crowd, pairs)
    served = complete(pairs, talk(crowd, pairs, 2))
    assert served == PAIRS
    case.record(what + "after ICE checks", "%d" % served)
