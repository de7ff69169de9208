"""The process: start, refusal to start, statistics lines, end."""
import re
import signal
import time

import pytest

import netns

ADDRESS_IN_USE = r"(?i)(in use|taken)"


@pytest.mark.core
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_it_with_allocations_alive(start_server, mode, make_client, make_peer, number):
    server = start_server(mode)
    peer = make_peer()
    clients = [make_client(i).allocate() for i in range(8)]
    for client in clients:
        client.bind_channel(0x4000, peer.address)
    server.signal(number)
    assert server.wait(8) == 0, server.tail()
    for client in clients:
        client.key = None  # nobody is there to hear a Refresh
    again = start_server(mode)
    assert again.is_alive()


@pytest.mark.core
def test_a_second_one_on_the_same_ports_does_not_start(start_server, mode, make_client):
    first = start_server(mode)
    second = start_server(mode, ready=False)
    status = second.wait(10)
    assert status not in (None, 0), second.tail()
    line = next((l for l in second.log().splitlines() if re.search(ADDRESS_IN_USE, l)), "")
    assert re.search(r"(%s|%s).*\b3478\b" % (re.escape(netns.SERVER_IP), re.escape(netns.SERVER_IP6)), line) or \
        re.search(r"(%s|%s).*\b348\d\b" % (re.escape(netns.RELAY_IP), re.escape(netns.RELAY_IP6)), line), second.tail()
    assert first.is_alive() and make_client().binding()


def test_a_taken_shared_relay_port_is_named(net, start_server, make_client, cleanup):
    import turnlib
    cleanup.append(turnlib.open_udp(net.server, netns.RELAY_IP, 3480))
    server = start_server("shared", ready=False)
    assert server.wait(10) not in (None, 0), server.tail()
    assert re.search(r"%s.{0,3}3480" % re.escape(netns.RELAY_IP), server.log()), server.tail()


@pytest.mark.core
def test_no_credentials_and_no_word_about_it_does_not_start(start_server, mode):
    server = start_server(mode, ready=False, user=None, lt_cred_mech=None)
    assert server.wait(10) not in (None, 0), server.tail()
    assert "no-auth" in server.log() and re.search(r"\buser\b", server.log()), server.tail()


def test_no_auth_is_an_explicit_choice(start_server, make_client):
    start_server("dedicated", user=None, lt_cred_mech=None, no_auth=True)
    client = make_client()
    client.allocate()
    assert client.key is None and client.relayed


RECV_FIELDS = ["calls", "packets", "avg_batch", "wouldblock", "unavailable", "no_buffer",
               "hist_1", "hist_2", "hist_3_4", "hist_5_8", "hist_9_16"]
SEND_FIELDS = ["flushes", "datagrams", "avg_batch", "gso_flushes", "gso_datagrams", "gso_frac",
               "hist_1", "hist_2", "hist_3_4", "hist_5_8", "hist_9_16", "hist_17_32"]


def statistics(log, kind):
    """One dictionary a line, in the order of the fields."""
    found = re.findall(r"udp-%smmsg stats: (.*)" % kind, log)
    return [dict(re.findall(r"(\S+?)=(\S+)", line)) for line in found]


def in_order(fields, line):
    names = [name for name in line if name in fields]
    return names == fields


@pytest.mark.core
@pytest.mark.linux
def test_statistics_lines_tell_the_occupancy_of_each_thread(start_server, mode, make_client, make_peer):
    server = start_server(mode, udp_recvmmsg_log=True, udp_sendmmsg_log=True, relay_threads=1)
    client, peer = make_client().allocate(), make_peer()
    client.bind_channel(0x4000, peer.address)
    with server.held():
        for _ in range(40):
            client.send_channel(0x4000, b"x" * 500)
    assert len(peer.receive_many(40)) == 40
    assert server.wait_log(r"udp-sendmmsg stats: ", 25), server.tail()
    assert server.wait_log(r"udp-recvmmsg stats: ", 5), server.tail()
    received, sent = statistics(server.log(), "recv"), statistics(server.log(), "send")
    assert all(in_order(RECV_FIELDS, line) for line in received), received
    assert all(in_order(SEND_FIELDS, line) for line in sent), sent
    assert all("thread" in line for line in received + sent)
    assert sum(int(line["packets"]) for line in received) >= 40
    assert sum(int(line["datagrams"]) for line in sent) >= 40
    # The forty were waiting together: they were drained together and left as few messages.
    assert any(int(v) for line in received for k, v in line.items() if re.match(r"hist_(17|33)_", k)), received
    assert sum(int(line["gso_datagrams"]) for line in sent) >= 30, sent


@pytest.mark.linux
def test_no_statistics_lines_unless_asked_for(start_server, mode, make_client):
    server = start_server(mode)
    make_client().allocate()
    time.sleep(11)
    assert "mmsg stats:" not in server.log()


def test_the_choice_of_relayed_addresses_is_one_line_at_the_start(turnserver, mode):
    lines = [l for l in turnserver.log().splitlines() if "relay-addressing" in l]
    assert len(lines) == 1 and mode in lines[0], turnserver.tail()
