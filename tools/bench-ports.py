#!/usr/bin/env python3
"""`roce perf` with packet sockets, TAP interfaces and UDP sockets, over a link between two hosts.

    cargo build --release --package softroce-tools
    tools/bench-ports.py --rounds 7

As root. The hosts are network namespaces with a bridge each, and between these a pair of veth interfaces with an
MTU of 9000. UDP and packet sockets have the address of the bridge; the TAPs are on the bridges. The ports are
measured alternately. Rows are medians, ratios those of the rounds. docs/PERFORMANCE.md has the results.
"""

import json
import statistics
import sys

from benchmark import ROCE, Hosts, Table, Turns, both_sides, built_roce, parser, publish, run

# Name of a row, its options, the field of the result, and its unit.
TESTS = {
    "WRITE of 64 KiB, MTU 4096": ("write-bw -s 65536 -m 4096 -l 16", "gbit_per_s", 1, "Gbit/s"),
    "READ of 64 KiB, MTU 4096": ("read-bw -s 65536 -m 4096 -l 16", "gbit_per_s", 1, "Gbit/s"),
    "SEND of 64 bytes, one queue pair, 512 outstanding":
        ("send-bw -s 64 -t 512 -r 2048 -l 64 -Q 16", "msg_per_s", 1e-6, "M/s"),
    "SEND there and back, 64 bytes: half": ("send-lat -s 64", "latency_us", 1, "µs"),
}
PORTS = ["udp", "packet", "tap"]
# The tables in docs/results.json, by the unit of their rows.
KINDS = {"Gbit/s": "bandwidths", "M/s": "rates", "µs": "latencies"}


class Bridges(Hosts):
    """Hosts with a bridge each, to which the link between them leads."""

    def lay(self, begin, ip):
        for words in ["link add br0 type bridge", "link set br0 up mtu 9000", "link set wire up master br0",
                      f"address add {ip}/24 dev br0"]:
            run(*begin, "ip", *words.split())


# The devices on the TAPs are hosts of their own.
TAP_IPS = ["10.9.0.11", "10.9.0.12"]


def perf(hosts, via, test):
    """Runs a test through ports of a kind."""
    words = test.split()

    def side(begin, ip, tap_ip):
        device = [f"tap:tap0,bridge=br0,ip={tap_ip}/24"] if via == "tap" else [via, "--ip", ip]
        return [*begin, ROCE, "perf", words[0], "--via", *device]

    a, b = map(side, hosts.begin, hosts.ips, TAP_IPS)
    return json.loads(both_sides([*a, *words[1:], "--no-ceiling", "--json"], b, hosts.ips[1]))


def main():
    turns, options = Turns(TESTS, 0.25), parser(__doc__)
    turns.add_to(options)
    options = options.parse_args()
    names = turns.chosen(options)
    built_roce()

    found = {(name, via): [] for name in names for via in PORTS}
    with Bridges() as hosts:
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
            for name in names:
                test, key, scale, _ = TESTS[name]
                for via in PORTS:
                    value = perf(hosts, via, f"{test} -D {options.seconds}")[key]
                    found[name, via].append((value["p50"] if key == "latency_us" else value) * scale)

    tables = {}
    for name in names:
        *_, unit = TESTS[name]
        table = tables.setdefault(f"ports-{KINDS[unit]}", Table(
            (f"UDP sockets, {unit}", 2), (f"packet sockets, {unit}", 2), ("ratio", 2), (f"TAP, {unit}", 2), ("ratio", 2)))
        udp = found[name, "udp"]
        cells = [statistics.median(udp)]
        for via in PORTS[1:]:
            ratios = [value / base for value, base in zip(found[name, via], udp)]
            cells += [statistics.median(found[name, via]), statistics.median(ratios)]
        table.add(name, *cells)
    for table in tables.values():
        table.print()
    if options.publish:
        publish(tables, options.rounds)


if __name__ == "__main__":
    main()
