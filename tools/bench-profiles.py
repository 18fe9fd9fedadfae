#!/usr/bin/env python3
"""Where the time of other projects' programs goes on softroce.

    CARGO_PROFILE_RELEASE_STRIP=none cargo build --release
    tools/bench-profiles.py
    tools/bench-profiles.py --via shm
    tools/bench-profiles.py --only 'UCX: `tag_bw`' --publish

Runs tests of tools/bench-programs.py under `roce run` while perf samples both sides, and prints the share of each part in
the samples: over UDP sockets, or with --via shm over shared memory those that gain least there. Needs perf (Debian:
linux-perf), and permission to sample the kernel; rstream needs `unshare -n`. docs/PERFORMANCE.md has the results.
"""

import importlib.util
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmark import Table, Turns, built_roce, fail, parser, publish, run

# The parts, in the order of the columns. A sample belongs to the first with a matching object and symbol.
PARTS = {
    "kernel": (r"\[kernel|\[guest\.kernel|\.ko$", ""),
    "ICRC": ("libibverbs", r"icrc|crc32"),
    "memory, copies": (r"libibverbs|libc\.so", r"mem(cpy|move|set)|softroce::mem::"),
    "engine": ("libibverbs", r"softroce::(engine|transport|wire|net|psn)"),
    "runtime, ports, verbs": ("libibverbs", ""),
    "program and its libraries": ("", ""),
}
# A sample of a program of the tests or of a device's thread.
SAMPLE = re.compile(r"\s*(?:ib_|ucx_|async|qperf|rstream|python|mpirun|orted|softroce)\S*.*?"
                    r"\s+[0-9a-f]+ (?P<symbol>.*) \((?P<thing>[^()]*)\)$")
# perftest reads the clock for half a second before it begins.
CLOCK = "[vdso]"
TESTS = ["perftest: `ib_write_bw`, 64 B", "perftest: `ib_send_bw`, 4 KiB", "perftest: `ib_write_bw`, 64 KiB",
               "perftest: `ib_send_lat`, 64 B", "UCX: `tag_bw`, 4 KiB", "UCX: `tag_bw`, 64 KiB", "UCX: `ucp_put_bw`, 4 KiB",
               "UCX: `tag_lat`, 64 B", "UCX: `tag_lat`, 64 KiB", "UCX: `stream_bw`, 64 KiB", "UCX: `tag_bw` over UD, 64 KiB",
               "rsockets: `rstream`, 64 KiB", "asleep: `qperf rc_lat`, 1 B", "asleep: UCX `tag_lat`, `-E sleep`, 64 B",
               "Open MPI: ring, 4 KiB", "Open MPI: ring, 64 KiB"]
# Over shared memory: one of each kind of those that are at most twice as fast as over TCP.
SHM_TESTS = ["UCX: `tag_bw`, 1 MiB", "UCX: `stream_bw`, 64 KiB", "UCX: `tag_bw` over UD, 64 KiB",
             "rsockets: `rstream`, 64 KiB", "Open MPI: ring, 64 KiB"]


def programs():
    """The module of tools/bench-programs.py, whose name is none of a module."""
    path = Path(__file__).with_name("bench-programs.py")
    spec = importlib.util.spec_from_file_location("programs", path)
    module = importlib.util.module_from_spec(spec)
    # Its data classes look themselves up there.
    sys.modules["programs"] = module
    spec.loader.exec_module(module)
    return module


def part_of(thing, symbol):
    for part, (things, symbols) in PARTS.items():
        if re.search(things, thing) and re.search(symbols, symbol):
            return part
    raise AssertionError("the last part takes everything")


def samples(file):
    """Number of samples of each part in a recording of perf."""
    found = Counter()
    for line in run("perf", "script", "-i", file, "-F", "comm,ip,sym,dso").splitlines():
        row = SAMPLE.match(line)
        if row is not None and row["thing"] != CLOCK:
            found[part_of(row["thing"], row["symbol"])] += 1
    if not found:
        fail("perf has no samples of the programs")
    return found


def profiled(test, via, seconds):
    """Runs the test while `perf record` samples the machine. Returns the samples of the programs."""
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/samples"
        record = subprocess.Popen(["perf", "record", "-q", "-a", "-F", "997", "-o", file, "sleep", "1000000"],
                                  stderr=subprocess.DEVNULL)
        try:
            test.of_program(via, seconds)
        finally:
            record.terminate()
            record.wait()
        return samples(file)


def main():
    module = programs()
    turns, options = Turns({name: module.TESTS[name] for name in dict.fromkeys(TESTS + SHM_TESTS)}, 3.0), parser(__doc__)
    turns.add_to(options)
    options.add_argument("--via", choices=["udp", "shm"], default="udp", help="port of the devices")
    options = options.parse_args()
    names = [name for name in turns.chosen(options) if name in (TESTS if options.via == "udp" else SHM_TESTS)]
    if not names:
        fail(f"no test over {options.via} begins with '{options.only}'")
    built_roce()
    table = Table(*((f"{part}, %", 0) for part in PARTS))
    for name in names:
        found = sum((profiled(module.TESTS[name][1], options.via, options.seconds) for _ in range(options.rounds)), Counter())
        table.add(name, *(100 * found[part] / found.total() for part in PARTS))
    table.print()
    if options.publish:
        publish({"profiles" if options.via == "udp" else "profiles-shm": table}, options.rounds)


if __name__ == "__main__":
    main()
