"""Fixtures of the tests of relayed addresses; a test module imports those it uses."""
import pytest

import netns
from addressing import crowd, modes, table


@pytest.fixture(params=modes.columns(), ids=lambda run: modes.column_name(*run).replace(", ", "-").replace(" ", "-"))
def case(request, start_server, tmp_path, monkeypatch):
    """The mode and the privileges of this run; case.start(...) starts the server."""
    mode, privileges = request.param
    return modes.Case(mode, privileges, start_server, tmp_path, monkeypatch, table.TABLE)


@pytest.fixture
def make_crowd(net, cleanup):
    """make_crowd(n) gives n clients with an allocation and a user each."""
    def make(n):
        members = crowd.Crowd(net.client)
        cleanup.append(members)
        return members.add(n)
    return make


@pytest.fixture
def sfu(net, cleanup):
    """The one port of a media server."""
    peer = crowd.Peer(net.peer, netns.PEER_IPS[0], 10000)
    cleanup.append(peer)
    return peer
