#!/usr/bin/env python3
"""Flame graphs of `roce perf` in docs/.

    cargo build --release --package softroce-tools
    cargo install inferno
    tools/bench-flames.py --publish

Needs perf (Debian: linux-perf), and permission to sample the kernel. Each graph shows both sides. Without --publish it
prints the samples of each function.
"""

import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from benchmark import ROCE, both_sides, built_roce, fail, parser, publish_recordings, run

# Name of a graph, and its test.
TESTS = {
    "flame-send-64": "send-bw -s 64 -t 512 -r 2048 -l 64 -Q 16",
    "flame-write-64k": "write-bw -s 65536 -m 4096 -l 16",
}


# Outermost functions of a test, and of the thread of a device.
WITHIN = ("roce::perf::stream::", "runtime::progress::", "runtime::shard::")


def short(name):
    """A function without its crate, its traits and what it is generic over."""
    before = None
    while before != name:
        before = name
        name = re.sub(r"<impl ([^<>]*)>", r"\1", name)
        name = re.sub(r"<([^<>]*?) as [^<>]*>::", r"\1::", name)
        name = re.sub(r"<[^<>]*>", "", name)
    return name.replace("::::", "::").replace("softroce::", "").replace("softroce_tools::", "roce::")


def stacks(script):
    """The functions of each sample, the outermost first."""
    for sample in script.split("\n\n"):
        names = [short(frame.split(maxsplit=1)[1]) for frame in reversed(sample.strip("\n").split("\n")[1:])]
        # Frames around the test: the start of the program and of its threads.
        begin = next((at for at, name in enumerate(names) if name.startswith(WITHIN)), None)
        if begin is not None:
            yield ";".join(names[begin:])


def record(folder, test):
    """The stacks of both sides, each with how often it was seen, below the name of the side."""
    sides = ["the side that posts", "the other side"]
    files = [Path(folder) / str(number) for number in range(2)]
    kind, *load = test.split()
    ips = ["127.0.0.1", "127.0.0.2"]
    a, b = (["taskset", "-c", str(cpu), "perf", "record", "-q", "-F", "997", "--call-graph", "dwarf,32768",
             "-o", file, ROCE, "perf", kind, "--ip", ip] for cpu, (file, ip) in enumerate(zip(files, ips)))
    both_sides([*a, *load, "-D", "1", "--no-ceiling"], b, ips[1])
    found = Counter()
    for side, file in zip(sides, files):
        script = run("perf", "script", "-i", file, "--no-inline", "-F", "comm,tid,time,event,ip,sym")
        found.update(f"{side};{stack}" for stack in stacks(script))
    return "".join(f"{stack} {count}\n" for stack, count in sorted(found.items()))


def flame(title, stacks):
    made = subprocess.run(
        ["inferno-flamegraph", "--title", title, "--subtitle", "both sides, a core each, loopback; the wider the longer",
         "--minwidth", "0.25", "--bgcolors", "#f8f8f6", "--hash", "--countname", "samples"],
        input=stacks, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        fail(f"inferno-flamegraph: {made.stderr.strip()}")
    return made.stdout


def main():
    options = parser(__doc__).parse_args()
    built_roce()
    pictures = {}
    for name, test in TESTS.items():
        with tempfile.TemporaryDirectory() as folder:
            found = record(folder, test)
        title = f"roce perf {test}"
        if options.publish:
            pictures[name] = f"Flame graph of `{title}`", flame(title, found)
        else:
            print(f"{title}\n{found}")
    if options.publish:
        publish_recordings(pictures)


if __name__ == "__main__":
    main()
