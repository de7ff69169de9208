"""Starts servers and the load generator, pinned, and collects what they say. Everything is bounded in time."""

import dataclasses
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

from rig_net import FIRST_ADDRESS, FIRST_PORT, PORTS_PER_ADDRESS, SERVER_ADDRESS, RigError, die_with_parent, host_port

LISTEN_PORT = 3478
SHARED_PORT = 3480
START_SECONDS = 10
STOP_SECONDS = 20


@dataclasses.dataclass(frozen=True)
class Variant:
    """A server to measure. kind: floor, turntable, coturn. options: further configuration lines (or, for the
    floor, arguments)."""
    name: str
    kind: str
    path: str
    options: tuple = ()


def pinned(core, *command):
    return ["taskset", "-c", str(core), *command]


def popen(command, **more):
    return subprocess.Popen(command, preexec_fn=die_with_parent, **more)


def end(process, seconds=STOP_SECONDS):
    """Asks, waits, then kills. By process, never by name."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def udp_ports(pid):
    ports = set()
    for name in ("udp", "udp6"):
        try:
            with open(f"/proc/{pid}/net/{name}", encoding="ascii") as table:
                ports |= {int(port, 16) for port in re.findall(r"^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) ", table.read(), re.M)}
        except OSError:
            pass
    return ports


def rollup_kib(pid, key):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
        return int(re.search(rf"^{key}:\s+(\d+) kB", rollup.read(), re.M).group(1))


def cpu_seconds(pid):
    with open(f"/proc/{pid}/schedstat", encoding="ascii") as stat:
        main_thread = int(stat.read().split()[0])
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as stat:
            total += int(stat.read().split()[0])
    return max(total, main_thread) / 1e9


class Server:
    """One run of a variant; a context manager. After its end, `log` and `floor` hold what it wrote."""

    def __init__(self, network, variant, family, n_flows):
        self.network, self.variant, self.family, self.n_flows = network, variant, family, n_flows
        self.directory = tempfile.mkdtemp(prefix="bench-rig-")
        self.process = None
        self.log, self.floor = "", None

    def _configuration(self):
        lines = [f"listening-ip={SERVER_ADDRESS['c', self.family]}", f"relay-ip={SERVER_ADDRESS['p', self.family]}",
                 f"listening-port={LISTEN_PORT}", "no-tls", "no-dtls", "lt-cred-mech", "user=bench:bench",
                 "realm=bench", "relay-threads=1", f"log-file={self.directory}/server.log", "simple-log",
                 f"pidfile={self.directory}/server.pid", "sock-buf-size=8388608", *self.variant.options]
        if self.variant.kind == "coturn":
            lines += ["no-cli"]
        else:
            lines += ["udp-recvmmsg-log", "udp-sendmmsg-log"]
        return "\n".join(lines) + "\n"

    def _command(self):
        if self.variant.kind == "floor":
            ends = {"listen": host_port(SERVER_ADDRESS["c", self.family], LISTEN_PORT),
                    "relay": host_port(SERVER_ADDRESS["p", self.family], SHARED_PORT),
                    "client": host_port(FIRST_ADDRESS["c", self.family], FIRST_PORT),
                    "peer": host_port(FIRST_ADDRESS["p", self.family], FIRST_PORT)}
            arguments = [word for name, value in ends.items() for word in (f"--{name}", value)]
            return [self.variant.path, *arguments, "--flows", str(self.n_flows),
                    "--ports-per-address", str(PORTS_PER_ADDRESS), *self.variant.options]
        path = f"{self.directory}/turnserver.conf"
        with open(path, "w", encoding="ascii") as conf:
            conf.write(self._configuration())
        return [self.variant.path, "-c", path]

    def __enter__(self):
        command = ["ip", "netns", "exec", self.network.names["s"], *pinned(self.network.server_core, *self._command())]
        self.output = open(f"{self.directory}/output", "w+", encoding="utf-8", errors="replace")
        self.process = popen(command, stdout=self.output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                             cwd=self.directory)
        end_time = time.monotonic() + START_SECONDS
        while LISTEN_PORT not in udp_ports(self.process.pid):
            if self.process.poll() is not None or time.monotonic() > end_time:
                self.__exit__()
                raise RigError(f"{self.variant.name} did not start:\n{self._tail()}")
            time.sleep(0.05)
        time.sleep(0.5 if self.variant.kind == "coturn" else 0.1)
        return self

    def _tail(self):
        return "\n".join(self.log.splitlines()[-20:])

    def __exit__(self, *_):
        end(self.process)
        self.output.seek(0)
        self.log = self.output.read()
        self.output.close()
        if self.variant.kind == "floor" and self.log.startswith("{"):
            self.floor = json.loads(self.log.splitlines()[0])
        try:
            with open(f"{self.directory}/server.log", encoding="utf-8", errors="replace") as log:
                self.log += log.read()
        except OSError:
            pass
        shutil.rmtree(self.directory, ignore_errors=True)

    def load_arguments(self):
        arguments = self.network.load_arguments(self.family, self.n_flows)
        if self.variant.kind == "floor":
            arguments += ["--relayed", host_port(SERVER_ADDRESS["p", self.family], SHARED_PORT)]
        for pid in [self.process.pid, *self.network.cost_pids]:
            arguments += ["--pid", str(pid)]
        return arguments

    def batch_statistics(self):
        return self.floor if self.floor is not None else batch_statistics(self.log)


# ---- what the server logged ----

def parse_statistics(log, kind):
    """All lines of one kind, as dictionaries of numbers. The log may stand twice (file and output)."""
    lines = dict.fromkeys(line for line in log.splitlines() if f"{kind} stats:" in line)
    return [{name: float(value) for name, value in re.findall(r"(\w+)=(-?[\d.]+)", line)} for line in lines]


def add_up(rows):
    total = {}
    for row in rows:
        for name, value in row.items():
            total[name] = max(total.get(name, 0), value) if name.endswith("_max_us") else total.get(name, 0) + value
    return total


def quantile_of_buckets(total, prefix, quantile):
    """Upper bound of the bucket where the quantile falls; buckets are named PREFIX_8 or PREFIX_5_8."""
    buckets = []
    for name, value in total.items():
        match = re.fullmatch(rf"{prefix}_(?:\d+_)?(\d+)(_up)?", name)
        if match:
            buckets.append((float("inf") if match.group(2) else int(match.group(1)), value))
    n, seen = sum(value for _, value in buckets), 0
    for upper, value in sorted(buckets):
        seen += value
        if n > 0 and seen >= quantile * n:
            return upper
    return None


def batch_statistics(log):
    """The fields the floor prints, from the interval lines of the server under test; {} when there are none."""
    receive, send = add_up(parse_statistics(log, "udp-recvmmsg")), add_up(parse_statistics(log, "udp-sendmmsg"))
    if not receive or not send:
        return {}
    busy_calls = receive.get("calls", 0) - receive.get("wouldblock", 0)
    return {"recv_calls": receive.get("calls"), "datagrams": receive.get("packets"),
            "recv_avg_batch": receive.get("packets", 0) / busy_calls if busy_calls > 0 else 0,
            "send_calls": send.get("calls", send.get("flushes")), "sent": send.get("datagrams"),
            "send_avg_batch": send["datagrams"] / send["flushes"] if send.get("flushes") else 0,
            "gso_frac": send.get("gso_datagrams", 0) / send["datagrams"] if send.get("datagrams") else 0,
            "hold_p50_us": quantile_of_buckets(send, "hold_us", 0.5),
            "hold_p99_us": quantile_of_buckets(send, "hold_us", 0.99),
            "hold_max_us": send.get("hold_max_us")}


# ---- the load ----

class Load:
    """bench_load on its core, with a line-by-line conversation for the modes that wait."""

    def __init__(self, server, build, arguments, seconds):
        self.seconds = seconds
        command = pinned(server.network.load_core, f"{build}/bin/bench_load", *server.load_arguments(), *arguments)
        self.process = popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
        self.pending = b""

    def read(self):
        """The next line as JSON; RigError when it does not come in time or the program ends."""
        end_time = time.monotonic() + self.seconds
        while b"\n" not in self.pending:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, end_time - time.monotonic()))
            piece = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not piece:
                end(self.process, 2)
                error = self.process.stderr.read().decode(errors="replace").strip()
                raise RigError(f"bench_load gave no answer: {error or self.process.returncode}")
            self.pending += piece
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)

    def say(self, word):
        self.process.stdin.write(word.encode() + b"\n")

    def close(self):
        """Waits for the orderly end; returns the exit code."""
        try:
            self.process.stdin.close()
            code = self.process.wait(self.seconds)
        except subprocess.TimeoutExpired:
            code = None
        end(self.process, 2)
        error = self.process.stderr.read().decode(errors="replace").strip()
        self.process.stdout.close()
        self.process.stderr.close()
        if error:
            print(error, flush=True)
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def run_load(server, build, arguments, seconds):
    with Load(server, build, arguments, seconds) as load:
        result = load.read()
    if "delivered" not in result:
        raise RigError(f"{server.variant.name}: setting up failed: {json.dumps(result)}")
    return result


# ---- system calls ----

def ensure_tracefs():
    if not os.path.isdir("/sys/kernel/tracing/events"):
        subprocess.run(["mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing"], capture_output=True, check=False)
    return os.path.isdir("/sys/kernel/tracing/events/raw_syscalls")


class SystemCalls:
    """Counts the system calls of a process between start and stop, by a tracepoint, or by strace (which slows the
    process down, so that batches grow) where there is no perf."""

    def __init__(self, pid):
        self.by_perf = shutil.which("perf") is not None and ensure_tracefs()
        self.file = tempfile.NamedTemporaryFile(prefix="bench-rig-", mode="r", encoding="utf-8")
        if self.by_perf:
            command = ["perf", "stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-o", self.file.name, "-p", str(pid)]
        elif shutil.which("strace") is not None:
            command = ["strace", "-f", "-c", "-o", self.file.name, "-p", str(pid)]
        else:
            raise RigError("counting system calls needs perf or strace")
        self.process = popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.5)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(10)
        finally:
            end(self.process, 2)
        text = self.file.read()
        self.file.close()
        if self.by_perf:
            match = re.search(r"^(\d+),,raw_syscalls:sys_enter", text, re.M)
        else:
            match = re.search(r"^\s*100\.00\s+[\d.]+\s+(?:\d+\s+)?(\d+)\s+(?:\d+\s+)?total", text, re.M)
        if match is None:
            raise RigError(f"no count of system calls: {text.strip()}")
        return int(match.group(1))


def count_system_calls(server, build, arguments, seconds):
    """System calls per delivered datagram, counted around the traffic alone."""
    with Load(server, build, [*arguments, "--gate", "--warmup", "0"], seconds) as load:
        first = load.read()
        if first.get("event") != "ready":
            raise RigError(f"{server.variant.name}: setting up failed: {json.dumps(first)}")
        calls = SystemCalls(server.process.pid)
        load.say("go")
        result = load.read()
        n = calls.stop()
        load.say("end")
    return n / result["delivered"] if result["delivered"] else None
