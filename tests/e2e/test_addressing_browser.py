"""Chromium with a tab for each client: tabs calling each other, and ten tabs calling one media server's port."""
import json
import os
import re
import shutil
import subprocess

import pytest

import netns
from addressing import crowd as crowds
from addressing.fixtures import case  # noqa: F401
from conftest import need

HERE = os.path.dirname(os.path.abspath(__file__))
MESSAGES = 20
TABS = 10


def tab(n):
    """REST credentials with a name for each, as a service gives them out."""
    user, password = crowds.turnlib.rest_credential(crowds.SECRET, "tab%d" % n)
    return {"iceServers": [{"urls": ["turn:%s:3478?transport=udp" % netns.SERVER_IP], "username": user,
                            "credential": password}]}


@pytest.fixture
def open_tabs(net, spawn, tmp_path):
    """open_tabs(n, kind, ...) gives what each of the n tabs found out."""
    assert os.path.isdir(os.path.join(HERE, "node_modules", "playwright-core")), \
        "playwright-core is missing: run scripts/install-packages --tests"
    profile = tmp_path / "profile"

    def run(n, kind, **more):
        profile.mkdir()
        config = dict(executable=need("chromium"), profile=str(profile), kind=kind, tabs=[tab(i) for i in range(n)],
                      **more)
        home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
        node = spawn(net.client, [need("node"), os.path.join(HERE, "browser", "tabs.mjs"), json.dumps(config)],
                     env=home)
        status = node.wait(150)
        found = re.search(r"^\[\{.*$", node.log(), re.MULTILINE)
        assert status == 0 and found, "the browser ended with %s\n%s" % (status, node.log()[-4000:])
        return json.loads(found.group(0))

    yield run
    shutil.rmtree(profile, ignore_errors=True)


@pytest.fixture(scope="module")
def single_port_peer(tmp_path_factory):
    """The peer of addressing/single_port_peer, built from Debian's packages alone."""
    path = tmp_path_factory.mktemp("go")
    source = path / "src" / "single_port_peer"
    shutil.copytree(os.path.join(HERE, "addressing", "single_port_peer"), source)
    environment = dict(os.environ, GO111MODULE="off", GOPATH="%s:/usr/share/gocode" % path, GOFLAGS="-p=2",
                       CGO_ENABLED="0")
    built = subprocess.run([need("go"), "build", "-o", str(path / "single_port_peer"), "."], cwd=source,
                           env=environment, capture_output=True, text=True, timeout=600)
    assert built.returncode == 0, built.stderr
    return path / "single_port_peer"


def dump(results, server):
    return "%s\n--- server\n%s" % (json.dumps(results, indent=1), server.tail(60))


def heard_all(result, pattern):
    """Every message came back once and in order, and nobody else's with them."""
    return len(result["heard"]) == MESSAGES and \
        all(re.fullmatch(pattern % i, text) for i, text in enumerate(result["heard"]))


@pytest.mark.parametrize("tabs", [2, TABS])
def test_tabs_call_each_other_over_the_relay(case, open_tabs, tabs):
    server = case.start(**crowds.SERVER_OPTIONS)
    results = open_tabs(tabs, "pairs")
    for n, result in enumerate(results):
        assert result["connection"] == "connected", dump(results, server)
        assert result["local"]["type"] == result["remote"]["type"] == "relay", dump(results, server)
        pattern = "%scall %d message %%d" % ("" if n % 2 else "echo ", n // 2)
        assert heard_all(result, pattern), dump(results, server)
    case.record("Chromium: tabs call each other over the relay alone, of %d" % tabs, "%d" % len(results))


def test_ten_tabs_call_one_port(case, net, spawn, open_tabs, single_port_peer, tmp_path):
    server = case.start(**crowds.SERVER_OPTIONS)
    address = "%s:10000" % netns.PEER_IPS[0]
    socket = str(tmp_path / "offers")
    peer = spawn(net.peer, [single_port_peer, address, socket])
    assert peer.wait_log("ready", 10), peer.log()
    results = open_tabs(TABS, "peer", socket=socket)
    numbers = []
    for n, result in enumerate(results):
        if result["connection"] != "connected" or not heard_all(result, r"\d+ tab " + str(n) + " message %d"):
            continue
        assert result["local"]["type"] == "relay", dump(results, server)
        assert (result["remote"]["address"], result["remote"]["port"]) == (netns.PEER_IPS[0], 10000)
        numbers.append({text.split()[0] for text in result["heard"]})
    foreign = [text for n, result in enumerate(results) for text in result["heard"] if " tab %d " % n not in text]
    assert not foreign, dump(results, server)
    if case.own_ports:
        assert len(numbers) == TABS, dump(results, server) + peer.log()
        assert len(set.union(*numbers)) == TABS
    elif case.mode.pairs >= 8:
        # A pair each, unless more than eight tabs meet on one thread.
        assert len(numbers) >= 6, dump(results, server) + peer.log()
    case.record("Chromium: ten tabs call one port of a media server, of 10", "%d" % len(numbers))
