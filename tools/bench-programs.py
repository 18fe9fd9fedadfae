#!/usr/bin/env python3
"""Programs of other projects on softroce, next to what their users have without it.

    cargo build --release
    tools/bench-programs.py --rounds 5
    tools/bench-programs.py --only UCX --json

Debian's perftest, UCX, qperf, rstream and Open MPI run under `roce run`, over UDP sockets and through shared memory,
in alternation with the alternative: `roce perf` with posted lists for perftest, perftest's own exchange of addresses
for `-R`, TCP for UCX, qperf and rstream, the TCP transport of Open MPI, and bare UDP with the datagrams of a message
(the example `datagrams`). `-R` and rstream need 127.0.0.1 for themselves: `unshare -n`. Every program runs with its
default options but for size, duration and transport. Rows are medians, ratios those of the rounds, and more than 1 is
faster than the alternative. docs/PERFORMANCE.md has the results.
"""

import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmark import Table, Turns, built_roce, fail, parser, publish, run
from guests import row_of

HOST = "127.0.0.1"
# Ports of `roce run`.
VIAS = ("udp", "shm")
# A program that takes longer has failed.
LIMIT_SECONDS = 120
# Transports of UCX over RoCE; `ud_verbs:aux` exchanges addresses.
UCX_ROCE = "rc_verbs,ud_verbs:aux,self"
# Each datagram is a send request of its own, and UCX acknowledges and repeats them itself.
UCX_ROCE_UD = "ud_verbs,self"
UCX_TCP = "tcp,self"


def free_port():
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def listens(port):
    """Whether a program of this network namespace listens at the TCP port."""
    suffix = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if local.endswith(suffix) and state == "0A":
                return True
    return False


def has_rdma_listener():
    """Whether a device of this network namespace has a listener of the connection manager, as its control socket says."""
    names = {row.split()[-1] for row in Path("/proc/net/unix").read_text().splitlines()}
    for name in names:
        if not re.fullmatch(r"@softroce/.*/control/.*", name):
            continue
        try:
            with socket.socket(socket.AF_UNIX) as control:
                control.settimeout(LIMIT_SECONDS)
                control.connect(f"\0{name[1:]}")
                control.sendall(b"softroce 1 status\n")
                if json.loads(control.makefile().readline()).get("listeners"):
                    return True
        except (OSError, ValueError):
            # The process has ended.
            continue
    return False


def pair(server, client, is_ready, environment):
    """Runs a server, and once it is ready its client. Returns the output of the client."""
    environment = os.environ | environment
    with subprocess.Popen(server, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as other:
        try:
            deadline = time.monotonic() + LIMIT_SECONDS
            while not is_ready():
                if other.poll() is not None:
                    fail(f"{' '.join(server)} has ended: {other.stdout.read()}")
                if time.monotonic() > deadline:
                    fail(f"{' '.join(server)} does not listen")
                time.sleep(0.01)
            said = run(*client, env=environment, timeout=LIMIT_SECONDS)
            other.communicate(timeout=LIMIT_SECONDS)
        except BaseException:
            other.kill()
            raise
    return said


def under_roce(via, *program):
    return [built_roce(), "run", "--via", via, "--", *program]


@dataclass
class Perftest:
    """A test of perftest. `roce perf` has the same test, with posted lists where the rate of messages counts."""

    program: str
    size: int
    # Options of `roce perf` that perftest does not have by default.
    lists: str = ""

    @property
    def verb(self):
        return self.program.removeprefix("ib_").replace("_", "-")

    @property
    def is_latency(self):
        return self.program.endswith("lat")

    def of_program(self, via, seconds):
        return self.measured(via, seconds)

    def measured(self, via, seconds, *options):
        port = free_port()
        amount = ["-n", "20000"] if self.is_latency else ["-D", str(max(1, round(seconds)))]
        size = [] if "atomic" in self.program else ["-s", str(self.size)]
        command = under_roce(via, self.program, "-F", "-p", str(port), *size, *amount, *options)
        is_ready = has_rdma_listener if "-R" in options else lambda: listens(port)
        said = pair(command, [*command, HOST], is_ready, {})
        row = row_of(said, self.size)
        if row is None:
            fail(f"{self.program} has printed no row of {self.size} bytes:\n{said}")
        # Columns: t_typical in microseconds; MsgRate in millions a second.
        return float(row[4])

    def of_alternative(self, via, seconds):
        amount = ["-n", "20000"] if self.is_latency else ["-D", str(seconds)]
        size = [] if "atomic" in self.program else ["-s", str(self.size)]
        command = [built_roce(), "perf", self.verb, *size, *amount, "--via", via, "--no-ceiling", "--json", *self.lists.split()]
        found = json.loads(run(*command, timeout=LIMIT_SECONDS))
        return found["latency_us"]["p50"] if self.is_latency else found["msg_per_s"] / 1e6


class Connected(Perftest):
    """perftest over connections of the connection manager, and the same over its own TCP exchange."""

    # Its client connects twice, and the second time possibly before the server listens again.
    ATTEMPTS = 20

    def of_program(self, via, seconds):
        for _ in range(self.ATTEMPTS - 1):
            try:
                return self.measured(via, seconds, "-R")
            except SystemExit:
                continue
        return self.measured(via, seconds, "-R")

    def of_alternative(self, via, seconds):
        return self.measured(via, seconds)


@dataclass
class Ucx:
    """A test of `ucx_perftest`."""

    test: str
    size: int
    # Messages in a second, roughly, so that a run takes as long as asked.
    rate: int
    # Further options of the client, which tells them its server.
    options: tuple[str, ...] = ()
    transports: str = UCX_ROCE

    @property
    def is_latency(self):
        return self.test in ("tag_lat", "ucp_get", "ucp_am_lat")

    def measured(self, environment, begin, seconds):
        port = free_port()
        count = max(200, int(self.rate * seconds))
        program = [*begin, "ucx_perftest", "-p", str(port)]
        test = ["-t", self.test, "-s", str(self.size), "-n", str(count), "-w", str(max(10, count // 10)), "-f",
                *self.options]
        said = pair(program, [*program, HOST, *test], lambda: listens(port), environment)
        finals = [line.split() for line in said.splitlines() if line.strip()]
        # One row of figures: iterations, three latencies, two bandwidths, two rates.
        for row in reversed(finals):
            if len(row) >= 9 and row[0] == "Final:":
                return float(row[2]) if self.is_latency else float(row[8]) / 1e6
            if len(row) == 8 and row[0].isdigit():
                return float(row[1]) if self.is_latency else float(row[7]) / 1e6
        fail(f"ucx_perftest has printed no row of figures:\n{said}")

    def of_program(self, via, seconds):
        return self.measured({"UCX_TLS": self.transports}, under_roce(via), seconds)

    def of_alternative(self, _, seconds):
        return self.measured({"UCX_TLS": UCX_TCP, "UCX_NET_DEVICES": "lo"}, [], seconds)


@dataclass
class Qperf:
    """A latency test of `qperf`, which sleeps until an event, and the same over TCP."""

    size: int
    is_latency = True

    def measured(self, begin, seconds, *test):
        port = free_port()
        program = [*begin, "qperf", "-lp", str(port)]
        test = ["-uu", "-t", str(max(1, round(seconds))), "-m", str(self.size), *test, "quit"]
        said = pair(program, [*program, HOST, *test], lambda: listens(port), {})
        found = re.search(r"latency\s+=\s+(\d+) ns", said)
        if found is None:
            fail(f"qperf has printed no latency:\n{said}")
        return int(found[1]) / 1000

    def of_program(self, via, seconds):
        return self.measured(under_roce(via), seconds, "-cm1", "rc_lat")

    def of_alternative(self, _, seconds):
        return self.measured([], seconds, "tcp_lat")


@dataclass
class Rstream:
    """Messages there and back by `rstream` over rsockets, and the same over TCP. Its server reads and answers them."""

    size: int
    # Messages in a second, roughly, so that a run takes as long as asked.
    rate: int
    is_latency = False

    def measured(self, begin, is_ready, seconds, *kind):
        port = str(free_port())
        program = [*begin, "rstream", "-p", port, "-S", str(self.size), "-C", str(max(100, int(self.rate * seconds))),
                   *kind]
        said = pair(program, [*program, "-s", HOST], lambda: is_ready(int(port)), {})
        # Columns: name, size, times, iterations, total, seconds, Gb/s, µs a transfer.
        row = re.search(r"^custom\s.*\ds\s+([\d.]+)\s", said, re.MULTILINE)
        if row is None:
            fail(f"rstream has printed no row:\n{said}")
        return float(row[1]) * 1e9 / 8 / self.size / 1e6

    def of_program(self, via, seconds):
        return self.measured(under_roce(via), lambda _: has_rdma_listener(), seconds)

    def of_alternative(self, _, seconds):
        return self.measured([], listens, seconds, "-T", "s")


@dataclass
class Mpi:
    """`mpi4py.bench ringtest` with two ranks of Open MPI: the time of a message."""

    size: int
    is_latency = True
    RANKS = 2

    def measured(self, begin, environment, options, seconds):
        loops = max(20, int(seconds * (4000 if self.size < 65536 else 400)))
        command = [*begin, "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(self.RANKS), *options,
                   "/usr/bin/python3", "-m", "mpi4py.bench", "ringtest", "-n", str(self.size), "-l", str(loops), "-s", "10"]
        said = run(*command, env=os.environ | environment, timeout=LIMIT_SECONDS, stdin=subprocess.DEVNULL)
        row = re.search(r"= ([\d.e+-]+) seconds", said)
        if row is None:
            fail(f"mpi4py.bench has printed no time:\n{said}")
        return float(row[1]) * 1e6 / loops / self.RANKS

    def of_program(self, via, seconds):
        return self.measured(under_roce(via), {"UCX_TLS": UCX_ROCE}, ["--mca", "pml", "ucx"], seconds)

    def of_alternative(self, _, seconds):
        options = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
        return self.measured([], {}, options, seconds)


@dataclass
class Datagrams:
    """Messages of UCX or MPI over TCP and over RoCE, each next to bare UDP with the datagrams of those over RoCE."""

    program: Ucx | Mpi
    # As the example `datagrams` takes them: sizes of UDP payloads, with those of acknowledgements.
    exchange: str
    # Messages of an exchange.
    messages: int = 1

    @property
    def is_latency(self):
        return self.program.is_latency

    def of_program(self, via, seconds):
        return self.program.of_alternative(via, seconds) if via == "tcp" else self.program.of_program(via, seconds)

    def of_alternative(self, _, seconds):
        took = float(run("cargo", "run", "--release", "--quiet", "--package", "softroce-tools", "--example", "datagrams", "--",
                         str(seconds), self.exchange))
        return took if self.is_latency else self.messages / took


LISTS = "-l 512 -t 1024"
KIB = 1 << 10
# Its 256 packets in the bursts that an IP packet holds.
READ_OF_1_MIB = "61680/4112 " * 17 + "4116"
FRAGMENTS_OF_64_KIB = "8304/4112 " * 7 + "7848/4112"

# Name of a row, its table, and its test.
TESTS = {
    **{f"perftest: `ib_{verb}_bw`, {name}": ("perftest-rates", Perftest(f"ib_{verb}_bw", size, LISTS))
       for verb in ("write", "send") for size, name in ((64, "64 B"), (4 * KIB, "4 KiB"))},
    **{f"perftest: `ib_{verb}_bw`, {name}": ("perftest-rates", Perftest(f"ib_{verb}_bw", size))
       for verb in ("write", "send", "read") for size, name in ((64 * KIB, "64 KiB"), (KIB * KIB, "1 MiB"))},
    **{f"librdmacm: `ib_write_bw -R`, {name}": ("librdmacm-rates", Connected("ib_write_bw", size))
       for size, name in ((64, "64 B"), (64 * KIB, "64 KiB"))},
    **{f"perftest: `ib_{verb}_lat`, {size} B": ("perftest-latencies", Perftest(f"ib_{verb}_lat", size))
       for verb, size in (("send", 64), ("write", 8), ("read", 64), ("atomic", 8))},
    **{f"UCX: `{test}`, {name}": ("ucx-rates", Ucx(test, size, rate))
       for test in ("tag_bw", "stream_bw", "ucp_am_bw", "ucp_put_bw")
       for size, name, rate in ((64, "64 B", 60_000), (4 * KIB, "4 KiB", 40_000), (64 * KIB, "64 KiB", 8_000),
                                (KIB * KIB, "1 MiB", 500))},
    "UCX: `tag_bw` over UD, 64 KiB": ("ucx-rates", Ucx("tag_bw", 64 * KIB, 8_000, transports=UCX_ROCE_UD)),
    "rsockets: `rstream`, 64 KiB": ("rsockets-rates", Rstream(64 * KIB, 8_000)),
    **{f"UCX: `{test}`, {name}": ("ucx-latencies", Ucx(test, size, rate))
       for test in ("tag_lat", "ucp_am_lat")
       for size, name, rate in ((64, "64 B", 30_000), (4 * KIB, "4 KiB", 20_000), (64 * KIB, "64 KiB", 3_000))},
    # Over TCP each takes a millisecond.
    **{f"UCX: `ucp_get`, {name}": ("ucx-latencies", Ucx("ucp_get", size, 2_000))
       for size, name in ((64, "64 B"), (4 * KIB, "4 KiB"), (64 * KIB, "64 KiB"))},
    **{f"asleep: `qperf rc_lat`, {name}": ("asleep-latencies", Qperf(size)) for size, name in ((1, "1 B"), (4 * KIB, "4 KiB"))},
    **{f"asleep: UCX `tag_lat`, `-E sleep`, {name}": ("asleep-latencies", Ucx("tag_lat", size, 10_000, ("-E", "sleep")))
       for size, name in ((64, "64 B"), (4 * KIB, "4 KiB"))},
    **{f"Open MPI: ring, {name}": ("mpi-latencies", Mpi(size))
       for size, name in ((8, "8 B"), (4 * KIB, "4 KiB"), (64 * KIB, "64 KiB"), (KIB * KIB, "1 MiB"))},
    **{f"datagrams: `tag_lat`, {name}": ("datagrams-latencies", Datagrams(Ucx("tag_lat", size, rate), message))
       for size, name, rate, message in ((64, "64 B", 30_000, "92"), (4 * KIB, "4 KiB", 20_000, "4140/4112 20"),
                                         (64 * KIB, "64 KiB", 3_000, "76 36; 32 20; 61680/4112 4116"))},
    # UCX cuts these messages of Open MPI, and streams, into fragments of 8256 bytes.
    "datagrams: Open MPI, ring, 64 KiB": ("datagrams-latencies", Datagrams(Mpi(64 * KIB), FRAGMENTS_OF_64_KIB + " 20")),
    # A SEND announces the memory, a READ copies it, and another SEND releases it.
    "datagrams: Open MPI, ring, 1 MiB": ("datagrams-latencies", Datagrams(Mpi(KIB * KIB), f"76 36; 32 20; {READ_OF_1_MIB}")),
    # Messages without a pause: 2 MiB of them, then an acknowledgement. That is half of the socket's buffer.
    **{f"datagrams: `tag_bw`, {name}": ("datagrams-rates", Datagrams(Ucx("tag_bw", size, rate), message * count + "; 20", count))
       for size, name, rate, message, count in ((4 * KIB, "4 KiB", 40_000, "4140/4112 ", 512),
                                                (64 * KIB, "64 KiB", 8_000, "61680/4112 4116 ", 32),
                                                (KIB * KIB, "1 MiB", 500, READ_OF_1_MIB + " ", 2))},
    # A stream waits for the acknowledgement of each message.
    **{f"datagrams: `stream_bw`, {name}": ("datagrams-rates", Datagrams(Ucx("stream_bw", size, rate), exchange))
       for size, name, rate, exchange in ((4 * KIB, "4 KiB", 40_000, "4140/4112; 20"),
                                          (64 * KIB, "64 KiB", 8_000, FRAGMENTS_OF_64_KIB + "; 20"),
                                          (KIB * KIB, "1 MiB", 500, "8304/4112 " * 127 + "; 20"))},
}
ALTERNATIVES = {"perftest": "`roce perf`", "librdmacm": "without `-R`", "ucx": "TCP", "rsockets": "TCP",
                "asleep": "TCP", "mpi": "TCP", "datagrams": "bare UDP"}


def ports_of(kind):
    return ("tcp", "udp") if kind.startswith("datagrams") else VIAS


def table_of(kind):
    """The table of a kind of tests: a pair of columns for each port."""
    unit = "µs" if kind.endswith("latencies") else "M/s"
    digits = 1 if kind.endswith("latencies") else 4
    alternative = ALTERNATIVES[kind.split("-")[0]]
    if alternative == "TCP":
        return Table((f"TCP, {unit}", digits), (f"UDP sockets, {unit}", digits), ("ratio", 2),
                     (f"shared memory, {unit}", digits), ("ratio", 2))
    names = {"tcp": "TCP", "udp": "UDP sockets", "shm": "shared memory"}
    return Table(*(column for via in ports_of(kind)
                   for column in ((f"{names[via]}, {unit}", digits), (f"{alternative}, {unit}", digits), ("ratio", 2))))


def cells(kind, rounds):
    """The cells of a row from its rounds: for each port the program and its alternative."""
    is_latency = kind.endswith("latencies")
    medians, ratios = {}, {}
    for via in ports_of(kind):
        pairs = [figures[via] for figures in rounds]
        medians[via] = [statistics.median(column) for column in zip(*pairs, strict=True)]
        ratios[via] = statistics.median(other / own if is_latency else own / other for own, other in pairs)
    if ALTERNATIVES[kind.split("-")[0]] == "TCP":
        alternative = statistics.median(other for figures in rounds for _, other in figures.values())
        return [alternative, *(cell for via in VIAS for cell in (medians[via][0], ratios[via]))]
    return [cell for via in ports_of(kind) for cell in (*medians[via], ratios[via])]


def main():
    turns, options = Turns(TESTS, 1.0), parser(__doc__)
    options.add_argument("--json", action="store_true", help="print every round as JSON instead of tables")
    turns.add_to(options)
    options = options.parse_args()
    names = turns.chosen(options)
    built_roce()

    found = {name: [] for name in names}
    for number in range(options.rounds):
        for name in names:
            kind, test = TESTS[name]
            figures = {via: (test.of_program(via, options.seconds), test.of_alternative(via, options.seconds))
                       for via in ports_of(kind)}
            found[name].append(figures)
            shown = ", ".join(f"{via} {own:.4g} and {other:.4g}" for via, (own, other) in figures.items())
            print(f"{number + 1} of {options.rounds}: {name}: {shown}", file=sys.stderr)

    if options.json:
        rows = [{"name": name, "table": TESTS[name][0], "rounds": found[name]} for name in names]
        print(json.dumps({"version": 1, "rows": rows}, indent=2, ensure_ascii=False))
        return
    tables = {}
    for name in names:
        kind = TESTS[name][0]
        tables.setdefault(f"programs-{kind}", table_of(kind)).add(name.split(": ", 1)[1], *cells(kind, found[name]))
    for table in tables.values():
        table.print()
    if options.publish:
        publish(tables, options.rounds)


if __name__ == "__main__":
    main()
