#!/usr/bin/env python3
"""Writes the hand-made seeds of corpus/. Run it after a change here, and commit what it wrote."""
import binascii
import hashlib
import hmac
import pathlib
import struct

CORPUS = pathlib.Path(__file__).parent / "corpus"
ID = b"twelve bytes"
KEY = b"0123456789abcdef"
REQUEST, INDICATION, SUCCESS, ERROR = range(4)
BINDING, ALLOCATE, REFRESH, SEND, DATA, PERMISSION, BIND, CONNECT = 1, 3, 4, 6, 7, 8, 9, 10


def attr(kind, value):
    return struct.pack("!HH", kind, len(value)) + value + b"\0" * (-len(value) % 4)


def message(method, cls, *attrs):
    kind = (method & 0xF80) << 2 | (method & 0x70) << 1 | method & 0xF | (cls & 2) << 7 | (cls & 1) << 4
    body = b"".join(attrs)
    return struct.pack("!HHI", kind, len(body), 0x2112A442) + ID + body


def resized(m, extra):
    return m[:2] + struct.pack("!H", len(m) - 20 + extra) + m[4:]


def signed(m, sha256=False):
    size, kind, digest = (32, 0x1C, hashlib.sha256) if sha256 else (20, 0x08, hashlib.sha1)
    m = resized(m, 4 + size)
    return m + attr(kind, hmac.new(KEY, m, digest).digest())


def fingerprinted(m):
    m = resized(m, 8)
    return m + attr(0x8028, struct.pack("!I", binascii.crc32(m) ^ 0x5354554E))


def xor4(port=7000, ip=(192, 0, 2, 2)):
    raw = struct.pack("!HBBBB", port, *ip)
    mask = b"\x21\x12\x21\x12\xa4\x42"
    return b"\0\1" + bytes(a ^ b for a, b in zip(raw, mask))


ERROR_401 = [attr(0x09, b"\0\0\4\1Unauthenticated"), attr(0x14, b"r"), attr(0x15, b"n")]
ERROR_438 = [attr(0x09, b"\0\0\4\x26Stale Nonce"), attr(0x14, b"r"), attr(0x15, b"n2")]
ALGORITHMS = attr(0x8002, b"\0\2\0\0\0\1\0\0")
ALLOCATED = [attr(0x16, xor4(50000)), attr(0x20, xor4(40000)), attr(0x0D, b"\0\0\2\x58")]

STUN = {
    "binding": message(BINDING, REQUEST),
    "binding_success": message(BINDING, SUCCESS, attr(0x20, xor4()), attr(0x01, b"\0\1\0\7\1\2\3\4"),
                               attr(0x8022, b"server")),
    "allocate": message(ALLOCATE, REQUEST, attr(0x19, b"\x11\0\0\0"), attr(0x0D, b"\0\0\3\x20"), attr(0x18, b"\x80"),
                        attr(0x17, b"\2\0\0\0"), attr(0x8000, b"\2\0\0\0"), attr(0x1A, b""), attr(0x22, b"01234567")),
    "allocate_401": message(ALLOCATE, ERROR, *ERROR_401, ALGORITHMS),
    "allocate_success": message(ALLOCATE, SUCCESS, *ALLOCATED, attr(0x8001, b"\2\0\4\x28"), attr(0x8030, b"ticket")),
    "channel_bind": message(BIND, REQUEST, attr(0x0C, b"\x40\0\0\0"), attr(0x12, xor4())),
    "peer6": message(PERMISSION, REQUEST, attr(0x12, b"\0\2\1\2" + bytes(16))),
    "send": message(SEND, INDICATION, attr(0x12, xor4()), attr(0x13, b"hello")),
    "icmp": message(DATA, INDICATION, attr(0x12, xor4()), attr(0x8004, b"\0\0\6\4\0\0\5\x78")),
    "unknown": message(ALLOCATE, ERROR, attr(0x09, b"\0\0\4\x14"), attr(0x0A, b"\x7f\xff\1\2\0\0")),
    "algorithm": message(REFRESH, REQUEST, attr(0x1D, b"\0\2\0\0"), attr(0x8002, b"\0\7\0\2xy\0\0\0\1\0\0")),
    "padding_cut": message(BINDING, REQUEST, attr(0x8022, b"x"))[:-1],
    "overrun": message(BINDING, REQUEST, b"\x80\x22\xff\xfdwxyz"),
    "empty": b"",
}

CHANNEL = {
    "plain": b"\x40\0\0\5hello",
    "padded": b"\x40\1\0\5hello\0\0\0",
    "none": b"\x7f\xff\0\0",
    "cut": b"\x40\0\0\6hello",
    "header_cut": b"\x40\0\0",
}

STREAM = {
    "mixed": b"\2" + STUN["allocate"] + CHANNEL["padded"] + CHANNEL["none"] + STUN["send"],
    "single_bytes": b"\0" + STUN["binding"] + CHANNEL["padded"],
    "too_large": b"\5\x40\0\xff\xff" + bytes(30),
    "garbage": b"\5" + CHANNEL["padded"] + b"GET / HTTP/1.1",
    "wrong_cookie": b"\3" + STUN["binding"][:7] + b"\x43",
}

INTEGRITY = {
    "sha1": fingerprinted(signed(STUN["allocate"])),
    "sha256": fingerprinted(signed(STUN["allocate"], True)),
    "both": signed(signed(STUN["channel_bind"]), True),
    "followed": message(BIND, REQUEST, attr(0x08, bytes(20)), attr(0x0D, b"\0\0\0\1"), attr(0x1C, bytes(16))),
    "fingerprint": fingerprinted(STUN["binding"]),
    "fingerprint_first": message(BINDING, REQUEST, attr(0x8028, b"1234"), attr(0x8022, b"x")),
    "short_sha256": message(BINDING, REQUEST, attr(0x1C, bytes(12))),
    "plain": STUN["binding"],
}


def ask(what, *peer):
    return bytes([0, what, *peer])


def arrive(method, cls, *attrs, sign=0):
    body = b"".join(attrs)
    return bytes([1, len(body), sign | cls << 4 | method]) + body


def wait(n):
    return bytes([2, n])


def send(index):
    return bytes([3, index])


def raw(m):
    return bytes([4, len(m)]) + m


MD5, SHA256 = 0x80, 0xC0
START = ask(1) + arrive(ALLOCATE, ERROR, *ERROR_401) + arrive(ALLOCATE, SUCCESS, *ALLOCATED, sign=MD5)
LIFETIME = attr(0x0D, b"\0\0\2\x58")
BOUND = START + ask(6, 0x10) + arrive(BIND, SUCCESS, sign=MD5)
CLIENT = {
    "binding": b"\0" + ask(0) + arrive(BINDING, SUCCESS, attr(0x20, xor4())),
    "lost": b"\0" + ask(0) + wait(8) * 20 + wait(255) * 8,
    "stream": b"\2" + ask(0) + wait(255) * 8,
    "channel": b"\0" + BOUND + send(0) + raw(CHANNEL["plain"]) + wait(160) * 3,
    "permission": b"\x20" + START + ask(5, 0x12) + arrive(PERMISSION, SUCCESS, sign=MD5) + send(0) +
                  arrive(DATA, INDICATION, attr(0x12, xor4()), attr(0x13, b"hello")),
    "sha256": b"\x08" + ask(1) + arrive(ALLOCATE, ERROR, *ERROR_401[:2], attr(0x15, b"obMatJos2wAAAn"), ALGORITHMS) +
              arrive(ALLOCATE, SUCCESS, *ALLOCATED, sign=SHA256) + ask(2) + arrive(REFRESH, SUCCESS, LIFETIME, sign=SHA256),
    "stale": b"\0" + BOUND + ask(2) + arrive(REFRESH, ERROR, *ERROR_438, sign=MD5) +
             arrive(REFRESH, SUCCESS, LIFETIME, sign=MD5) + ask(3) + arrive(REFRESH, SUCCESS, LIFETIME, sign=MD5),
    "gone": b"\0" + BOUND + ask(2) + arrive(REFRESH, ERROR, attr(0x09, b"\0\0\4\x25")) + ask(1),
    "expires": b"\0" + BOUND + wait(255) * 12 + wait(100) + ask(1),
    "mobile": b"\x10" + ask(1) + arrive(ALLOCATE, ERROR, *ERROR_401) +
              arrive(ALLOCATE, SUCCESS, *ALLOCATED, attr(0x8030, b"ticket"), sign=MD5) + ask(4),
    "redirect": b"\1" + ask(1) + arrive(ALLOCATE, ERROR, attr(0x09, b"\0\0\3\0"), attr(0x8023, b"\0\1\0\7\1\2\3\4")),
    "connect": b"\x40" + START + ask(7, 0) + arrive(CONNECT, SUCCESS, attr(0x2A, b"1234"), sign=MD5) + ask(8),
}


def main():
    for folder, seeds in (("stun", STUN), ("channel_data", CHANNEL), ("turn_stream", STREAM),
                          ("integrity", INTEGRITY), ("turn_client", CLIENT)):
        (CORPUS / folder).mkdir(parents=True, exist_ok=True)
        for name, seed in seeds.items():
            (CORPUS / folder / name).write_bytes(seed)


if __name__ == "__main__":
    main()
