"""STUN/TURN for the tests: a codec and a small client that does one thing at a time (RFC 8489, RFC 8656)."""
import base64
import hashlib
import hmac
import ipaddress
import os
import select
import socket
import struct
import time
import zlib

COOKIE = 0x2112A442
REQUEST, INDICATION, SUCCESS, ERROR = 0x000, 0x010, 0x100, 0x110
BINDING, ALLOCATE, REFRESH, SEND, DATA, CREATE_PERMISSION, CHANNEL_BIND = 1, 3, 4, 6, 7, 8, 9
(MAPPED_ADDRESS, USERNAME, MESSAGE_INTEGRITY, ERROR_CODE) = (0x0001, 0x0006, 0x0008, 0x0009)
(CHANNEL_NUMBER, LIFETIME, XOR_PEER_ADDRESS, DATA_ATTRIBUTE) = (0x000C, 0x000D, 0x0012, 0x0013)
(REALM, NONCE, XOR_RELAYED_ADDRESS, REQUESTED_ADDRESS_FAMILY) = (0x0014, 0x0015, 0x0016, 0x0017)
(EVEN_PORT, REQUESTED_TRANSPORT, DONT_FRAGMENT, XOR_MAPPED_ADDRESS) = (0x0018, 0x0019, 0x001A, 0x0020)
(RESERVATION_TOKEN, FINGERPRINT, ICMP) = (0x0022, 0x8028, 0x8004)


class Message:
    def __init__(self, method, kind=REQUEST, transaction=None):
        self.method, self.kind = method, kind
        self.transaction = transaction or os.urandom(12)
        self.attributes = []

    def add(self, number, value=b""):
        self.attributes.append((number, value))
        return self

    def add_address(self, number, address):
        return self.add(number, xor_address(address, self.transaction))

    def get(self, number):
        return next((value for n, value in self.attributes if n == number), None)

    def get_address(self, number):
        value = self.get(number)
        return None if value is None else unxor_address(value, self.transaction)

    @property
    def error(self):
        value = self.get(ERROR_CODE)
        return None if value is None else value[2] * 100 + value[3]

    def _header(self, n_body):
        m = self.method
        kind = (m & 0xF80) << 2 | (m & 0x070) << 1 | (m & 0x00F) | self.kind
        return struct.pack("!HHI", kind, n_body, COOKIE) + self.transaction

    def encode(self, key=None, fingerprint=False):
        body = b"".join(struct.pack("!HH", n, len(v)) + v + bytes(-len(v) % 4) for n, v in self.attributes)
        if key:
            mac = hmac.new(key, self._header(len(body) + 24) + body, hashlib.sha1).digest()
            body += struct.pack("!HH", MESSAGE_INTEGRITY, 20) + mac
        if fingerprint:
            crc = zlib.crc32(self._header(len(body) + 8) + body) ^ 0x5354554E
            body += struct.pack("!HHI", FINGERPRINT, 4, crc)
        return self._header(len(body)) + body


def decode(raw):
    """A Message, or None when it is not well-formed STUN."""
    if len(raw) < 20 or raw[0] & 0xC0:
        return None
    kind, n_body, cookie = struct.unpack("!HHI", raw[:8])
    if cookie != COOKIE or n_body % 4 or n_body != len(raw) - 20:
        return None
    message = Message((kind & 0x3E00) >> 2 | (kind & 0x00E0) >> 1 | (kind & 0x000F), kind & 0x0110, raw[8:20])
    at = 20
    while at < len(raw):
        number, n = struct.unpack("!HH", raw[at:at + 4])
        if at + 4 + n > len(raw):
            return None
        message.add(number, raw[at + 4:at + 4 + n])
        at += 4 + n + (-n % 4)
    return message


def _mask(n, transaction):
    return (struct.pack("!I", COOKIE) + transaction)[:n]


def xor_address(address, transaction):
    ip, port = ipaddress.ip_address(address[0]), address[1]
    packed = bytes(a ^ b for a, b in zip(ip.packed, _mask(len(ip.packed), transaction)))
    return struct.pack("!BBH", 0, 1 if ip.version == 4 else 2, port ^ (COOKIE >> 16)) + packed


def unxor_address(value, transaction):
    port = struct.unpack("!H", value[2:4])[0] ^ (COOKIE >> 16)
    packed = bytes(a ^ b for a, b in zip(value[4:], _mask(len(value) - 4, transaction)))
    return str(ipaddress.ip_address(packed)), port


def long_term_key(user, realm, password):
    return hashlib.md5(("%s:%s:%s" % (user, realm, password)).encode()).digest()


def rest_credential(secret, user="", lifetime_s=86400):
    name = "%d:%s" % (time.time() + lifetime_s, user)
    return name, base64.b64encode(hmac.new(secret.encode(), name.encode(), hashlib.sha1).digest()).decode()


def open_udp(space, ip, port=0, buffer_bytes=4 << 20):
    """A UDP socket in the namespace."""
    with space:
        s = socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_DGRAM)
    for option, force in ((socket.SO_RCVBUF, 33), (socket.SO_SNDBUF, 32)):
        try:
            s.setsockopt(socket.SOL_SOCKET, force, buffer_bytes)  # SO_RCVBUFFORCE, SO_SNDBUFFORCE
        except OSError:
            s.setsockopt(socket.SOL_SOCKET, option, buffer_bytes)
    s.bind((ip, port))
    return s


class Refused(Exception):
    def __init__(self, message):
        super().__init__("error %s to method %d" % (message.error, message.method))
        self.code = message.error


class Peer:
    """A UDP socket on the far side."""

    def __init__(self, space, ip, port=0):
        self.socket = open_udp(space, ip, port)
        self.address = self.socket.getsockname()[:2]

    def send(self, data, to):
        self.socket.sendto(data, to)

    def receive_many(self, n, timeout_s=5.0):
        """The next n datagrams' data; fewer when no more come in time."""
        end = time.monotonic() + timeout_s
        got = []
        while len(got) < n:
            one = self.receive(max(0.0, end - time.monotonic()))
            if one is None:
                break
            got.append(one[0])
        return got

    def receive(self, timeout_s=3.0):
        """(data, source), or None."""
        if not select.select([self.socket], [], [], timeout_s)[0]:
            return None
        data, source = self.socket.recvfrom(65536)
        return data, source[:2]

    def close(self):
        self.socket.close()


class Client:
    """One 5-tuple. What arrives while an answer is awaited is kept for receive()."""

    def __init__(self, space, server, ip, port=0, user="alice", password="wonder"):
        self.server, self.user, self.password = server, user, password
        self.socket = open_udp(space, ip, port)
        self.address = self.socket.getsockname()[:2]
        self.realm = self.nonce = self.key = self.relayed = self.mapped = None
        self.lifetime_s = None
        self.channels = {}
        self._kept = []

    # -- transactions
    def _await(self, transaction, timeout_s):
        end = time.monotonic() + timeout_s
        while True:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                return None
            raw = self._take()
            message = decode(raw)
            if message and message.transaction == transaction and message.kind in (SUCCESS, ERROR):
                return message
            self._kept.append(raw)

    def exchange(self, message, sign=True, attempts=4, timeout_s=1.0):
        """Sends, repeats, and returns the answer; None when there is none."""
        raw = message.encode(self.key if sign else None, fingerprint=True)
        for _ in range(attempts):
            self.socket.sendto(raw, self.server)
            answer = self._await(message.transaction, timeout_s)
            if answer:
                return answer
        return None

    def request(self, method, attributes=(), addresses=()):
        """An authenticated request; takes up 401 and 438 challenges. Raises Refused or TimeoutError."""
        for _ in range(3):
            message = Message(method)
            for number, value in attributes:
                message.add(number, value)
            for number, address in addresses:
                message.add_address(number, address)
            if self.key:
                message.add(USERNAME, self.user.encode()).add(REALM, self.realm).add(NONCE, self.nonce)
            answer = self.exchange(message)
            if answer is None:
                raise TimeoutError("no answer to method %d from %s:%d" % (method, *self.server[:2]))
            if answer.kind == SUCCESS:
                return answer
            fresh = answer.error == 401 and self.key is None or answer.error == 438
            if not fresh:
                raise Refused(answer)
            self.realm, self.nonce = answer.get(REALM), answer.get(NONCE)
            self.key = long_term_key(self.user, self.realm.decode(), self.password)
        raise Refused(answer)

    def binding(self, attempts=4, timeout_s=1.0):
        """Our address as the server sees it, or None."""
        answer = self.exchange(Message(BINDING), sign=False, attempts=attempts, timeout_s=timeout_s)
        return answer and answer.get_address(XOR_MAPPED_ADDRESS)

    # -- TURN
    def allocate(self, family=None, attributes=()):
        wanted = [(REQUESTED_TRANSPORT, bytes([17, 0, 0, 0]))] + list(attributes)
        if family:
            wanted.append((REQUESTED_ADDRESS_FAMILY, bytes([1 if family == 4 else 2, 0, 0, 0])))
        answer = self.request(ALLOCATE, wanted)
        self.relayed = answer.get_address(XOR_RELAYED_ADDRESS)
        self.mapped = answer.get_address(XOR_MAPPED_ADDRESS)
        self.lifetime_s = struct.unpack("!I", answer.get(LIFETIME))[0]
        self.allocated = answer
        return self

    def refresh(self, lifetime_s=600):
        return self.request(REFRESH, [(LIFETIME, struct.pack("!I", lifetime_s))])

    def permit(self, *peers):
        self.request(CREATE_PERMISSION, addresses=[(XOR_PEER_ADDRESS, p) for p in peers])

    def bind_channel(self, number, peer):
        self.request(CHANNEL_BIND, [(CHANNEL_NUMBER, struct.pack("!HH", number, 0))], [(XOR_PEER_ADDRESS, peer)])
        self.channels[number] = peer

    def indication(self, peer, data, dont_fragment=False):
        """The bytes of a Send indication."""
        message = Message(SEND, INDICATION).add_address(XOR_PEER_ADDRESS, peer)
        if dont_fragment:
            message.add(DONT_FRAGMENT)
        return message.add(DATA_ATTRIBUTE, data).encode()

    def send(self, peer, data, dont_fragment=False):
        self.socket.sendto(self.indication(peer, data, dont_fragment), self.server)

    def send_channel(self, number, data):
        self.socket.sendto(struct.pack("!HH", number, len(data)) + data, self.server)

    def receive_raw(self, timeout_s=3.0):
        if self._kept:
            return self._kept.pop(0)
        if not select.select([self.socket], [], [], timeout_s)[0]:
            return None
        return self._take()

    def _take(self):
        """Whatever comes must come from the address we sent to: a NAT would let nothing else through."""
        raw, source = self.socket.recvfrom(65536)
        assert source[:2] == self.server[:2], "a datagram from %s:%d, not from the server" % source[:2]
        return raw

    def receive(self, timeout_s=3.0):
        """(data, peer) of the next datagram relayed to us, or None. Other messages are passed over."""
        end = time.monotonic() + timeout_s
        while True:
            raw = self.receive_raw(max(0.0, end - time.monotonic()))
            if raw is None:
                return None
            got = self.relayed_data(raw)
            if got:
                return got

    def receive_many(self, n, timeout_s=5.0):
        """The next n relayed datagrams' data; fewer when no more come in time."""
        end = time.monotonic() + timeout_s
        got = []
        while len(got) < n:
            one = self.receive(max(0.0, end - time.monotonic()))
            if one is None:
                break
            got.append(one[0])
        return got

    def relayed_data(self, raw):
        """(data, peer) when raw is ChannelData or a Data indication with DATA, else None."""
        if len(raw) >= 4 and raw[0] & 0xC0 == 0x40:
            number, n = struct.unpack("!HH", raw[:4])
            return raw[4:4 + n], self.channels.get(number)
        message = decode(raw)
        if message and message.method == DATA and message.get(DATA_ATTRIBUTE) is not None:
            return message.get(DATA_ATTRIBUTE), message.get_address(XOR_PEER_ADDRESS)
        return None

    def receive_icmp(self, timeout_s=3.0):
        """(type, code, peer) of the next Data indication with an ICMP attribute (RFC 8656, 18.13), or None."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            raw = self.receive_raw(max(0.0, end - time.monotonic()))
            message = decode(raw) if raw else None
            if message and message.method == DATA and message.get(ICMP) is not None:
                both = struct.unpack("!H", message.get(ICMP)[2:4])[0]  # 7 bits of type, 9 bits of code
                return both >> 9, both & 0x1FF, message.get_address(XOR_PEER_ADDRESS)
        return None

    def close(self, release=True):
        if self.key and release and self.relayed:
            try:
                self.refresh(0)
            except (Refused, TimeoutError, OSError):
                pass
        self.key = None
        self.socket.close()
