#!/usr/bin/env python3
"""Plots in docs/ of bandwidth and latency against message size, number of queue pairs, loss and MTU.

    cargo build --release --package softroce-tools
    tools/bench-plots.py
    tools/bench-plots.py --only qps --rounds 3

Both sides on this machine over the loopback interface, one core each, as `roce perf` places them. The points of a
plot are measured alternately; the plot shows medians of the rounds.
"""

import json
import statistics
import sys

from benchmark import ROCE, ROOT, Turns, built_roce, parser, run
from figure import REFERENCE, Axis, Line, decades, draw, from_zero

VERBS = ["WRITE", "READ", "SEND"]
RAW = "raw UDP"
SIZE = "64 KiB"


def perf(*options):
    """Returns the rows of a test. Bandwidth tests post lists, of at most a quarter of the depth."""
    if options[0].endswith("-bw"):
        depth = options[options.index("-t") + 1] if "-t" in options else 128
        options = (*options, "-l", max(1, min(16, depth // 4)))
    said = run(ROCE, "perf", *map(str, options), "--json")
    return [json.loads(line) for line in said.splitlines()]


class Samples:
    """What the rounds have found, by line and place."""

    def __init__(self):
        self.found = {}

    def add(self, name, at, value):
        self.found.setdefault(name, {}).setdefault(at, []).append(value)

    def add_rate(self, verb, at, row):
        """Gbit/s, and where it was measured that of raw UDP beside those of WRITEs."""
        self.add(verb, at, row["gbit_per_s"])
        if row["fraction_of_ceiling"] and verb == VERBS[0]:
            self.add(RAW, at, row["gbit_per_s"] / row["fraction_of_ceiling"])

    def lines(self, unit):
        # What others are compared with is behind them, and last in the legend.
        names = sorted(self.found, key=lambda name: name == RAW)
        return [
            Line(name, sorted((at, statistics.median(all_)) for at, all_ in self.found[name].items()),
                 REFERENCE if name == RAW else number, unit)
            for number, name in enumerate(names)
        ]


def values(lines):
    return [value for line in lines for _, value in line.points]


def binary(size):
    for unit, name in [(1 << 20, " MiB"), (1 << 10, " KiB")]:
        if size >= unit:
            return f"{size // unit}{name}"
    return str(size)


def test_of(verb):
    return f"{verb.lower()}-bw"


class Sizes:
    """Goodput over the length of a message."""

    file, title = "plot-size.svg", "Goodput over the length of a message"
    subtitle = "RC, MTU 4096, one queue pair, 128 messages outstanding, loopback"
    most = 4 << 20

    def measure(self, samples, seconds):
        for verb in VERBS:
            for row in perf(test_of(verb), "-a", "-D", seconds):
                if row["size"] <= self.most:
                    samples.add_rate(verb, row["size"], row)

    def draw(self, samples):
        lines = samples.lines("Gbit/s")
        ticks = [(4**power * 2, binary(4**power * 2)) for power in range(0, 11)]
        return lines, Axis("bytes of a message", 2, self.most, ticks), decades("Gbit/s", values(lines))


class QueuePairs:
    """Messages a second over how many connections share them."""

    file, title = "plot-qps.svg", "Messages a second over the number of queue pairs"
    subtitle = "RC, 4096 messages outstanding in all, but 512 at most of a queue pair, loopback"
    counts = [1, 4, 16, 64, 256, 1024, 4096, 10000]
    tests = {"WRITE of 64 bytes": ("write-bw", 64), "SEND of 64 bytes": ("send-bw", 64),
             "WRITE of 4 KiB": ("write-bw", 4096)}

    def measure(self, samples, seconds):
        for name, (test, size) in self.tests.items():
            for count in self.counts:
                depth = max(1, min(512, 4096 // count))
                row, = perf(test, "-s", size, "-q", count, "-t", depth, "-r", 2 * depth, "-D", seconds,
                            "--no-ceiling")
                samples.add(name, count, row["msg_per_s"] / 1e6)

    def draw(self, samples):
        lines = samples.lines("M/s")
        ticks = [(count, f"{count:,}") for count in self.counts]
        return lines, Axis("queue pairs", 1, 10000, ticks), from_zero("million messages a second", values(lines))


class Loss:
    """Goodput over the share of packets that are lost."""

    file, title = "plot-loss.svg", "Goodput over loss"
    subtitle = f"RC, messages of {SIZE}, MTU 4096, ACK timeout 4.2 ms, loss in both directions, loopback"
    shares = [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]

    def measure(self, samples, seconds):
        for verb in VERBS:
            for share in self.shares:
                row, = perf(test_of(verb), "-D", seconds, "-u", 10, "--impair", f"loss={share:f}", "--no-ceiling")
                samples.add(verb, share, row["gbit_per_s"])

    def draw(self, samples):
        lines = samples.lines("Gbit/s")
        ticks = [(share, f"{share * 100:g} %") for share in self.shares]
        return lines, Axis("datagrams that are lost", 1e-5, 1e-1, ticks), decades("Gbit/s", values(lines))


class Mtus:
    """Goodput over the MTU of the path."""

    file, title = "plot-mtu.svg", "Goodput over the MTU"
    subtitle = f"RC, messages of {SIZE}, one queue pair, 128 messages outstanding, loopback"
    mtus = [256, 512, 1024, 2048, 4096]

    def measure(self, samples, seconds):
        for verb in VERBS:
            for mtu in self.mtus:
                row, = perf(test_of(verb), "-m", mtu, "-D", seconds)
                samples.add_rate(verb, mtu, row)

    def draw(self, samples):
        lines = samples.lines("Gbit/s")
        ticks = [(mtu, str(mtu)) for mtu in self.mtus]
        return lines, Axis("bytes of a packet's payload", 256, 4096, ticks), from_zero("Gbit/s", values(lines))


FIGURES = {"size": Sizes(), "qps": QueuePairs(), "loss": Loss(), "mtu": Mtus()}


def main():
    turns, options = Turns(FIGURES, 0.2), parser(__doc__)
    turns.add_to(options)
    options = options.parse_args()
    names = turns.chosen(options)
    built_roce()
    for name in names:
        figure, samples = FIGURES[name], Samples()
        for number in range(options.rounds):
            print(f"{name}: round {number + 1} of {options.rounds}", file=sys.stderr)
            figure.measure(samples, options.seconds)
        lines, x, y = figure.draw(samples)
        svg = draw(figure.title, figure.subtitle, x, y, lines)
        (ROOT / "docs" / figure.file).write_text(svg)


if __name__ == "__main__":
    main()
