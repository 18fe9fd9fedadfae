#!/usr/bin/env python3
"""Speed of `roce check`, compared with `tshark -T fields` on the same capture.

    cargo build --release --package softroce-tools
    cargo build --release --package softroce-pcap --example generate
    tools/bench-captures.py --bytes 1000000000

The script generates the capture and removes it (or keeps it with --file). The two programs run alternately;
each figure is a median. With --at-least N the exit status is 1 unless tshark is N times slower.
docs/PERFORMANCE.md has the results.
"""

import os
import statistics
import subprocess
import tempfile
import time

from benchmark import TARGET, Table, built, built_roce, fail, parser, publish

# The fields that a checker needs; tshark shows the ICRC and does not check it.
FIELDS = """frame.number frame.time_epoch ip.src ip.dst udp.srcport
    infiniband.bth.opcode infiniband.bth.destqp infiniband.bth.psn infiniband.bth.a
    infiniband.aeth.syndrome infiniband.aeth.msn
    infiniband.reth.va infiniband.reth.r_key infiniband.reth.dmalen
    infiniband.invariant.crc""".split()


class Run:
    """A program that ran to its end: seconds, seconds of CPU, bytes of memory at most."""

    def __init__(self, command):
        begin = time.monotonic()
        with open(os.devnull, "wb") as null:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=null)
            lines = 0
            while piece := process.stdout.read(1 << 20):
                lines += piece.count(b"\n")
            _, status, usage = os.wait4(process.pid, 0)
        self.wall = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            fail(f"{command[0]} ended with status {process.returncode}")
        self.cpu = usage.ru_utime + usage.ru_stime
        self.memory = usage.ru_maxrss * 1024
        self.lines = lines


def measure(file, rounds):
    """The runs of both programs, in turns, and the packets that are in the file."""
    roce = built_roce()
    options = [option for field in FIELDS for option in ("-e", field)]
    commands = {
        "roce check": [roce, "check", file],
        "tshark -T fields": ["tshark", "-n", "-r", file, "-T", "fields", *options],
    }
    found = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            found[name].append(Run(command))
    return found, found["tshark -T fields"][0].lines


def report(found, packets, size, is_published):
    """Prints a table; returns how many times longer tshark takes, by the clock."""
    rounds = len(found["roce check"])
    print(f"{packets} packets, {size} bytes, {rounds} runs each, medians\n")
    table = Table(("packets a second", 0), ("GB/s", 2), ("seconds", 2), ("CPU seconds", 2), ("peak memory, MB", 0))
    median = lambda runs, of: statistics.median(getattr(run, of) for run in runs)
    for name, of_program in found.items():
        wall, cpu, memory = (median(of_program, of) for of in ("wall", "cpu", "memory"))
        table.add(f"`{name}`", packets / wall, size / wall / 1e9, wall, cpu, memory / 1e6)
    table.print()
    if is_published:
        publish({"captures": table}, rounds)
    ours, theirs = found.values()
    ratio, of_cpu = (median(theirs, of) / median(ours, of) for of in ("wall", "cpu"))
    print(f"\ntshark takes {ratio:.1f} times as long, and {of_cpu:.1f} times as much of a CPU")
    return ratio


def main():
    options = parser(__doc__)
    options.add_argument("--bytes", type=int, default=256_000_000, help="of the capture made")
    options.add_argument("--rounds", type=int, default=3, help="runs of each program (3)")
    options.add_argument("--file", help="a capture that there is, instead of one that is made")
    options.add_argument("--at-least", type=float, default=0, help="the ratio that has to come out")
    args = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-captures-") as directory:
        file = args.file
        if file is None:
            how = "cargo build --release --package softroce-pcap --example generate"
            generate = built(TARGET / "release/examples/generate", how)
            file = os.path.join(directory, "made.pcapng")
            subprocess.run([generate, str(args.bytes), file], check=True)
        found, packets = measure(file, args.rounds)
        ratio = report(found, packets, os.path.getsize(file), args.publish)
    if ratio < args.at_least:
        fail(f"{ratio:.1f} times: expected {args.at_least:g} at least")


if __name__ == "__main__":
    main()
