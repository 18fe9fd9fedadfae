#!/usr/bin/env python3
"""Goodput of softroce and of kernel rxe over a link that loses packets, on the same processors: those of two guests.

    tools/bench-loss.py
    tools/bench-loss.py --rounds 5 --only "WRITE of 64 KiB, MTU 1024" --loss 0.01

perftest over rxe and `roce perf` run alternately in two guests with one emulated processor each, so only
ratios are meaningful. Both send from one guest to the other, with the same MTU, messages and ACK timeout.
The link between the guests (`rxe-vm loss`) loses single packets in both directions, because a guest segments
bursts before they leave it. Rows are medians, with minimum and maximum. `roce` is linked statically; while it
runs, the module rdma_rxe, which owns UDP port 4791, is not loaded. docs/PERFORMANCE.md has the results.

environment: ROCE  the command to measure, linked statically, instead of the one that cargo builds
"""

import json
import re
import statistics
import subprocess
import sys
from dataclasses import dataclass

import guests
from benchmark import Table, Turns, fail, parser, publish
from guests import in_guest, static_roce, vm

ASKS, LISTENS = "a", "b"
ADDRESS = "10.77.0.3"
SIZE = 65536
# Depth of the send queue, and the exponent of the ACK timeout: perftest's own defaults, 67 ms.
SAME = "-t 128 -u 14"
# Seconds that perftest leaves out at either end.
MARGIN = 1

# The name of a test, its verb and MTU.
TESTS = {
    "SEND of 64 KiB, MTU 1024": ("send-bw", 1024),
    "WRITE of 64 KiB, MTU 1024": ("write-bw", 1024),
    "SEND of 64 KiB, MTU 4096": ("send-bw", 4096),
    "WRITE of 64 KiB, MTU 4096": ("write-bw", 4096),
    "READ of 64 KiB, MTU 1024": ("read-bw", 1024),
    "READ of 64 KiB, MTU 4096": ("read-bw", 4096),
}


@dataclass
class Said:
    """What the program that asks has printed, and its exit status."""

    out: str
    err: str
    status: int


def between_guests(listen, ask):
    """Runs both programs, and returns what the one that asks has said."""
    with subprocess.Popen(
        [guests.VM, "run", "-t", "300", LISTENS, listen], env=guests.ENVIRONMENT,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as server:
        in_guest(LISTENS, f"for i in $(seq 600); do {guests.LISTENS} && exit; usleep 50000; done; exit 1")
        ended = subprocess.run(
            [guests.VM, "run", "-t", "300", ASKS, ask], env=guests.ENVIRONMENT,
            capture_output=True, text=True, check=False,
        )
        if ended.returncode != 0:
            # The other may wait for it for ever.
            server.terminate()
    return Said(ended.stdout, ended.stderr, ended.returncode)


class Rxe:
    """perftest on kernel rxe."""

    def begin(self):
        gid = "/sys/class/infiniband/rxe0/ports/1/gids/1"
        for guest in (ASKS, LISTENS):
            in_guest(
                guest,
                "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0 && "
                f"until grep -q ffff:0a4d {gid}; do usleep 50000; done",
            )

    def end(self):
        for guest in (ASKS, LISTENS):
            in_guest(guest, "rmmod rdma_rxe")

    def goodput(self, verb, mtu, seconds):
        amount = f"-D {seconds + 2 * MARGIN} -f {MARGIN} --report_gbits"
        program = guests.perftest(verb, SIZE, mtu, "-d rxe0 -x 1", SAME, amount)
        said = between_guests(program, f"{program} {ADDRESS}")
        row = guests.row_of(said.out, SIZE)
        if said.status == 0 and row:
            return float(row[3])
        if "Failed status" in said.out + said.err:
            return None
        return fail(f"{program} has printed no row:\n{said.out}{said.err}")


class Softroce:
    """`roce perf`."""

    def begin(self):
        pass

    def end(self):
        pass

    def goodput(self, verb, mtu, seconds):
        program = f"roce perf {verb}"
        said = between_guests(
            f"{program} --listen --ip {ADDRESS}",
            f"{program} -s {SIZE} -m {mtu} {SAME} -l 16 -D {seconds} --no-ceiling --json {ADDRESS}",
        )
        if said.status == 0:
            return json.loads(said.out)["gbit_per_s"]
        if "RETRY_EXC" in said.err:
            return None
        return fail(f"{program}:\n{said.err}")


def lost():
    """How many frames the guests have sent since the loss was set, and how many of them were lost."""
    rows = re.findall(r"^\w: (\d+) of (\d+) frames lost$", vm("loss"), re.MULTILINE)
    return [sum(map(int, column)) for column in zip(*rows)]


def shown(values):
    """Median, least and most; a connection that broke has got nothing."""
    numbers = [value or 0 for value in values]
    broke = values.count(None)
    text = f"{statistics.median(numbers):.3f} ({min(numbers):.3f}–{max(numbers):.3f})"
    return f"{text}, {broke} of {len(values)} broke" if broke else text


def main():
    turns, options = Turns(TESTS, 10), parser(__doc__)
    options.add_argument("--kernel", default="6.1", help="as for rxe-vm: 6.1, 6.12 or newest")
    options.add_argument("--loss", action="append", help="a probability; may be given several times")
    turns.add_to(options)
    options = options.parse_args()
    names = turns.chosen(options)
    losses = options.loss or ["0", "0.0001", "0.001", "0.01"]

    engines = {"rxe": Rxe(), "softroce": Softroce()}
    found = {(name, loss, engine): [] for name in names for loss in losses for engine in engines}
    roce = static_roce()
    try:
        for guest in (ASKS, LISTENS):
            print(vm("up", guest, "-k", options.kernel, "-M", "1024").strip(), file=sys.stderr)
            vm("put", guest, roce)
            in_guest(guest, "rmmod rdma_rxe")
        for number in range(options.rounds):
            for engine, runs in engines.items():
                runs.begin()
                for name, loss in [(name, loss) for name in names for loss in losses]:
                    vm("loss", loss)
                    value = runs.goodput(*TESTS[name], options.seconds)
                    found[name, loss, engine].append(value)
                    dropped, sent = lost()
                    print(f"{number + 1}: {name}, {loss}, {engine}: {value}, {dropped} of {sent} lost", file=sys.stderr)
                runs.end()
    finally:
        vm("down", ASKS, LISTENS)

    print("| | loss | rxe, Gbit/s | softroce, Gbit/s | ratio |\n|---|--:|--:|--:|--:|")
    for name in names:
        for loss in losses:
            rxe, ours = (found[name, loss, engine] for engine in engines)
            medians = [statistics.median(value or 0 for value in values) for values in (rxe, ours)]
            ratio = f"{medians[1] / medians[0]:.2f}" if medians[0] else "-"
            print(f"| {name} | {float(loss):.2%} | {shown(rxe)} | {shown(ours)} | {ratio} |")
    if options.publish:
        publish({"rxe-loss": ratios_of(found, names, losses)}, options.rounds,
                "2 guests with 1 emulated CPU each", f"Linux {options.kernel}")


def ratios_of(found, names, losses):
    """The goodput next to rxe's: a row for each test, a column for each loss."""
    table = Table(*((f"{float(loss) * 100:g} %" if float(loss) else "no loss", 1) for loss in losses))
    for name in names:
        medians = [[statistics.median(value or 0 for value in found[name, loss, engine]) for engine in ("softroce", "rxe")]
                   for loss in losses]
        table.add(name, *(ours / rxe if rxe else 0 for ours, rxe in medians))
    return table


if __name__ == "__main__":
    main()
