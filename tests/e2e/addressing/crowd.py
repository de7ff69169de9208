"""Many clients at once: what turnlib's client does, without a limit on descriptors, and for all of them together."""
import random
import re
import select
import time

import netns
import turnlib
from turnlib import BINDING, USERNAME, Message, decode

SECRET = "a-secret-for-the-crowd"
SERVER_OPTIONS = dict(user=None, lt_cred_mech=None, use_auth_secret=True, static_auth_secret=SECRET)
CHUNK = 200  # datagrams on their way at a time: far from any buffer's end
READ_TIMEOUT_S = 5


def readable(fd, timeout_s):
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))


class Client(turnlib.Client):
    """select() ends at descriptor 1,023; poll() does not. A read has an end: one is also told of a datagram that
    is dropped for its checksum when it is read."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.socket.settimeout(READ_TIMEOUT_S)

    def _await(self, transaction, timeout_s):
        end = time.monotonic() + timeout_s
        while readable(self.socket, end - time.monotonic()):
            raw = self._take()
            message = decode(raw)
            if message and message.transaction == transaction and message.kind in (turnlib.SUCCESS, turnlib.ERROR):
                return message
            self._kept.append(raw)
        return None

    def receive_raw(self, timeout_s=3.0):
        if self._kept:
            return self._kept.pop(0)
        return self._take() if readable(self.socket, timeout_s) else None


class Peer(turnlib.Peer):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.socket.settimeout(READ_TIMEOUT_S)

    def receive(self, timeout_s=3.0):
        if not readable(self.socket, timeout_s):
            return None
        data, source = self.socket.recvfrom(65536)
        return data, source[:2]


class Crowd:
    """Clients with a user each, so that nobody has a right to what is another's. Closed together."""

    def __init__(self, space):
        self.space = space
        self.clients = []
        self._by_fd = {}
        self._epoll = select.epoll()

    def add(self, n):
        for i in range(len(self.clients), len(self.clients) + n):
            user, password = turnlib.rest_credential(SECRET, "member%d" % i)
            client = Client(self.space, (netns.SERVER_IP, 3478), netns.CLIENT_IPS[i % len(netns.CLIENT_IPS)],
                            user=user, password=password)
            self.clients.append(client)
            self._by_fd[client.socket.fileno()] = client
            self._epoll.register(client.socket.fileno(), select.EPOLLIN)
            client.index = i
            client.allocate()
        return self

    def gather(self, n, timeout_s=5.0, quiet_s=0.2):
        """(client, raw) of what the clients get: n datagrams, then nothing for quiet_s; or what came in time."""
        got = []
        end = time.monotonic() + timeout_s
        while True:
            wait = quiet_s if len(got) >= n else end - time.monotonic()
            events = self._epoll.poll(max(0.0, wait))
            if not events:
                return got
            for fd, _ in events:
                client = self._by_fd[fd]
                got.append((client, client._take()))

    def close(self):
        for client in self.clients:
            client.close()
        self._epoll.close()


# A session's number in the server's log begins with the number of its thread.
SESSION = re.compile(r"session (\d{3})\d{15}: new, .*?client=(\S+?), relayed")


def by_thread(server, clients, timeout_s=5.0):
    """{thread: [clients]}; waits until the log names them all."""
    end = time.monotonic() + timeout_s
    while True:
        threads = {client: int(thread) for thread, client in SESSION.findall(server.log())}
        names = ["%s:%d" % client.address for client in clients]
        if all(name in threads for name in names):
            break
        assert time.monotonic() < end, "no line about some client\n" + server.tail()
        time.sleep(0.05)
    found = {}
    for client, name in zip(clients, names):
        found.setdefault(threads[name], []).append(client)
    return found


def check(to_fragment, from_fragment):
    """An ICE connectivity check as RFC 8445 sends it: the receiver's fragment comes first."""
    return Message(BINDING).add(USERNAME, b"%s:%s" % (to_fragment, from_fragment)).encode(fingerprint=True)


def chunks(things, n=CHUNK):
    return [things[at:at + n] for at in range(0, len(things), n)]


def shuffled(things, seed):
    things = list(things)
    random.Random(seed).shuffle(things)
    return things
