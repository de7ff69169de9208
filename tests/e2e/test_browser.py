"""Headless Chromium: relay-only calls between two RTCPeerConnections with an allocation each."""
import json
import os
import shutil

import pytest

import netns
import turnlib
from conftest import need

HERE = os.path.dirname(os.path.abspath(__file__))
SECRET = "a-shared-secret"
DATA_BYTES = 2 * 1024 * 1024


def ice_servers(user="alice", password="wonder", ip=netns.SERVER_IP):
    host = "[%s]" % ip if ":" in ip else ip
    return [{"urls": ["turn:%s:3478?transport=udp" % host], "username": user, "credential": password}]


def one_call(a=None, b=None, data_bytes=DATA_BYTES, media_s=0):
    return {"iceServers": [a or ice_servers(), b or ice_servers("bob", "builder")], "dataBytes": data_bytes,
            "mediaSeconds": media_s}


@pytest.fixture
def browse(net, spawn, tmp_path):
    """browse(calls) gives what the page found out about each."""
    assert os.path.isdir(os.path.join(HERE, "node_modules", "playwright-core")), \
        "playwright-core is missing: run scripts/install-packages --tests"
    profile = tmp_path / "profile"

    def browse(*calls):
        profile.mkdir()
        config = {"executable": need("chromium"), "profile": str(profile), "calls": calls}
        home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
        node = spawn(net.client, [need("node"), os.path.join(HERE, "browser", "run.mjs"), json.dumps(config)],
                     env=home)
        status = node.wait(180)
        log = node.log()
        start = log.rfind("\n[{")
        text = log[start + 1:] if start >= 0 else log
        assert status == 0 and text.startswith("["), "browser ended with %s\n%s" % (status, log[-4000:])
        return json.loads(text.splitlines()[0])

    yield browse
    shutil.rmtree(profile, ignore_errors=True)


def dump(result, server):
    return "%s\n--- server\n%s" % (json.dumps(result, indent=1), server.tail(40))


def check_call(result, server):
    """Both ends use relayed addresses of the one server, and the data arrived as it was sent."""
    assert "error" not in result, dump(result, server)
    for end in ("a", "b"):
        for side in ("local", "remote"):
            candidate = result[end][side]
            assert candidate and candidate["type"] == "relay", "%s %s\n%s" % (end, side, dump(result, server))
            assert candidate["address"] in (netns.RELAY_IP, netns.RELAY_IP6), dump(result, server)
        assert result[end]["local"]["relayProtocol"] == "udp", dump(result, server)
    data = result["data"]
    assert data["sentByA"] == data["receivedByB"] and data["sentByB"] == data["receivedByA"], dump(result, server)
    assert data["sentByA"] != data["sentByB"]


def check_media(result, server, seconds):
    """Pictures and sound went on during the whole time measured, both ways."""
    for end in ("a", "b"):
        before, after = result["before"][end], result[end]
        frames = after.get("framesDecoded", 0) - before.get("framesDecoded", 0)
        samples = after.get("audioSamples", 0) - before.get("audioSamples", 0)
        assert frames >= 5 * seconds, "%s: %d frames\n%s" % (end, frames, dump(result, server))
        assert samples >= 24000 * seconds, "%s: %d samples\n%s" % (end, samples, dump(result, server))
        assert after["videoPacketsReceived"] > 0 and after["audioPacketsReceived"] > 0, dump(result, server)


@pytest.mark.core
def test_data_both_ways_through_two_allocations(turnserver, browse):
    [result] = browse(one_call())
    check_call(result, turnserver)
    if any("multiplex-peer" in line for line in open(turnserver.conf)):
        assert 3480 <= result["a"]["local"]["port"] < 3480 + 2 * 2 * 8, dump(result, turnserver)
    else:
        assert result["a"]["local"]["port"] != result["b"]["local"]["port"], dump(result, turnserver)


def test_audio_and_video_play(turnserver, browse):
    [result] = browse(one_call(data_bytes=65536, media_s=5))
    check_call(result, turnserver)
    check_media(result, turnserver, 5)


@pytest.mark.parametrize("threads", [1, 2])
def test_one_shared_port_carries_both_ends_of_several_calls(start_server, browse, threads):
    """A single shared port a thread: both ends of a call often have the very same relayed address."""
    server = start_server("shared", multiplex_peer_ports=1, relay_threads=threads)
    results = browse(*[one_call(data_bytes=262144) for _ in range(4)])
    for result in results:
        check_call(result, server)


def test_one_user_on_both_ends_with_a_rest_credential(start_server, mode, browse):
    server = start_server(mode, user=None, lt_cred_mech=None, use_auth_secret=True, static_auth_secret=SECRET)
    ends = [ice_servers(*turnlib.rest_credential(SECRET, "carol")) for _ in range(2)]
    [result] = browse(one_call(*ends, data_bytes=262144))
    check_call(result, server)


def test_clients_over_ipv6(turnserver, browse):
    ends = [ice_servers("alice", "wonder", netns.SERVER_IP6), ice_servers("bob", "builder", netns.SERVER_IP6)]
    [result] = browse(one_call(*ends, data_bytes=262144))
    check_call(result, turnserver)
