"""The first command of the README: what it prints works."""
import json
import os
import re
import shlex

import pytest

import netns
import turnlib
from processes import REPOSITORY, server_binary

SCRIPT = os.path.join(REPOSITORY, "scripts", "run-server")

pytestmark = pytest.mark.skipif(server_binary() != os.path.join(REPOSITORY, "build", "bin", "turnserver"),
                                reason="the script runs build/bin/turnserver, and that is not under test")


def run_script(net, spawn, name, *arguments):
    script = spawn(net.server, [SCRIPT, "--no-install", *arguments], name=name)
    status = script.wait(180)
    return status, script.log()


@pytest.fixture(params=[[], ["--shared"]], ids=["dedicated", "shared"])
def printed(request, net, spawn, tmp_path):
    """What the script told, while its server runs."""
    folder = ["--dir", str(tmp_path / "run")]
    status, text = run_script(net, spawn, "start", "--background", "--listen", netns.SERVER_IP, *folder, *request.param)
    try:
        assert status == 0, text
        yield text
        status, again = run_script(net, spawn, "again", "--background", "--listen", netns.SERVER_IP, *folder)
        assert status == 1 and "is running already" in again
    finally:
        status, text = run_script(net, spawn, "stop", "--stop", *folder)
        assert status == 0, text


def test_the_ice_servers_it_prints_allocate(net, printed, make_client, make_peer):
    [server] = json.loads(re.search(r"^\{.*\}$", printed, re.M).group(0))["iceServers"]
    assert server["urls"] == ["turn:%s:3478?transport=udp" % netns.SERVER_IP]
    client = make_client(user=server["username"], password=server["credential"]).allocate()
    peer = make_peer()
    client.permit(peer.address)
    client.send(peer.address, b"hello")
    assert peer.receive()[0] == b"hello"
    client.close()


def test_the_client_line_it_prints_loses_nothing(net, spawn, printed):
    line = re.search(r"^turnutils_uclient .*$", printed, re.M).group(0)
    client = spawn(net.client, shlex.split(line))
    assert client.wait(60) == 0, client.tail()
    assert "Total lost packets 0 " in client.log(), client.tail()


def test_the_secret_stays_out_of_what_it_prints_and_logs(printed, tmp_path):
    secret = (tmp_path / "run" / "secret").read_text().strip()
    assert len(secret) >= 32
    assert secret not in printed
    assert secret not in (tmp_path / "run" / "turnserver.log").read_text()
    assert (tmp_path / "run" / "secret").stat().st_mode & 0o077 == 0
    for name in ("cert.pem", "key.pem", "turnserver.conf"):
        assert (tmp_path / "run" / name).stat().st_mode & 0o077 == 0


def test_a_credential_of_another_secret_is_refused(net, printed, make_client):
    name, password = turnlib.rest_credential("guessed", "try")
    with pytest.raises(turnlib.Refused):
        make_client(user=name, password=password).allocate()
