"""Debian's coturn client programs against our server, in the forms people use.

Two habits of that uclient (4.6.1) decide about the server's options: it binds channels from the whole range of
RFC 5766, and it asks for an even port now and then even with -c, which shared ports serve only when told to.
All its clients are one user and have one peer, so each needs a relayed address that no other of them has.
"""
import re

import pytest

import netns
from conftest import need

SECRET = "a-shared-secret"
FOR_UCLIENT = {"rfc5766_channel_numbers": True, "multiplex_peer_even_port": "dedicated"}
PEER = ["-e", netns.PEER_IPS[0], "-r", "3480"]

FORMS = {
    "client-to-client": ["-y", "-c"],
    "client-to-client-send": ["-y", "-c", "-s"],
    "peer": PEER + ["-c"],
    "peer-send": PEER + ["-c", "-s"],
    "peer-dont-fragment": PEER + ["-c", "-g"],
    "peer-explicit-v4": PEER + ["-c", "-X"],
    "peer-v6": ["-e", netns.PEER_IP6S[0], "-r", "3480", "-c", "-x"],
    "peer-large": PEER + ["-c", "-l", "1200"],
}


@pytest.fixture
def start_server(start_server):
    def start(mode="dedicated", **options):
        ports = {"multiplex_peer_ports": 64} if mode == "shared" else {}
        return start_server(mode, **dict(FOR_UCLIENT, **ports, **options))
    return start


@pytest.fixture
def turnserver(start_server, mode):
    return start_server(mode)


@pytest.fixture
def echo_peer(net, spawn):
    return spawn(net.peer, [need("turnutils_peer"), "-L", netns.PEER_IPS[0], "-L", netns.PEER_IP6S[0], "-p", "3480"])


def uclient(net, spawn, *arguments, credential=("-u", "alice", "-w", "wonder"), messages=40, clients=4,
            local=netns.CLIENT_IPS[0], to=netns.SERVER_IP, timeout_s=60, name="uclient"):
    argv = [need("turnutils_uclient"), "-L", local, *credential, "-n", messages, "-m", clients, *arguments, to]
    return spawn(net.client, argv, name=name), timeout_s


def totals(started):
    """(sent, received, lost) of a uclient that ended well."""
    client, timeout_s = started
    status = client.wait(timeout_s)
    log = client.log()
    assert status is not None, "uclient is still running after %d s\n%s" % (timeout_s, client.tail())
    assert status == 0, "uclient ended with %d\n%s" % (status, client.tail())
    sums = re.findall(r"start_mclient: tot_send_msgs=(\d+), tot_recv_msgs=(\d+)", log)
    lost = re.search(r"Total lost packets (-?\d+)", log)
    assert sums and lost, client.tail()
    return int(sums[-1][0]), int(sums[-1][1]), int(lost.group(1))


@pytest.mark.core
def test_uclient_forms_side_by_side_lose_nothing(net, turnserver, spawn, echo_peer):
    """Every form at once, each from an address of its own."""
    started = {form: uclient(net, spawn, *arguments, local=local, name=form)
               for (form, arguments), local in zip(FORMS.items(), netns.CLIENT_IPS)}
    assert {form: totals(client) for form, client in started.items()} == {form: (160, 160, 0) for form in FORMS}


@pytest.mark.parametrize("arguments", [["-y"], PEER], ids=["client-to-client", "peer"])
def test_uclient_with_rtcp_pair(net, start_server, spawn, echo_peer, mode, arguments):
    """Without -c uclient asks for EVEN-PORT with the R bit and takes the other port by its token."""
    start_server(mode)
    sent, received, lost = totals(uclient(net, spawn, *arguments))
    assert lost == 0 and sent == received > 0


def test_uclient_with_rtcp_pair_is_refused_where_ports_are_shared(net, start_server, spawn, echo_peer):
    start_server("shared", multiplex_peer_even_port="refuse")
    client, timeout_s = uclient(net, spawn, *PEER, clients=1, messages=5)
    assert client.wait(timeout_s) != 0
    assert "error 508" in client.log(), client.tail()


@pytest.mark.core
def test_uclient_with_rest_secret(net, start_server, spawn, mode):
    start_server(mode, user=None, lt_cred_mech=None, use_auth_secret=True, static_auth_secret=SECRET)
    started = uclient(net, spawn, "-y", "-c", credential=("-u", "carol", "-W", SECRET))
    assert totals(started) == (160, 160, 0)


def test_uclient_with_rest_secret_beside_a_static_user(net, start_server, spawn, mode):
    start_server(mode, use_auth_secret=True, static_auth_secret=SECRET)
    rest = uclient(net, spawn, "-y", "-c", credential=("-u", "carol", "-W", SECRET), clients=2, name="rest")
    static = uclient(net, spawn, "-y", "-c", clients=2, local=netns.CLIENT_IPS[1], name="static")
    assert totals(rest) == (80, 80, 0)
    assert totals(static) == (80, 80, 0)


def test_uclient_with_a_wrong_secret_is_refused(net, start_server, spawn):
    start_server("dedicated", user=None, lt_cred_mech=None, use_auth_secret=True, static_auth_secret=SECRET)
    client, timeout_s = uclient(net, spawn, "-y", "-c", credential=("-u", "carol", "-W", "another"), clients=2)
    assert client.wait(timeout_s) != 0
    assert "Cannot complete Allocation" in client.log(), client.tail()


def test_uclient_over_ipv6(net, turnserver, spawn, echo_peer):
    started = uclient(net, spawn, *FORMS["peer-v6"], local=netns.CLIENT_IP6S[0], to=netns.SERVER_IP6)
    assert totals(started) == (160, 160, 0)


def test_uclient_at_a_moderate_rate(net, turnserver, spawn, echo_peer):
    """Three times 20 clients of 200 messages each, 50 a second: 3,000 datagrams a second each way."""
    started = [uclient(net, spawn, *FORMS[form], messages=200, clients=20, timeout_s=90, local=local, name=form)
               for form, local in zip(["client-to-client", "peer", "peer-send"], netns.CLIENT_IPS)]
    assert [totals(client) for client in started] == [(4000, 4000, 0)] * 3


@pytest.mark.core
@pytest.mark.parametrize("ip,local", [(netns.SERVER_IP, netns.CLIENT_IPS[0]), (netns.SERVER_IP6, netns.CLIENT_IP6S[0])])
def test_stunclient(net, start_server, spawn, ip, local):
    start_server()
    client = spawn(net.client, [need("turnutils_stunclient"), "-L", local, ip])
    assert client.wait(20) == 0
    assert re.search(r"UDP reflexive addr: \[?%s\]?:\d+" % re.escape(local), client.log()), client.tail()


def test_natdiscovery_without_rfc5780(net, start_server, spawn):
    """Only the plain Binding part: the server offers no other address."""
    start_server()
    client = spawn(net.client, [need("turnutils_natdiscovery"), "-m", "-L", netns.CLIENT_IPS[0], netns.SERVER_IP])
    assert client.wait(30) == 0
    assert "UDP reflexive addr: " + netns.CLIENT_IPS[0] in client.log(), client.tail()
