#!/usr/bin/env python3
"""Benchmarks of the relay in three network namespaces; see README.md beside this file. Needs root."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time

import rig_net
from rig_net import Network, RigError
from rig_report import Report, median, paired_ratios, show, spread
from rig_run import Load, Server, Variant, count_system_calls, cpu_seconds, rollup_kib, run_load

INTERLEAVED = ("100 flows x 320 B interleaved", 100, ["--sizes", "320"])
BURSTY = ("1 flow x 1200 B in offloaded bursts of 16", 1, ["--sizes", "1200", "--burst", "16", "--gso"])
SCALING_FLOWS = (10, 100, 1000, 5000)
SHARED = ("multiplex-peer",)


def variants_of(options, names):
    known = {
        "turntable": Variant("turntable", "turntable", options.turnserver, SHARED + tuple(options.option)),
        "dedicated": Variant("dedicated", "turntable", options.turnserver, tuple(options.option)),
        "floor": Variant("floor", "floor", f"{options.build}/bin/bench_floor"),
        "coturn": Variant("coturn", "coturn", options.coturn),
        "coturn-mux": Variant("coturn-mux", "coturn", options.coturn, SHARED + ("udp-gso",)),
        "recvmmsg=0": Variant("recvmmsg=0", "turntable", options.turnserver, SHARED + ("udp-recvmmsg=0",)),
        "sendmmsg=0": Variant("sendmmsg=0", "turntable", options.turnserver, SHARED + ("udp-sendmmsg=0",)),
        "gso=0": Variant("gso=0", "turntable", options.turnserver, SHARED + ("udp-gso=0",)),
        "all=0": Variant("all=0", "turntable", options.turnserver,
                         SHARED + ("udp-recvmmsg=0", "udp-sendmmsg=0", "udp-gso=0")),
        "other": Variant("other", "turntable", options.other or "", SHARED + tuple(options.option)),
    }
    for name in names:
        if name not in known:
            raise RigError(f"no variant {name}; there are {', '.join(known)}")
        if not os.access(known[name].path, os.X_OK):
            raise RigError(f"{name}: no program at {known[name].path!r}")
    return [known[name] for name in names]


class Measurement:
    """Everything measured for one variant and shape, round by round."""

    def __init__(self, variant):
        self.variant, self.rounds, self.batches, self.system_calls = variant, [], [], None

    def column(self, *path):
        def dig(result):
            for key in path:
                result = result.get(key) if isinstance(result, dict) else None
            return result
        return [dig(result) for result in self.rounds]

    def batch(self, key):
        return median([statistics.get(key) for statistics in self.batches if statistics])

    def lost(self):
        return sum(result[leg]["lost"] for result in self.rounds for leg in ("up", "down"))

    def accepted(self):
        return sum(result[leg]["accepted"] for result in self.rounds for leg in ("up", "down"))

    def as_data(self):
        return {"rounds": self.rounds, "batches": self.batches, "syscalls_per_datagram": self.system_calls}


class Rig:
    def __init__(self, options, network):
        self.options, self.network = options, network

    def _arguments(self, more):
        o = self.options
        return ["--warmup", str(o.warmup), "--duration", str(o.duration), "--direction", o.direction, *more]

    def once(self, variant, n_flows, more):
        o = self.options
        limit = 60 + 2 * (o.warmup + o.duration) + n_flows / 200
        with Server(self.network, variant, o.family, n_flows) as server:
            result = run_load(server, o.build, self._arguments(more), limit)
        return result, server.batch_statistics()

    def system_calls(self, variant, n_flows, more):
        o = self.options
        limit = 60 + 2 * o.duration + n_flows / 200
        with Server(self.network, variant, o.family, n_flows) as server:
            return count_system_calls(server, o.build, self._arguments(more), limit)

    def alternate(self, report, shape, variants, with_system_calls=True):
        """A, B, A, B, ...; the first round is dropped."""
        caption, n_flows, more = shape
        measurements = [Measurement(variant) for variant in variants]
        for number in range(self.options.rounds + 1):
            for m in measurements:
                result, batches = self.once(m.variant, n_flows, more)
                print(f"# {caption}, round {number}, {m.variant.name}: "
                      f"{result['cpu_ns_per_datagram']:.0f} ns/datagram, {result['delivered_per_s']:.0f}/s, "
                      f"busy {result['server_busy']:.2f}", file=sys.stderr, flush=True)
                for warning in result["warnings"]:
                    report.warn(f"{caption}, {m.variant.name}: {warning}")
                if number > 0 or self.options.rounds == 0:
                    m.rounds.append(result)
                    m.batches.append(batches)
        if with_system_calls and not self.options.no_syscalls:
            for m in measurements:
                m.system_calls = self.system_calls(m.variant, n_flows, more)
        report.data[caption] = {m.variant.name: m.as_data() for m in measurements}
        return measurements


# ---- scenarios: each takes the rig and a report ----

COST_HEAD = ["variant", "CPU ns/datagram", "ratio to the last", "delivered/s", "lost", "core busy", "syscalls/datagram",
             "receive batch", "send batch", "in GSO", "hold p99 us", "hold max us"]


def cost_rows(measurements):
    base = measurements[-1]
    rows = []
    for m in measurements:
        ratios = paired_ratios(m.column("cpu_ns_per_datagram"), base.column("cpu_ns_per_datagram"))
        rows.append([m.variant.name, spread(m.column("cpu_ns_per_datagram")), spread(ratios, 2),
                     f"{median(m.column('delivered_per_s')):.0f}", f"{m.lost()} of {m.accepted()}",
                     show(median(m.column("server_busy")), 2), show(m.system_calls, 3),
                     show(m.batch("recv_avg_batch")), show(m.batch("send_avg_batch")), show(m.batch("gso_frac"), 2),
                     show(m.batch("hold_p99_us"), 0), show(m.batch("hold_max_us"), 0)])
    return rows


def closed(shape, window):
    caption, n_flows, more = shape
    return caption, n_flows, ["--mode", "closed", "--window", str(window), *more]


def compare_at_saturation(rig, report, names):
    variants = variants_of(rig.options, rig.options.variants or names)
    for shape in (INTERLEAVED, BURSTY):
        measurements = rig.alternate(report, closed(shape, rig.options.window), variants)
        report.add_table(f"{shape[0]}, closed loop of {rig.options.window} in flight in each direction", COST_HEAD,
                         cost_rows(measurements))


def scenario_floor(rig, report):
    compare_at_saturation(rig, report, ["turntable", "floor"])


def scenario_batching(rig, report):
    compare_at_saturation(rig, report, ["recvmmsg=0", "sendmmsg=0", "gso=0", "all=0", "turntable"])


def scenario_coturn(rig, report):
    compare_at_saturation(rig, report, ["turntable", "dedicated", "coturn"])


def scenario_compare(rig, report):
    compare_at_saturation(rig, report, ["turntable", "other"])


def scenario_paced(rig, report):
    variants = variants_of(rig.options, rig.options.variants or ["turntable", "floor"])
    shape = ("100 flows x 50/s x 320 B", 100,
             ["--mode", "paced", "--rate-per-flow", "50", "--sizes", "320", "--kernel-stamps"])
    measurements = rig.alternate(report, shape, variants, with_system_calls=False)
    base = measurements[-1]
    rows = []
    for m in measurements:
        for leg in ("up", "down"):
            p50, p99 = m.column(leg, "latency_us", "p50"), m.column(leg, "latency_us", "p99")
            base_p99 = base.column(leg, "latency_us", "p99")
            added = [a - b for a, b in zip(p99, base_p99)]
            rows.append([m.variant.name, leg, spread(p50, 1), spread(p99, 1),
                         spread(m.column(leg, "latency_us", "p99.9"), 1), spread(added, 1),
                         spread(m.column("cpu_ns_per_datagram")), show(m.batch("hold_p99_us"), 0),
                         show(median(m.column(leg, "late_us_max")), 0), m.lost()])
    report.add_table("One-way latency in us at 50 packets/s a flow, 100 flows, each direction (kernel arrival stamps)",
                     ["variant", "leg", "p50", "p99", "p99.9", f"p99 above {base.variant.name}", "CPU ns/datagram",
                      "hold p99 us", "generator late, max us", "lost"], rows)


def scenario_scaling(rig, report):
    variants = variants_of(rig.options, rig.options.variants or ["turntable", "floor"])
    rows = []
    for n_flows in SCALING_FLOWS:
        shape = (f"{n_flows} flows", n_flows,
                 ["--mode", "paced", "--rate", str(rig.options.rate), "--sizes", "320"])
        rows += [[n_flows, *row] for row in cost_rows(rig.alternate(report, shape, variants))]
    report.add_table(f"320 B, {rig.options.rate:.0f}/s in each direction over all flows", ["flows", *COST_HEAD], rows)


def settle(server, seconds):
    """Lets timers run and gives back what the server used meanwhile."""
    before = cpu_seconds(server.process.pid)
    time.sleep(seconds)
    return cpu_seconds(server.process.pid) - before


def wait_for_memory(pid, before_kib, limit_s=20):
    """Until what is resident is within 10 % of the start, or the time is up."""
    start = time.monotonic()
    while rollup_kib(pid, "Rss") > 1.1 * before_kib and time.monotonic() - start < limit_s:
        time.sleep(0.25)
    return rollup_kib(pid, "Rss"), time.monotonic() - start


def idle_cycle(rig, server, n_flows, lifetime_s=None):
    """Sets up n idle allocations and ends them; returns what was measured."""
    pid = server.process.pid
    arguments = ["--mode", "idle", "--setup-window", "256", "--setup-deadline", "300"]
    arguments += ["--lifetime", str(lifetime_s)] if lifetime_s else []
    server.n_flows = n_flows
    cycle = {"rss_before_kib": rollup_kib(pid, "Rss")}
    cpu = cpu_seconds(pid)
    with Load(server, rig.options.build, arguments, 400) as load:
        setup = load.read()["setup"]
        cycle |= {"setup": setup, "setup_cpu_us_each": (cpu_seconds(pid) - cpu) * 1e6 / n_flows}
        cycle["idle_cpu_ms_per_s"] = settle(server, 2) / 2 * 1000
        cycle["rss_full_kib"] = rollup_kib(pid, "Rss")
        cpu = cpu_seconds(pid)
        if lifetime_s:
            settle(server, max(0, lifetime_s - setup["seconds"]) + 5)
        else:
            load.say("release")
            cycle["teardown"] = load.read()["teardown"]
        cycle["end_cpu_us_each"] = (cpu_seconds(pid) - cpu) * 1e6 / n_flows
        settle(server, 1)
        cycle["rss_at_once_kib"] = rollup_kib(pid, "Rss")
        cycle["rss_after_kib"], cycle["seconds_to_give_back"] = wait_for_memory(pid, cycle["rss_before_kib"])
        load.say("quit")
    cycle["bytes_each"] = (cycle["rss_full_kib"] - cycle["rss_before_kib"]) * 1024 / n_flows
    cycle["after_to_before"] = cycle["rss_after_kib"] / cycle["rss_before_kib"]
    return cycle


def scenario_memory(rig, report):
    o, n = rig.options, rig.options.allocations
    rows = []
    for variant in variants_of(o, o.variants or ["turntable"]):
        if o.expire:
            variant = Variant(variant.name, variant.kind, variant.path,
                              variant.options + (f"max-allocate-lifetime={o.expire}",))
        cycles = []
        with Server(rig.network, variant, o.family, n) as server:
            idle_cycle(rig, server, min(n, 2000))  # touches the receive ring and the allocator once
            for _ in range(o.cycles):
                cycles.append(idle_cycle(rig, server, n, o.expire))
        report.data[variant.name] = cycles
        for number, c in enumerate(cycles):
            if c["setup"]["failed"] > 0:
                report.warn(f"{variant.name}: {c['setup']['failed']} allocations failed: {c['setup']['errors']}")
            rows.append([variant.name, number + 1, c["setup"]["done"], f"{c['setup']['seconds']:.1f}",
                         c["setup"]["retransmits"], c["rss_before_kib"], c["rss_full_kib"], c["rss_at_once_kib"],
                         f"{c['rss_after_kib']} ({c['seconds_to_give_back']:.1f} s)", f"{c['bytes_each']:.0f}", f"{c['after_to_before']:.3f}", f"{c['setup_cpu_us_each']:.1f}",
                         f"{c['end_cpu_us_each']:.1f}", f"{c['idle_cpu_ms_per_s']:.2f}"])
    how = f"left to expire after {o.expire} s" if o.expire else "ended by Refresh with lifetime 0"
    report.add_table(f"{n} idle allocations with one permission and one channel each, {how}",
                     ["variant", "cycle", "allocations", "setup s", "retransmits", "RSS before KiB", "full", "1 s after",
                      "in the end", "bytes each", "after/before", "CPU us to set up", "CPU us to end", "idle CPU ms/s"], rows)


def scenario_lookup(rig, report):
    done = subprocess.run(["taskset", "-c", str(rig.network.server_core), f"{rig.options.build}/bin/bench_peer_table"],
                          capture_output=True, text=True, timeout=300, check=True)
    report.add_line(done.stdout.split("\n[")[0].strip())


SMOKE_SHAPES = (
    ("interleaved", 50, ["--window", "256", "--sizes", "320"]),
    ("mixed sizes", 50, ["--window", "256", "--sizes", "24,1200,77,320", "--burst", "3"]),
    ("offloaded bursts", 3, ["--window", "256", "--sizes", "1100", "--burst", "16", "--gso"]),
    ("one way", 10, ["--window", "64", "--direction", "up"]),
)


def scenario_smoke(rig, report):
    """Not a benchmark: a few thousand datagrams of each shape, each of which has to arrive whole."""
    rows, failures = [], 0
    names = rig.options.variants or ["floor"] + (["turntable"] if os.access(rig.options.turnserver, os.X_OK) else [])
    for variant in variants_of(rig.options, names):
        for family in (4, 6):
            rig.options.family = family
            for caption, n_flows, more in SMOKE_SHAPES:
                result, _ = rig.once(variant, n_flows, ["--mode", "closed", "--verify", "--max-datagrams", "4096",
                                                        "--warmup", "0", "--duration", "5", *more])
                legs = [result["up"], result["down"]]
                wrong = {key: sum(leg[key] for leg in legs)
                         for key in ("lost", "duplicates", "reordered", "misrouted", "corrupt")}
                good = result["delivered"] > 0 and not any(wrong.values())
                failures += not good
                rows.append([variant.name, f"IPv{family}", caption, result["delivered"],
                             "ok" if good else " ".join(f"{key} {value}" for key, value in wrong.items() if value)])
    report.add_table("Every datagram arrives once, in order, whole, at the right place",
                     ["variant", "family", "shape", "delivered", "result"], rows)
    if failures:
        report.warn(f"{failures} runs failed")
    return failures == 0


SCENARIOS = {name[len("scenario_"):]: function for name, function in list(globals().items())
             if name.startswith("scenario_")}


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", choices=[*SCENARIOS, "clean"])
    parser.add_argument("--build", default="build", help="build directory with bin/ in it (default: build)")
    parser.add_argument("--turnserver", help="server under test (default: BUILD/bin/turnserver)")
    parser.add_argument("--other", help="second build of the server, for compare")
    parser.add_argument("--coturn", default="/usr/bin/turnserver")
    parser.add_argument("--variants", type=lambda text: text.split(","), help="which to run; the last is the base")
    parser.add_argument("--option", action="append", default=[], help="further line for turnserver.conf")
    parser.add_argument("--rounds", type=int, default=6, help="counted rounds; one more goes before them")
    parser.add_argument("--duration", type=float, default=3.0, help="seconds of each measured window")
    parser.add_argument("--warmup", type=float, default=0.7)
    parser.add_argument("--window", type=int, default=1024, help="closed loop: in flight in each direction")
    parser.add_argument("--rate", type=float, default=20000, help="scaling: datagrams/s in each direction")
    parser.add_argument("--direction", choices=["up", "down", "both"], default="both")
    parser.add_argument("--family", type=int, choices=[4, 6], default=4)
    parser.add_argument("--napi", choices=["off", "server", "both"], default="off",
                        help="threaded NAPI with GRO on the server's devices, and on the far ones too")
    parser.add_argument("--server-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    parser.add_argument("--no-syscalls", action="store_true", help="skip the separate runs that count system calls")
    parser.add_argument("--allocations", type=int, default=100000, help="memory: how many")
    parser.add_argument("--cycles", type=int, default=2, help="memory: how often they are set up and ended")
    parser.add_argument("--expire", type=int, metavar="S", help="memory: let them expire after S seconds")
    parser.add_argument("--json", help="file for all measured values")
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    options.turnserver = os.path.abspath(options.turnserver or f"{options.build}/bin/turnserver")
    return options


def stop(*_):
    raise SystemExit("interrupted")


def main():
    options = parse_options()
    if os.geteuid() != 0 or shutil.which("ip") is None:
        print("rig.py needs root and iproute2", file=sys.stderr)
        return 77
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    if options.scenario == "clean":
        rig_net.remove_leftovers()
        return 0
    settings = {"kernel": os.uname().release, "rounds": options.rounds, "window": f"{options.duration} s",
                "NAPI": options.napi, "family": f"IPv{options.family}", "load average": f"{os.getloadavg()[0]:.1f}"}
    report = Report(options.scenario, settings)
    with Network(options.napi, options.server_core, options.load_core) as network:
        good = SCENARIOS[options.scenario](Rig(options, network), report)
    report.write(options.json)
    return 1 if good is False else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RigError as error:
        print(f"rig.py: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
