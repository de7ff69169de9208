"""Three network namespaces in a row: clients - server - peers, and everything that has to be undone afterwards."""

import ctypes
import ipaddress
import os
import re
import shutil
import signal
import subprocess

PREFIX = "bench"
PORTS_PER_ADDRESS = 20000
FIRST_PORT = 20000
SERVER_MAC = {"c": "02:00:5e:00:01:01", "p": "02:00:5e:00:02:01"}
DEVICE_MAC = {"c": "02:00:5e:00:01:02", "p": "02:00:5e:00:02:02"}
# The generator's own address is not its device's: the kernel's IP layer there passes over these frames.
LOAD_MAC = {"c": "02:00:5e:00:01:03", "p": "02:00:5e:00:02:03"}
SERVER_ADDRESS = {("c", 4): "192.0.2.1", ("p", 4): "198.51.100.1",
                  ("c", 6): "2001:db8:1::1", ("p", 6): "2001:db8:2::1"}
FIRST_ADDRESS = {("c", 4): "192.0.2.10", ("p", 4): "198.51.100.10",
                 ("c", 6): "2001:db8:1::10", ("p", 6): "2001:db8:2::10"}
PREFIX_LENGTH = {4: 24, 6: 64}


class RigError(Exception):
    """Something the rig needs is not there, or a program of it failed."""


def run(*command, check=True, timeout=20):
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if check and done.returncode != 0:
        raise RigError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def die_with_parent():
    """For preexec_fn: the child is killed when the rig goes away, however that happens."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def host_port(address, port):
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def flow_addresses(side, family, n_flows):
    first = ipaddress.ip_address(FIRST_ADDRESS[side, family])
    return [str(first + i) for i in range((n_flows + PORTS_PER_ADDRESS - 1) // PORTS_PER_ADDRESS)]


def remove_leftovers():
    """Namespaces of rigs whose process is gone."""
    for name in re.findall(rf"^({PREFIX}-(\d+)-[csp])\b", run("ip", "netns", "list"), re.M):
        if not os.path.exists(f"/proc/{name[1]}"):
            run("ip", "netns", "del", name[0], check=False)


def kernel_threads(name_start):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", encoding="ascii") as comm:
                if comm.read().startswith(name_start):
                    found.append(int(pid))
        except OSError:
            pass
    return found


class Guardian:
    """Removes the namespaces once the rig is gone, also when it was killed: a child that waits for the end of a
    pipe, in a session of its own, deaf to the signals that end the rig."""

    def __init__(self, names):
        reader, self.writer = os.pipe()
        self.pid = os.fork()
        if self.pid > 0:
            os.close(reader)
            return
        try:
            os.close(self.writer)
            os.setsid()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            os.read(reader, 1)
            for name in names:
                subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False, timeout=20)
        finally:
            os._exit(0)

    def end(self):
        os.close(self.writer)
        os.waitpid(self.pid, 0)


class Network:
    """Use as a context manager. napi: 'off', 'server' (the server's receive work runs on its own core, with GRO)
    or 'both' (the far sides' receive work runs on the load's core as well, not inside the server's send calls)."""

    def __init__(self, napi="off", server_core=0, load_core=1):
        self.napi, self.server_core, self.load_core = napi, server_core, load_core
        self.names = {side: f"{PREFIX}-{os.getpid()}-{side}" for side in "csp"}
        self.cost_pids = []

    def __enter__(self):
        for tool in ("ip", "taskset"):
            if shutil.which(tool) is None:
                raise RigError(f"{tool} is needed")
        remove_leftovers()
        self.guardian = Guardian(list(self.names.values()))
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.guardian.end()

    def _build(self):
        for name in self.names.values():
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        for side in "cp":
            self._join(side)
        if self.napi != "off":
            for side in "cp":
                self.cost_pids += self._thread_napi("s", f"s{side}", self.server_core)
                if self.napi == "both":
                    self._thread_napi(side, f"{side}s", self.load_core)

    def _join(self, side):
        near, far, server = f"s{side}", f"{side}s", self.names["s"]
        run("ip", "-n", server, "link", "add", near, "type", "veth", "peer", "name", far, "netns", self.names[side])
        run("ip", "-n", server, "link", "set", near, "address", SERVER_MAC[side])
        run("ip", "-n", self.names[side], "link", "set", far, "address", DEVICE_MAC[side])
        run("ip", "-n", server, "link", "set", near, "up")
        run("ip", "-n", self.names[side], "link", "set", far, "up")
        for family in (4, 6):
            nodad = ["nodad"] if family == 6 else []
            run("ip", "-n", server, "addr", "add", f"{SERVER_ADDRESS[side, family]}/{PREFIX_LENGTH[family]}",
                "dev", near, *nodad)
        self.add_neighbours(side, 4, PORTS_PER_ADDRESS)
        self.add_neighbours(side, 6, PORTS_PER_ADDRESS)

    def add_neighbours(self, side, family, n_flows):
        """Permanent entries for the generator's addresses: nothing there answers ARP or neighbour discovery."""
        for address in flow_addresses(side, family, n_flows):
            run("ip", "-n", self.names["s"], "neigh", "replace", address, "lladdr", LOAD_MAC[side],
                "dev", f"s{side}", "nud", "permanent")

    def _thread_napi(self, side, device, core):
        if shutil.which("ethtool") is None:
            raise RigError("--napi needs ethtool")
        before = set(kernel_threads(f"napi/{device}-"))
        inside = ("ip", "netns", "exec", self.names[side])
        run(*inside, "ethtool", "-K", device, "gro", "on")
        run(*inside, "sh", "-c", f"echo 1 > /sys/class/net/{device}/threaded")
        threads = [pid for pid in kernel_threads(f"napi/{device}-") if pid not in before]
        for pid in threads:
            run("taskset", "-p", "-c", str(core), str(pid))
        if not threads:
            raise RigError(f"no NAPI thread came up for {device}")
        return threads

    def path(self, side):
        return f"/run/netns/{self.names[side]}"

    def load_arguments(self, family, n_flows):
        """What bench_load has to be told about this network."""
        for side in "cp":
            self.add_neighbours(side, family, n_flows)
        arguments = ["--server", host_port(SERVER_ADDRESS["c", family], 3478),
                     "--flows", str(n_flows), "--ports-per-address", str(PORTS_PER_ADDRESS)]
        for side, word, words in (("c", "client", "clients"), ("p", "peer", "peers")):
            arguments += [f"--{word}", host_port(FIRST_ADDRESS[side, family], FIRST_PORT),
                          f"--{words}-netns", self.path(side), f"--{words}-device", f"{side}s",
                          f"--{word}-mac", LOAD_MAC[side], f"--{word}-gateway-mac", SERVER_MAC[side]]
        return arguments
