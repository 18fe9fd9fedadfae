"""What the benchmarks of this folder have in common: where things are, how they are run, how often."""

import argparse
import os
import subprocess
import sys
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Where cargo puts what it builds.
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
ROCE = TARGET / "release" / "roce"


def fail(why):
    sys.exit(f"{Path(sys.argv[0]).stem}: {why}")


def run(*command, **more):
    """Runs a program, which must succeed, and returns what it has printed."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    if ended.returncode != 0:
        fail(f"{' '.join(map(str, command))}: {ended.stderr.strip() or ended.stdout.strip()}")
    return ended.stdout


def built(path, how):
    if not path.exists():
        fail(f"{path} is not there: {how}")
    return str(path)


def built_roce():
    return built(ROCE, "cargo build --release --package softroce-tools")


def both_sides(active, listening, host):
    """Runs `roce perf` as two processes, of which the one that listens is reached at `host`. Returns what the other has
    printed."""
    listening = [*listening, "--listen", "--port", "0", "--announce"]
    with subprocess.Popen(listening, stdout=subprocess.PIPE, text=True) as other:
        port = other.stdout.readline().strip()
        said = run(*active, "--port", port, host)
        other.wait()
    return said


class Hosts:
    """Two network namespaces, and between them a pair of veth interfaces, both called wire. Takes root."""

    ips = ["10.9.0.1", "10.9.0.2"]

    def __init__(self):
        name = f"bench-{uuid.uuid4().hex[:8]}"
        self.names = [f"{name}-a", f"{name}-b"]
        # What the command lines of programs there begin with.
        self.begin = [["ip", "netns", "exec", name] for name in self.names]

    def __enter__(self):
        a, b = self.names
        for name in self.names:
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "link", "add", "wire", "netns", a, "mtu", "9000", "type", "veth",
            "peer", "name", "wire", "netns", b, "mtu", "9000")
        for begin, ip in zip(self.begin, self.ips):
            self.lay(begin, ip)
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False)

    def lay(self, begin, ip):
        """Puts the address on the interface of a host, as the benchmark wants it, and that up."""
        raise NotImplementedError


def parser(doc):
    """The options of a benchmark that explains itself like this."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )


class Turns:
    """Tests that take turns, and how often and how long they do."""

    def __init__(self, known, seconds):
        self.known = known
        self.seconds = seconds

    def add_to(self, options):
        options.add_argument("--rounds", type=int, default=7)
        kind = type(self.seconds)
        options.add_argument(
            "--seconds", type=kind, default=self.seconds, help="of each test in a round"
        )
        options.add_argument("--only", default="", help="tests whose name begins like this")

    def chosen(self, options):
        """The names of the tests that are asked for."""
        names = [name for name in self.known if name.startswith(options.only)]
        if not names:
            fail(f"no test begins with '{options.only}': {'; '.join(self.known)}")
        if options.rounds < 1 or options.seconds <= 0:
            fail("--rounds is at least 1, and --seconds more than 0")
        return names
