#!/usr/bin/env python3
"""Plots in docs/ of bandwidth and message rate against message size, number of queue pairs, loss and MTU.

    cargo build --release --package softroce-tools
    tools/bench-plots.py --rounds 3 --publish
    tools/bench-plots.py --only qps

Both sides on this machine over the loopback interface, one core each, as `roce perf` places them. The points of a
plot are measured alternately; the plot shows medians of the rounds. The points go to docs/results.json, from which
SNAPSHOTS=write cargo test --test pages draws the plots.
"""

import json
import statistics
import sys

from benchmark import ROCE, Plot, Turns, built_roce, parser, publish, run

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
    """Values of all rounds, by line and place."""

    def __init__(self):
        self.found = {}

    def add(self, name, at, value):
        self.found.setdefault(at, {}).setdefault(name, []).append(value)

    def add_rate(self, verb, at, row):
        """Adds Gbit/s, and with those of WRITEs those of raw UDP just before."""
        self.add(verb, at, row["gbit_per_s"])
        if verb == VERBS[0]:
            self.add(RAW, at, row["gbit_per_s"] / row["fraction_of_ceiling"])

    def plot(self, figure):
        """Returns the medians as a plot."""
        plot = Plot(figure.titles, *((name, figure.digits) for name in figure.lines))
        for at, lines in sorted(self.found.items()):
            plot.add(figure.label(at), at, *(statistics.median(lines[name]) for name in figure.lines))
        return plot


def binary(size):
    for unit, name in [(1 << 20, " MiB"), (1 << 10, " KiB")]:
        if size >= unit:
            return f"{size // unit}{name}"
    return str(size)


def test_of(verb):
    return f"{verb.lower()}-bw"


class Sizes:
    """Goodput over the length of a message."""

    lines, digits, label = [*VERBS, RAW], 4, staticmethod(binary)
    titles = {
        "title": "Goodput over the length of a message",
        "subtitle": "RC, MTU 4096, one queue pair, 128 messages outstanding, loopback",
        "x": "bytes of a message", "y": "Gbit/s", "unit": "Gbit/s", "scale": "logarithmic", "reference": RAW,
    }
    most = 4 << 20

    def measure(self, samples, seconds):
        for verb in VERBS:
            for row in perf(test_of(verb), "-a", "-D", seconds):
                if row["size"] <= self.most:
                    samples.add_rate(verb, row["size"], row)


class QueuePairs:
    """Messages a second over the number of connections that share them."""

    tests = {"WRITE of 64 bytes": ("write-bw", 64), "SEND of 64 bytes": ("send-bw", 64),
             "WRITE of 4 KiB": ("write-bw", 4096)}
    lines, digits, label = list(tests), 3, staticmethod("{:,}".format)
    titles = {
        "title": "Messages a second over the number of queue pairs",
        "subtitle": "RC, 4096 messages outstanding in all, but 512 at most of a queue pair, loopback",
        "x": "queue pairs", "y": "million messages a second", "unit": "M/s", "scale": "linear",
    }
    counts = [1, 4, 16, 64, 256, 1024, 4096, 10000]

    def measure(self, samples, seconds):
        for name, (test, size) in self.tests.items():
            for count in self.counts:
                depth = max(1, min(512, 4096 // count))
                row, = perf(test, "-s", size, "-q", count, "-t", depth, "-r", 2 * depth, "-D", seconds,
                            "--no-ceiling")
                samples.add(name, count, row["msg_per_s"] / 1e6)


class Loss:
    """Goodput over the share of packets that are lost, in percent."""

    lines, digits, label = VERBS, 3, staticmethod("{:g} %".format)
    titles = {
        "title": "Goodput over loss",
        "subtitle": f"RC, messages of {SIZE}, MTU 4096, ACK timeout 4.2 ms, loss in both directions, loopback",
        "x": "datagrams that are lost", "y": "Gbit/s", "unit": "Gbit/s", "scale": "logarithmic",
    }
    shares = [0.001, 0.01, 0.1, 1, 10]

    def measure(self, samples, seconds):
        for verb in VERBS:
            for share in self.shares:
                row, = perf(test_of(verb), "-D", seconds, "-u", 10, "--impair", f"loss={share / 100:f}", "--no-ceiling")
                samples.add(verb, share, row["gbit_per_s"])


class Mtus:
    """Goodput over the MTU of the path."""

    lines, digits, label = [*VERBS, RAW], 2, str
    titles = {
        "title": "Goodput over the MTU",
        "subtitle": f"RC, messages of {SIZE}, one queue pair, 128 messages outstanding, loopback",
        "x": "bytes of a packet's payload", "y": "Gbit/s", "unit": "Gbit/s", "scale": "linear", "reference": RAW,
    }
    mtus = [256, 512, 1024, 2048, 4096]

    def measure(self, samples, seconds):
        for verb in VERBS:
            for mtu in self.mtus:
                row, = perf(test_of(verb), "-m", mtu, "-D", seconds)
                samples.add_rate(verb, mtu, row)


FIGURES = {"size": Sizes(), "qps": QueuePairs(), "loss": Loss(), "mtu": Mtus()}


def main():
    turns, options = Turns(FIGURES, 0.2), parser(__doc__)
    turns.add_to(options)
    options = options.parse_args()
    names = turns.chosen(options)
    built_roce()
    plots = {}
    for name in names:
        figure, samples = FIGURES[name], Samples()
        for number in range(options.rounds):
            print(f"{name}: round {number + 1} of {options.rounds}", file=sys.stderr)
            figure.measure(samples, options.seconds)
        plots[f"plot-{name}"] = plot = samples.plot(figure)
        plot.print()
    if options.publish:
        publish(plots, options.rounds)


if __name__ == "__main__":
    main()
