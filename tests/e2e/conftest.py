"""Fixtures. Environment:

TURNSERVER         the binary under test (default: build/bin/turnserver of this checkout)
TURN_UDP_BACKEND   "posix" when that binary was built with the portable back end
TURN_E2E_OPTIONS   more configuration lines for every server, separated by ';'
TURN_E2E_FOREIGN   set when another server than ours is tried: its exit status is not judged
"""
import os
import shutil
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

import netns  # noqa: E402
import turnlib  # noqa: E402
from processes import Process, TurnServer, server_binary  # noqa: E402

MODES = {
    "dedicated": {"relay_addressing": "dedicated"},
    "shared": {"multiplex_peer": True, "multiplex_peer_port": 3480, "multiplex_peer_ports": 8},
}


def base_options(**replaced):
    """The configuration lines of an ordinary server; a value of None leaves the line out."""
    options = {
        "listening-port": 3478, "realm": "example.org", "lt-cred-mech": True,
        "min-port": 49152, "max-port": 50175, "relay-threads": 2, "log-file": "stdout",
        "no-tls": True, "pidfile": "turnserver.pid", "verbose": True,
    }
    options.update((name.replace("_", "-"), value) for name, value in replaced.items())
    lines = []
    for name, value in options.items():
        if value is True:
            lines.append(name)
        elif isinstance(value, (list, tuple)):
            lines += ["%s=%s" % (name, v) for v in value]
        elif value is not None:
            lines.append("%s=%s" % (name, value))
    return lines


ADDRESSES = dict(listening_ip=[netns.SERVER_IP, netns.SERVER_IP6], relay_ip=[netns.RELAY_IP, netns.RELAY_IP6],
                 user=["alice:wonder", "bob:builder"])


def pytest_configure(config):
    config.addinivalue_line("markers", "core: the subset that also runs on sanitizer builds")
    config.addinivalue_line("markers", "linux: needs the Linux UDP back end")


def pytest_collection_modifyitems(items):
    if os.environ.get("TURN_UDP_BACKEND") != "posix":
        return
    for item in items:
        if item.get_closest_marker("linux"):
            item.add_marker(pytest.mark.skip(reason="the portable UDP back end has no such thing"))


def pytest_sessionstart(session):
    if not session.config.option.collectonly and not os.access(server_binary(), os.X_OK):
        pytest.exit("no server at %s: build it or set TURNSERVER" % server_binary(), returncode=2)


@pytest.fixture(scope="module")
def net():
    """Three namespaces of this module's own: client, server, peer."""
    network = netns.Network()
    yield network
    network.close()


@pytest.fixture(params=list(MODES))
def mode(request):
    return request.param


@pytest.fixture
def cleanup():
    """Things to close at the end of the test, last one first."""
    things = []
    yield things
    errors = []
    for thing in reversed(things):
        try:
            (thing.stop if isinstance(thing, Process) else thing.close)()
        except Exception as error:  # the others must be closed all the same
            errors.append(error)
    if errors:
        raise errors[0]


@pytest.fixture
def spawn(cleanup, tmp_path):
    """spawn(space, argv) runs a process until the end of the test."""
    def run(space, argv, name=None, **kwargs):
        name = name or os.path.basename(str(argv[0]))
        process = Process(space, argv, tmp_path / (name + ".log"), **kwargs)
        cleanup.append(process)
        return process
    return run


@pytest.fixture
def start_server(request, net, tmp_path):
    """start_server(mode, **options) gives a server that answers; its exit and its log are judged at the end."""
    servers = []

    def start(mode="dedicated", ready=True, space=None, address=netns.SERVER_IP, **options):
        lines = base_options(**dict(ADDRESSES, **dict(MODES[mode], **options)))
        lines += [o for o in os.environ.get("TURN_E2E_OPTIONS", "").split(";") if o]
        work = tmp_path / ("server%d" % len(servers))
        work.mkdir()
        server = TurnServer(space or net.server, lines, work, address, int(options.get("listening_port", 3478)))
        servers.append(server)
        return server.wait_ready() if ready else server

    yield start
    for server in servers:
        was_running = server.is_alive()
        status = server.stop()
        report = server.sanitizer_report()
        assert report is None, report
        if was_running and not os.environ.get("TURN_E2E_FOREIGN"):
            assert status == 0, "exit status %s\n%s" % (status, server.tail())


@pytest.fixture
def turnserver(start_server, mode):
    return start_server(mode)


@pytest.fixture
def make_client(net, cleanup):
    """make_client(i, ...) opens a client on the i-th client address."""
    def make(i=0, server=(netns.SERVER_IP, 3478), v6=False, **kwargs):
        if v6 and server[0] == netns.SERVER_IP:
            server = (netns.SERVER_IP6, 3478)
        ip = (netns.CLIENT_IP6S if v6 else netns.CLIENT_IPS)[i]
        client = turnlib.Client(net.client, server, ip, **kwargs)
        cleanup.append(client)
        return client
    return make


@pytest.fixture
def make_peer(net, cleanup):
    def make(i=0, port=0, v6=False):
        peer = turnlib.Peer(net.peer, (netns.PEER_IP6S if v6 else netns.PEER_IPS)[i], port)
        cleanup.append(peer)
        return peer
    return make


def need(tool):
    """Test tools are installed by scripts/install-packages: their absence is a failure, not a skip."""
    path = shutil.which(tool)
    assert path, "%s is missing: run scripts/install-packages --tests" % tool
    return path
