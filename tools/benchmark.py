"""Common parts of the benchmarks: paths, processes, rounds."""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Target directory of cargo.
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
    """Runs `roce perf` as two processes; the listening one is reached at `host`. Returns the output of the other."""
    listening = [*listening, "--listen", "--port", "0", "--announce"]
    with subprocess.Popen(listening, stdout=subprocess.PIPE, text=True) as other:
        try:
            port = other.stdout.readline().strip()
            said = run(*active, "--port", port, host)
            other.wait()
        except BaseException:
            # It would wait for a client for ever.
            other.kill()
            raise
    return said


class Hosts:
    """Two network namespaces, and between them a pair of veth interfaces, both called wire. Takes root."""

    ips = ["10.9.0.1", "10.9.0.2"]

    def __init__(self):
        name = f"bench-{uuid.uuid4().hex[:8]}"
        self.names = [f"{name}-a", f"{name}-b"]
        # Beginning of command lines in each namespace.
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


RESULTS = ROOT / "docs" / "results.json"


def processor():
    """The model of this machine's processors and how many of them a program may use."""
    models = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
              if line.startswith("model name")]
    return f"{len(os.sched_getaffinity(0))} CPUs, {models[0] if models else platform.machine()}"


class Table:
    """A table of figures: a title and a unit for each column, and rows that begin with their names."""

    def __init__(self, *columns):
        # Title of each column, and its number of decimals.
        self.columns = columns
        self.rows = []

    def add(self, name, *values):
        digits = [digits for _, digits in self.columns]
        self.rows.append({"name": name, "values": [round(*pair) for pair in zip(values, digits, strict=True)]})

    def print(self):
        print("|", "".join(f" {title} |" for title, _ in [("", 0), *self.columns]).lstrip())
        print("|---|" + "--:|" * len(self.columns))
        for row in self.rows:
            cells = [f"{value:.{digits}f}" for value, (_, digits) in zip(row["values"], self.columns, strict=True)]
            print(f"| {row['name']} |", *(f"{cell} |" for cell in cells))
        print()


def publish(tables, rounds, machine=None, kernel=None):
    """Writes tables, by their names, into docs/results.json, with how they were measured. The pages take them from there:
    SNAPSHOTS=write cargo test --test pages."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    command = " ".join([f"tools/{Path(sys.argv[0]).name}", *(word for word in sys.argv[1:] if word != "--publish")])
    for name, table in tables.items():
        if table.rows:
            results[name] = {
                "command": command, "date": datetime.date.today().isoformat(), "rounds": rounds,
                "machine": machine or processor(), "kernel": kernel or f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
                "columns": [{"title": title, "digits": digits} for title, digits in table.columns],
                "rows": table.rows,
            }
    RESULTS.write_text(json.dumps(results, indent=2, ensure_ascii=False, sort_keys=True) + "\n")


def parser(doc):
    """The options of a benchmark that explains itself like this."""
    options = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--publish", action="store_true", help="write the figures into docs/results.json")
    return options


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
