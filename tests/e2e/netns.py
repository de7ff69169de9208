"""Network namespaces for the tests: made without a name, so that they end with the processes in them.

A namespace is a file descriptor. `with ns:` moves the calling thread into it: sockets opened and processes
started inside stay there. Needs CAP_NET_ADMIN (root, or a user namespace of one's own).
"""
import ctypes
import os
import subprocess
import threading

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (what, os.strerror(number)))


class Namespace:
    def __init__(self, name):
        self.name = name
        self._home = None
        self._fd = self._create()
        self.run("ip link set lo up")

    def _create(self):
        box = {}

        def make():
            try:
                _check(_libc.unshare(CLONE_NEWNET), "unshare")
                box["fd"] = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                box["error"] = error
        maker = threading.Thread(target=make)
        maker.start()
        maker.join()
        if "error" in box:
            raise box["error"]
        return box["fd"]

    @property
    def path(self):
        return "/proc/%d/fd/%d" % (os.getpid(), self._fd)

    def __enter__(self):
        assert self._home is None, "not reentrant"
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        _check(_libc.setns(self._fd, CLONE_NEWNET), "setns")
        return self

    def __exit__(self, *_):
        _check(_libc.setns(self._home, CLONE_NEWNET), "setns")
        os.close(self._home)
        self._home = None

    def run(self, *commands):
        """Runs shell-free commands one after the other in the namespace; output of the last one."""
        out = ""
        for command in commands:
            with self:
                done = subprocess.run(command.split(), capture_output=True, text=True, timeout=20)
            if done.returncode != 0:
                raise RuntimeError("%s: %s: %s" % (self.name, command, done.stderr.strip() or done.stdout.strip()))
            out = done.stdout
        return out

    def write_file(self, path, text):
        """Writes a /proc/sys/net file, whose content belongs to the namespace of the writer."""
        with self:
            with open(path, "w") as f:
                f.write(text)

    def close(self):
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def connect(a, a_device, b, b_device):
    """Joins two namespaces with a veth pair, both ends up."""
    a.run("ip link add %s type veth peer name %s netns %s" % (a_device, b_device, b.path))
    a.run("ip link set %s up" % a_device)
    b.run("ip link set %s up" % b_device)


# What the tests call their hosts. Documentation addresses all (RFC 5737, RFC 3849).
SERVER_IP, SERVER_IP_B = "198.51.100.1", "198.51.100.2"
RELAY_IP = "203.0.113.1"
SERVER_IP6, RELAY_IP6 = "2001:db8:100::1", "2001:db8:200::1"
CLIENT_IPS = ["198.51.100.%d" % i for i in range(11, 19)]
CLIENT_IP6S = ["2001:db8:100::%x" % i for i in range(0x11, 0x15)]
PEER_IPS = ["203.0.113.%d" % i for i in range(21, 29)]
PEER_IP6S = ["2001:db8:200::%x" % i for i in range(0x21, 0x25)]


class Network:
    """client ns --veth-- server ns --veth-- peer ns. The server's namespace does not forward: what arrives
    on the other side was relayed."""

    def __init__(self):
        self.spaces = []
        self.client = self._space("client")
        self.server = self._space("server")
        self.peer = self._space("peer")
        connect(self.server, "to-clients", self.client, "eth0")
        connect(self.server, "to-peers", self.peer, "eth0")
        self._address(self.server, "to-clients", [SERVER_IP + "/24", SERVER_IP_B + "/24"], [SERVER_IP6 + "/64"])
        self._address(self.server, "to-peers", [RELAY_IP + "/24"], [RELAY_IP6 + "/64"])
        self._address(self.client, "eth0", [ip + "/24" for ip in CLIENT_IPS], [ip + "/64" for ip in CLIENT_IP6S])
        self._address(self.peer, "eth0", [ip + "/24" for ip in PEER_IPS], [ip + "/64" for ip in PEER_IP6S])
        self.client.run("ip route add default via " + SERVER_IP, "ip -6 route add default via " + SERVER_IP6)
        self.peer.run("ip route add default via " + RELAY_IP, "ip -6 route add default via " + RELAY_IP6)
        # One dead port must not silence the kernel's ICMP for the next test.
        for space in self.spaces:
            space.write_file("/proc/sys/net/ipv4/icmp_ratelimit", "0")

    def _space(self, name):
        space = Namespace(name)
        self.spaces.append(space)
        return space

    @staticmethod
    def _address(space, device, v4, v6):
        for ip in v4:
            space.run("ip addr add %s dev %s" % (ip, device))
        for ip in v6:
            space.run("ip addr add %s dev %s nodad" % (ip, device))

    def close(self):
        for space in self.spaces:
            space.close()
