"""Common parts of the benchmarks: paths, processes, rounds."""

import argparse
import datetime
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import uuid
import zlib
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
    """How many processors a program may use, their family without model and clock, and whether the machine is virtual."""
    first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    about = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    model = re.sub(r"\((R|TM)\)", "", about.get("model name", platform.machine())).split("@")[0]
    family = [word for word in model.split() if word not in ("CPU", "Gen", "Processor") and not re.search(r"\d", word)]
    parts = [f"{len(os.sched_getaffinity(0))} CPUs", " ".join(family) or model]
    if "hypervisor" in about.get("flags", "").split():
        parts.append("virtual")
    return ", ".join(parts)


def kernel_version():
    return f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"


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

    def entry(self):
        """Its part of an entry of docs/results.json."""
        columns = [{"title": title, "digits": digits} for title, digits in self.columns]
        return {"columns": columns, "rows": self.rows}


class Plot(Table):
    """A table that is shown as a plot: a line for each column, and a place on the horizontal axis for each row."""

    def __init__(self, titles, *columns):
        super().__init__(*columns)
        # Fields of `Plot` in tests/support/plot.rs.
        self.titles = titles

    def add(self, name, at, *values):
        super().add(name, *values)
        self.rows[-1]["at"] = at

    def entry(self):
        return super().entry() | {"plot": self.titles}


def publish(tables, rounds, machine=None, kernel=None):
    """Writes tables and plots, by their names, into docs/results.json, with how they were measured. The pages take them from
    there: SNAPSHOTS=write cargo test --test pages."""
    entries = {name: table.entry() for name, table in tables.items() if table.rows}
    publish_entries(entries, machine, kernel, rounds=rounds)


def publish_recordings(pictures):
    """Writes pictures into docs/, and when and how they were recorded into docs/results.json. The pictures are pairs of a
    title and SVG, by their names."""
    for name, (_, svg) in pictures.items():
        (ROOT / "docs" / f"{name}.svg").write_text(svg)
    publish_entries({name: {"recording": {"title": title, "crc32": zlib.crc32(svg.encode())}}
                     for name, (title, svg) in pictures.items()})


def publish_entries(entries, machine=None, kernel=None, **more):
    words = [word for word in sys.argv[1:] if word != "--publish"]
    how = {
        "command": shlex.join([f"tools/{Path(sys.argv[0]).name}", *words]), "date": datetime.date.today().isoformat(),
        "machine": machine or processor(), "kernel": kernel or kernel_version(), **more,
    }
    results = json.loads(RESULTS.read_text())
    for name, entry in entries.items():
        entry = entry | how
        is_partial = any(word.split("=")[0] == "--only" for word in words)
        results[name] = with_other_rows(name, entry, results[name]) if is_partial and name in results else entry
    RESULTS.write_text(json.dumps(results, indent=2, ensure_ascii=False, sort_keys=True) + "\n")


def with_other_rows(name, entry, before):
    """The entry with the rows of the one before that were not measured, in its order. Such a mixture has the command of the
    entry before, which measures all rows, and the fewest rounds; the date is that of the last measurement. It takes the same
    columns, machine and kernel."""
    measured = {row["name"]: row for row in entry.get("rows", [])}
    if all(row["name"] in measured for row in before.get("rows", [])):
        return entry
    for what in ("columns", "machine", "kernel"):
        if entry[what] != before[what]:
            fail(f"{name} has rows that --only leaves out, with other {what}: {before[what]}, not {entry[what]}")
    rows = [measured.pop(row["name"], row) for row in before["rows"]]
    rounds = min(entry["rounds"], before["rounds"])
    return entry | {"rows": rows + list(measured.values()), "command": before["command"], "rounds": rounds}


def parser(doc):
    """The options of a benchmark that explains itself like this."""
    options = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
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
        options.add_argument("--only", default="", help="tests whose name begins like this, several with commas")

    def chosen(self, options):
        """The names of the tests that are asked for."""
        names = [name for name in self.known if name.startswith(tuple(options.only.split(",")))]
        if not names:
            fail(f"no test begins with '{options.only}': {'; '.join(self.known)}")
        if options.rounds < 1 or options.seconds <= 0:
            fail("--rounds is at least 1, and --seconds more than 0")
        return names
