#!/usr/bin/env python3
"""Runs programs of other projects on softroce, each with its own verification: docs/COMPATIBILITY.md.

    tools/zoo.py --roce PATH [--write PAGE] [PROGRAM...]    all programs of CI, or those named; "nightly": those that
                                                            run by name only
    tools/zoo.py --roce PATH --starts N [--load N] [--mode MODE] PROGRAM...
                                                            each of these N times, beside busy processes: the time of each
                                                            run, and failures
    tools/zoo.py --roce PATH --memcheck [PROGRAM...]        each once with its processes under valgrind: errors with a
                                                            function of softroce
    tools/zoo.py --packages [PROGRAM...]                    the Debian packages that they need
    tools/zoo.py --list                                     the names, and which of them run by name only

Each program runs over UDP sockets, over shared memory, with 1 % of all packets lost, and once with its packets checked
(`roce run --check`). Where a program prints its speed, it also runs over TCP, without softroce. A failure prints the output
of both sides, and the exit status is 1. `tools/ci.sh zoo` installs the packages and builds roce. Everything runs in
namespaces of its own for the network and for processes, so that no program finds what another has left.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent / "zoo"
sys.path.insert(0, str(HERE))
from programs import DEVICE, PROGRAMS, PROVIDER, Memcheck  # noqa: E402

# Packages that pip installs stay there for the next run.
INSTALLED = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target")).resolve() / "zoo"
TIME_LIMIT_S = 120
LISTEN_LIMIT_S = 20
# A server opens its device before it listens to the connection manager. Starts of a client that finds no listener.
CLIENT_STARTS = 3
# State of a listening TCP socket in /proc/net/tcp.
LISTEN = "0A"
# Modes of a run: the name in the page, and options of roce run.
MODES = {
    "UDP": [],
    "shm": ["--via", "shm"],
    "1 % loss": ["--impair", "loss=0.01,seed=1"],
    "checked": ["--check"],
}
COLUMNS = ["program", "package", "run", *MODES, "valgrind", "speed, TCP is 1: UDP; shm", "date"]
# Time limit of a run under valgrind, which is some thirty times slower.
MEMCHECK_LIMIT_S = 240
MEMCHECK = ["valgrind", "--trace-children=yes", "--fair-sched=yes", "--track-origins=yes", "--error-limit=no",
            "--log-file={build}/memcheck.%p.log",
            f"--suppressions={HERE.parent}/sanitize/memcheck.supp"]
# Frames of the libraries of softroce, in a log of valgrind.
OURS = re.compile(r"libibverbs\.so\)|libsoftroce_paths\.so\)")
# Frames that an error of any caller has on top: functions of libc, and those that valgrind replaces.
BELOW_US = re.compile(r"/vgpreload_|/libc\.so|/libc-|\(vg_replace")


class Failure(Exception):
    """A program did not do what it should; the text has its output."""


@contextmanager
def started(command, environment, output):
    """Runs a command in a process group of its own, which ends with the block."""
    process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                               start_new_session=True)
    try:
        yield process
    finally:
        try:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def end_all():
    """Ends what a program has left: this is the first process of a namespace of processes."""
    assert os.getpid() == 1
    try:
        os.kill(-1, signal.SIGKILL)
        while True:
            os.wait()
    except (ProcessLookupError, ChildProcessError):
        pass


def is_listening(port):
    """Whether a process of this namespace has a TCP socket that listens at a port, or the UDP socket of a device."""
    protocol = "udp" if port == DEVICE else "tcp"
    for table in (f"/proc/net/{protocol}", f"/proc/net/{protocol}6"):
        rows = [row.split() for row in Path(table).read_text().splitlines()[1:]]
        if any((port == DEVICE or row[3] == LISTEN) and int(row[1].rsplit(":", 1)[1], 16) == port for row in rows):
            return True
    return False


class Run:
    """One run of a program: the output of both sides, and how long it took."""

    def __init__(self, build, program, prefix, change=None, limit_s=None):
        """`change` has the commands and variables of a run over TCP."""
        self.program, self.prefix, self.build, self.limit_s = program, prefix, build, limit_s or program.limit_s or TIME_LIMIT_S
        self.command = (change and change.command) or program.command
        self.client = (change and change.client) or program.client
        own = {**(program.environment or {}), **((change and change.environment) or {})}
        self.environment = {**os.environ, **{name: self.filled([value])[0] for name, value in own.items()}}
        self.port = (change and change.port) or program.port
        self.logs = [build / name for name in ("first.log", "second.log")]
        self.took = None

    def filled(self, words):
        places = {"{build}": self.build, "{python}": environment_of(self.program) / "bin/python",
                  "{bin}": environment_of(self.program) / "bin", "{crates}": INSTALLED / "crates",
                  "{sources}": INSTALLED / "sources"}
        for name, place in places.items():
            words = [word.replace(name, str(place)) for word in words]
        return words

    def said(self):
        return "\n".join(log.read_text(errors="replace") for log in self.logs)

    def run(self):
        try:
            return self.run_both()
        finally:
            end_all()

    def run_both(self):
        for log in self.logs:
            log.write_bytes(b"")
        start = time.monotonic()
        with open(self.logs[0], "wb") as output, started(self.prefix + self.filled(self.command), self.environment,
                                                        output) as server:
            if self.client:
                self.wait_for_listener(server)
                self.run_client(server)
                if self.program.ends:
                    self.wait(server)
                    self.judge(server, "server")
            else:
                self.wait(server)
                self.judge(server, "program")
        self.took = time.monotonic() - start
        return self

    def run_client(self, server):
        for attempt in range(CLIENT_STARTS):
            with open(self.logs[1], "wb") as output, started(self.prefix + self.filled(self.client), self.environment,
                                                            output) as client:
                self.wait(client)
            # The server of a program with TCP listened before.
            has_failed = client.returncode not in (self.program.statuses or (client.returncode,))
            if not (has_failed and self.program.port == DEVICE and server.poll() is None and attempt + 1 < CLIENT_STARTS):
                return self.judge(client, "client")

    def judge(self, process, side):
        if self.program.statuses is not None and process.returncode not in self.program.statuses:
            raise Failure(f"exit status {process.returncode} of the {side}\n{self.said()}")

    def wait(self, process):
        try:
            process.wait(self.limit_s)
        except subprocess.TimeoutExpired:
            raise Failure(f"it has not ended after {self.limit_s} s\n{self.said()}") from None

    def wait_for_listener(self, server):
        """Waits until the server listens. No event announces it."""
        limit = time.monotonic() + self.limit_s * LISTEN_LIMIT_S / TIME_LIMIT_S
        while not is_listening(self.port):
            if server.poll() is not None or time.monotonic() > limit:
                raise Failure(f"the server does not listen (exit status {server.poll()})\n{self.said()}")
            time.sleep(0.02)


class Zoo:
    """Runs programs with the files that they need in a temporary directory."""

    def __init__(self, roce, build):
        self.roce, self.build = roce, build
        (build / "dat.conf").write_text(
            f'{PROVIDER} u2.0 nonthreadsafe default libdaploscm.so.2 dapl.2.0 "softroce0 1" ""\n')

    def prepare(self, program):
        """Builds what a program needs."""
        for command in program.build:
            built = subprocess.run(Run(self.build, program, []).filled(command), capture_output=True, text=True)
            if built.returncode != 0:
                raise Failure(f"{built.args}: exit status {built.returncode}\n{built.stdout}{built.stderr}")

    def run(self, program, mode):
        """Runs a program in one mode. Returns the cell of the table, and the output."""
        options = MODES[mode]
        run = Run(self.build, program, [str(self.roce), "run", *options, "--"]).run()
        said = run.said()
        missing = [words for words in program.says if words not in said]
        if missing:
            raise Failure(f"it does not say {missing}\n{said}")
        if mode != "checked":
            return f"{run.took:.1f}", said
        checked = sum(int(packets) for packets in re.findall(r"(\d+) of RoCEv2; ICRC", said))
        if program.sends and not checked:
            raise Failure(f"no packet was sent over RoCE\n{said}")
        return f"{checked} packets", said

    def start_often(self, program, mode, starts, load):
        """Runs a program many times beside busy processes. Returns the seconds of each run, and the number of failures."""
        seconds, failures = [], 0
        for number in range(1, starts + 1):
            # The end of a run ends all processes of the namespace.
            for _ in range(load):
                subprocess.Popen(["sh", "-c", "while :; do :; done"], stdin=subprocess.DEVNULL)
            start = time.monotonic()
            try:
                self.run(program, mode)
            except Failure as failure:
                failures += 1
                end_all()
                print(f"{program.name}, start {number}: {failure}", file=sys.stderr, flush=True)
            seconds.append(time.monotonic() - start)
            print(f"{program.name}, {mode}, load {load}, start {number}: {seconds[-1]:.1f} s", flush=True)
        return seconds, failures

    def memcheck(self, program):
        """Runs a program under valgrind. Returns the cell of the table."""
        for log in self.build.glob("memcheck.*"):
            log.unlink()
        settings = program.memcheck or Memcheck("")
        commands = {"command": program.command, "client": program.client}
        commands = {side: words and [*words, *settings.words] for side, words in commands.items()}
        run = Run(self.build, replace(program, **commands), [], limit_s=MEMCHECK_LIMIT_S)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", self.build / "copies.so", HERE / "copies.c"], check=True)
        run.environment |= {"LD_PRELOAD": str(self.build / "copies.so"), **settings.environment}
        run.prefix = [str(self.roce), "run", "--", *run.filled(MEMCHECK), *settings.options]
        said = run.run().said()
        missing = [words for words in program.says if words not in said]
        if missing:
            raise Failure(f"it does not say {missing}\n{said}")
        logs = [log.read_text(errors="replace") for log in self.build.glob("memcheck.*")]
        errors = [error for log in logs for error in errors_of_ours(log)]
        if errors:
            raise Failure("\n\n".join(errors))
        return f"{len(logs)} processes" if len(logs) > 1 else "1 process"

    def speed(self, program, outputs, rounds):
        """The cell for speeds next to TCP, medians of rounds; `outputs` has the output of the first round over UDP and over
        shared memory."""
        if not program.speeds:
            return ""
        ratios = {speed.name: [] for speed in program.speeds}
        for number in range(rounds):
            if number > 0:
                outputs = [self.run(program, mode)[1] for mode in ("UDP", "shm")]
            for speed in program.speeds:
                over_tcp = figure(speed.figure, Run(self.build, program, [], speed).run().said())
                ratios[speed.name].append([figure(speed.figure, said) / over_tcp for said in outputs])
        medians = {name: [median(values) for values in zip(*found)] for name, found in ratios.items()}
        return ", ".join(f"{name} {'; '.join(map(ratio_text, values))}" for name, values in medians.items())


def ratio_text(ratio):
    return f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}"


def is_ours(stack):
    """Whether the first function above libc in a part of a log of valgrind is one of softroce's."""
    frames = re.findall(r"^==\d+==    (?:at|by) (.*)$", stack, re.MULTILINE)
    above = [frame for frame in frames if not BELOW_US.search(frame)]
    return bool(above) and bool(OURS.search(above[0]))


def errors_of_ours(log):
    """The errors of softroce in a log of valgrind. Uninitialized values count if their memory is softroce's too: programs
    leave fields of structures uninitialized that a call does not use."""
    errors = []
    for block in re.split(r"^==\d+== $\n", log, flags=re.MULTILINE):
        error, _, origin = block.partition("Uninitialised value was created")
        if is_ours(error) and (not origin or is_ours(origin)):
            errors.append(block.rstrip())
    return errors


def figure(pattern, said):
    found = re.findall(pattern, said, re.MULTILINE)
    if not found:
        raise Failure(f"no figure: {pattern}\n{said}")
    return float(found[-1])


def version(program):
    """The package and its version."""
    if program.wheels or program.source:
        return [*program.wheels, program.source][0].replace("==", " ")
    if program.crate:
        return f"{program.crate.name} {program.crate.version}"
    asked = ["dpkg-query", "-W", "-f=${Package} ${Version}\n", program.packages[0]]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def kept_rows(path):
    """The rows of a page by the name of the program."""
    if path is None or not path.exists():
        return {}
    rows = [line.strip("| \n").split(" | ") for line in path.read_text().splitlines() if line.startswith("| ")]
    return {row[0]: row for row in rows[1:] if len(row) == len(COLUMNS)}


def in_defaults(rows):
    """The sentence about programs that run as they are, by their rows."""
    names = {row[0] for row in rows if "fails" not in row}
    plain = [program.name for program in PROGRAMS if program.name in names and not program.has_settings]
    sentence = (f"{len(plain)} of these {len(rows)} rows need nothing but `roce run`, no variable and no option or file that "
                f"selects a transport, a GID or a provider: {', '.join(plain)}.")
    return textwrap.fill(sentence, 120)


def median_speeds(rows):
    """The sentence with the medians of all speeds next to TCP."""
    ratios = {}
    for row in rows:
        for name, udp, shm in re.findall(r"(\w+) ([\d.e+]+); ([\d.e+]+)", row[-2]):
            ratios.setdefault(name, []).append((float(udp), float(shm)))
    medians = [f"{name} {median(udp for udp, _ in values):.2g} over UDP and {median(shm for _, shm in values):.2g} over shm"
               for name, values in ratios.items()]
    return f"Medians of these speeds, where TCP is 1: {', '.join(medians)}."


def without_memcheck():
    """The list of programs that valgrind does not run, with reasons."""
    return "\n".join(f"- {program.name}: {program.no_memcheck}." for program in PROGRAMS if program.no_memcheck)


def memcheck_settings():
    """The list of programs that bear valgrind with options or variables only, with reasons."""
    lines = []
    for program in PROGRAMS:
        if settings := program.memcheck:
            variables = [f"{name}={value}" for name, value in settings.environment.items()]
            words = " ".join([*variables, *settings.options, *settings.words])
            lines.append(f"- {program.name}, `{words}`: {settings.why}.")
    return "\n".join(lines)


def page(rows):
    """The page for the results of a run."""
    table = "\n".join("| " + " | ".join(row) + " |" for row in [COLUMNS, ["---"] * len(COLUMNS), *rows])
    return f"""# Compatibility

Programs of other projects, as their users start them, under `roce run --`, on {os.cpu_count()} processors, both sides on one
machine. `tools/ci.sh zoo` runs them and writes this page; those that need minutes or gigabytes run by name
(`tools/ci.sh zoo NAME`), and keep their row with its date. Each program verifies its data where it can.

The columns UDP, shm and 1 % loss have the seconds of a run over UDP sockets, over shared memory, and over UDP sockets where
each side loses one packet in a hundred in each direction. The column *checked* has the packets of a run, as both sides
captured them, in which `roce check` found no violation. The column *valgrind* has the processes of a run under valgrind, in
which no error is one of softroce (`tools/ci.sh zoo --memcheck`). Speeds are those that the program prints, next to the same program
over TCP in the same minute, of one run each, or medians with `--rounds N`: more is better for a bandwidth, less for a latency.
[Programs that were run](DROPIN.md) has more.

Not supported: programs that need raw packet queue pairs, DC transport, or memory of a graphics adapter; statically linked
programs ([what does not work](DROPIN.md#what-does-not-work)). Of DAPL, `dtestx` is not in the table. Over librdmacm
(`libdaplofa`, with `"lo 0"` in `dat.conf`) its writes with immediate data and its atomics pass, but its server sends its
address before it listens: in some runs the request of its client is rejected.

What programs do on any adapter, and surprises here:

- Mooncake's `transfer_engine_bench` takes some 10 ms a batch on two processors, whatever is in it. Its thread that submits
  and both that transfer poll without a pause, mostly in code of their own. They share the processors in time slices of
  milliseconds, and a batch passes from one to the other and back. Threads that wait for TCP sleep, and run as soon as data is there.
- Ceph 16 with a monitor at an address of protocol 1 (`v1:`): a command or an OSD sometimes ends with `EPERM` ("problem getting
  command descriptions", "wrong fsid"). With that protocol `authenticate` of Ceph's `MonClient` returns before the map of the
  monitors is there, and a command sent until then has zeros as the identifier of the cluster. 17 of 100 commands ended so over
  RDMA, 1 of 100 over TCP, and 14 of 20 over TCP when each read returns at most 100 bytes after 0.2 ms. With protocol 2
  `authenticate` waits for the map: none of 100 over RDMA. Use `v2:` addresses, as the run here does.
- `fi_pingpong` over `verbs;ofi_rxd` waits forever in some runs with 1 % loss. libfabric's `rxd` retransmits and acknowledges
  only while a program reads a completion queue (`FI_PROGRESS_MANUAL`). After the last message of a size, and after its last
  message, `fi_pingpong` reads TCP or ends, and reads no queue: if that message or its acknowledgement is lost, the other side
  waits. Of 120 runs 8 ended so; over `udp;ofi_rxd`, without RDMA, 3 of 120 at the same loss. With a `fi_pingpong` that reads
  its queues while it waits, none of 120 did over either. Open MPI reads its queues: *mpi4py (libfabric)* runs with loss.
- Open MPI 5 with UCX: one-sided operations end with "remote access error". The strong fence of UCX reads 8 bytes with a key,
  which is 0xff for adapters other than NVIDIA's, and no adapter has that key. `UCX_FENCE_MODE=weak` leaves that out.
- `ucx_perftest` waits forever if its peer ends before both are connected, over TCP too, and ends with `SIGABRT` later.
- Speeds below that of TCP. Over UDP sockets these programs spend two thirds to four fifths of their CPU time in the
  kernel ([profiles](PERFORMANCE.md#programs-of-other-projects), which has some over shared memory too).
  `ucx_perftest` over RC announces a message of 64 KiB with a SEND, the receiver READs it, and another SEND releases it.
  Over UD UCX cuts a message into datagrams of 4 KiB and hands over each by itself, and two or three leave in one call.
  `rstream` writes 64 KiB a call, and TCP moves such streams 1.6 times as fast as bare UDP; a quarter of the time, and
  over shared memory 37 %, it compares bytes. `ucx_perftest` asleep sleeps in `epoll_wait`, so each message wakes a
  thread of the device and then the process, until that thread polls too: in runs as short as this one its latency is
  0.5 to 5.5 times that of TCP.
- Beside eight busy processes (`tools/zoo.py --starts 20 --load 8`) all of 20 starts of Ceph ended well, after 29 to 33 s, and
  all of NIXL, after 2 to 27 s. NIXL polls under a spin lock: a thread that loses its processor there leaves the others
  spinning for a time slice of the busy processes.
- A program that ends as soon as it has what it wants, such as `ibv_rc_pingpong`, does not answer when its last
  acknowledgement is lost: its peer fails with `IBV_WC_RETRY_EXC_ERR`.

{in_defaults(rows)}

{median_speeds(rows)}

{table}

Not run under valgrind:

{without_memcheck()}

Run under valgrind with settings that they do not need otherwise:

{memcheck_settings()}
"""


def run_all(zoo, chosen, kept, rounds):
    """Runs programs, and those that print a speed in rounds. Returns the rows of the page by name, and the number of failures.
    `kept` has rows of earlier runs."""
    rows, failures = {}, 0

    def failed(program, mode, failure):
        nonlocal failures
        failures += 1
        print(f"{program.name}, {mode}: {failure}", file=sys.stderr, flush=True)
        return "fails"

    for program in chosen:
        try:
            zoo.prepare(program)
        except Failure as failure:
            cells = [failed(program, "build", failure), *[""] * len(MODES), ""]
            rows[program.name] = [program.name, "", program.what, *cells, ""]
            continue
        cells, outputs = [], []
        for mode in MODES:
            if mode == "1 % loss" and not (program.loss and program.sends):
                cells.append("–")
                continue
            try:
                cell, said = zoo.run(program, mode)
                outputs.append(said)
                cells.append(cell)
            except Failure as failure:
                cells.append(failed(program, mode, failure))
            print(f"{program.name}, {mode}: {cells[-1]}", flush=True)
        cells.append(kept[program.name][COLUMNS.index("valgrind")] if program.name in kept else "–")
        try:
            cells.append(zoo.speed(program, outputs[:2], rounds) if "fails" not in cells else "")
        except Failure as failure:
            cells.append(failed(program, "TCP", failure))
        if cells[-1]:
            print(f"{program.name}, speed over that of TCP: {cells[-1]}", flush=True)
        rows[program.name] = [program.name, version(program), program.what, *cells, str(date.today())]
    return rows, failures


def memcheck_all(zoo, chosen, kept):
    """Runs programs under valgrind, and puts the results into their rows. Returns the number of failures."""
    failures = 0
    for program in chosen:
        if program.no_memcheck:
            print(f"{program.name}, valgrind: not run: {program.no_memcheck}", flush=True)
            continue
        try:
            zoo.prepare(program)
            cell = zoo.memcheck(program)
        except Failure as failure:
            failures += 1
            cell = "fails"
            print(f"{program.name}, valgrind: {failure}", file=sys.stderr, flush=True)
        print(f"{program.name}, valgrind: {cell}", flush=True)
        if program.name in kept:
            kept[program.name][COLUMNS.index("valgrind")] = cell
    return failures


def start_all_often(zoo, chosen, mode, starts, load):
    """Runs each program many times. Returns the number of failures."""
    failures = 0
    for program in chosen:
        zoo.prepare(program)
        seconds, failed = zoo.start_often(program, mode, starts, load)
        failures += failed
        print(f"{program.name}, {mode}, load {load}: {starts} starts, {failed} failures, median {median(seconds):.1f} s, "
              f"slowest {max(seconds):.1f} s (start {seconds.index(max(seconds)) + 1})", flush=True)
    return failures


def install(chosen):
    """Installs what comes from PyPI and crates.io. The namespace has no network."""
    for crate in {program.crate.name: program.crate for program in chosen if program.crate}.values():
        chosen_of_crate = [word for name in crate.examples for word in ("--example", name)]
        command = ["cargo", "install", "--quiet", "--locked", "--root", INSTALLED / "crates" / crate.name, "--target-dir",
                   INSTALLED / "build", "--features", ",".join(crate.features), *chosen_of_crate]
        subprocess.run([*command, "--version", f"={crate.version}", crate.name], check=True)
    for program in chosen:
        pip = environment_of(program) / "bin/pip"
        if program.wheels or program.source:
            subprocess.run(["/usr/bin/python3", "-m", "venv", environment_of(program)], check=True)
        if program.wheels:
            subprocess.run([pip, "install", "--quiet", *program.wheels], check=True)
        if program.source:
            download(pip, program.source, INSTALLED / "sources")


def environment_of(program):
    """The virtual environment of Python for a program: wheels of two MPIs have files of the same names."""
    return INSTALLED / "venvs" / (program.wheels[0].split("==")[0] if program.wheels else "none")


def download(pip, package, folder):
    """Unpacks the source of a package of PyPI in a folder."""
    with tempfile.TemporaryDirectory() as place:
        options = ["--quiet", "--no-deps", "--no-binary", package.split("==")[0], "--dest", place]
        subprocess.run([pip, "download", *options, package], check=True)
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-C", folder, "-xf", *Path(place).iterdir()], check=True)


def enter_namespace():
    """Starts this script again in namespaces of its own for the network and for processes.

    Ports that Linux chooses for connections are behind those at which programs listen (`dtest`: 45248). Otherwise one of
    an earlier program, in TIME_WAIT, can be that of a server.
    """
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    inside = 'ip link set lo up && echo 49152 60999 >/proc/sys/net/ipv4/ip_local_port_range && exec "$@"'
    unshare = ["unshare", *user, "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", inside, "zoo"]
    os.execvpe("unshare", [*unshare, sys.executable, *sys.argv], {**os.environ, "ZOO_NAMESPACE": "1"})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--roce", type=Path, help="the command, with its libraries beside it")
    parser.add_argument("--write", type=Path, help="write the page with the results")
    parser.add_argument("--packages", action="store_true", help="print the Debian packages that the programs need")
    parser.add_argument("--list", action="store_true", help="print the names of the programs")
    parser.add_argument("--rounds", type=int, metavar="N", default=1, help="speeds are medians of N rounds in turns with TCP")
    parser.add_argument("--starts", type=int, metavar="N", help="run each program N times in one mode, and write no page")
    parser.add_argument("--load", type=int, metavar="N", default=0, help="busy processes beside the starts")
    parser.add_argument("--mode", choices=MODES, default="UDP", help="mode of the starts")
    parser.add_argument("--memcheck", action="store_true", help="run under valgrind, and write that column only")
    parser.add_argument("programs", nargs="*", help="names of programs, as in the page")
    arguments = parser.parse_args()
    named = {name.lower() for name in arguments.programs}
    is_nightly = named == {"nightly"}
    chosen = [program for program in PROGRAMS
              if (program.name.lower() in named if named and not is_nightly else program.by_name == is_nightly)]
    unknown = named - {program.name.lower() for program in chosen} - {"nightly"}
    if unknown:
        parser.error(f"no such program: {', '.join(unknown)}")
    if arguments.list:
        for program in PROGRAMS:
            print(program.name + (" (by name)" if program.by_name else ""))
        return 0
    if arguments.packages:
        print(*sorted({package for program in chosen for package in program.packages}))
        return 0
    if arguments.rounds < 1:
        parser.error(f"--rounds {arguments.rounds}: expected at least 1")
    if not arguments.roce:
        parser.error("--roce is missing")
    if "ZOO_NAMESPACE" not in os.environ:
        install(chosen)
        enter_namespace()
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="roce-zoo-") as build:
        zoo, rows = Zoo(arguments.roce.resolve(), Path(build)), kept_rows(arguments.write)
        if arguments.starts:
            failures = start_all_often(zoo, chosen, arguments.mode, arguments.starts, arguments.load)
        elif arguments.memcheck:
            failures = memcheck_all(zoo, chosen, rows)
        else:
            new, failures = run_all(zoo, chosen, rows, arguments.rounds)
            rows.update(new)
    if arguments.write and not arguments.starts:
        arguments.write.write_text(page([rows[program.name] for program in PROGRAMS if program.name in rows]))
    print(f"{len(chosen)} programs, {failures} failures, {time.monotonic() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
