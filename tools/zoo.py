#!/usr/bin/env python3
"""Runs programs of other projects on softroce, each with its own verification: docs/COMPATIBILITY.md.

    tools/zoo.py --roce PATH [--write PAGE] [PROGRAM...]    all programs of CI, or those named
    tools/zoo.py --packages                                 the Debian packages that they need

Each program runs over UDP sockets, over shared memory, and once with its packets checked (`roce run --check`). A failure
prints the output of both sides, and the exit status is 1. `tools/ci.sh zoo` installs the packages and builds roce.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

HERE = Path(__file__).resolve().parent / "zoo"
TIME_LIMIT_S = 120
LISTEN_LIMIT_S = 20
# State of a listening socket in /proc/net/tcp.
LISTEN = "0A"
# Smaller rings than the defaults of 70 MB a process, and no transport but RDMA.
UCX = {
    "UCX_TLS": "rc_verbs,ud_verbs:aux,self",
    "UCX_RC_RX_QUEUE_LEN": "256",
    "UCX_UD_RX_QUEUE_LEN": "256",
}
# Modes of a run: the name in the page, and options of roce run.
MODES = {"UDP": [], "shm": ["--via", "shm"], "checked": ["--check"]}


class Failure(Exception):
    """A program did not do what it should; the text has its output."""


@dataclass
class Program:
    """A program, how it is installed and what it must print."""

    name: str
    packages: list
    says: list
    command: list = None
    client: list = None
    # TCP port at which the server listens when it is ready.
    port: int = None
    build: list = None
    environment: dict = None
    statuses: tuple = (0,)
    what: str = ""


def mpi(name, launcher, compiler, packages, environment=None, options=()):
    return Program(
        name,
        packages,
        ["all data is right"],
        [launcher, "-n", "2", *options, "{build}/mpi"],
        build=[compiler, "-O1", "-o", "{build}/mpi", str(HERE / "mpi.c")],
        environment={**UCX, **(environment or {})},
        what="MPI_Alltoall and MPI_Put of 128 KiB between 2 ranks, with MPI_THREAD_MULTIPLE; every integer compared",
    )


def pingpong(kind):
    command = [f"ibv_{kind}_pingpong", "-g", "0", "-n", "200"]
    # The UD and shared-receive programs have no option to validate.
    command += ["-c"] if kind in ("rc", "uc", "srq", "xsrq") else []
    return Program(
        f"ibv_{kind}_pingpong",
        ["ibverbs-utils"],
        ["200 iters" if kind not in ("srq", "xsrq") else "iters"],
        command,
        command + ["localhost"],
        port=18515,
        what="200 messages" + (", validated" if "-c" in command else ""),
    )


def dapl(name, options, client, says, port, statuses=(0,), what=""):
    return Program(
        name,
        ["dapl2-utils", "libdapl2"],
        says,
        [name, *options],
        [name, *client],
        port,
        # DAPL listens at the address of one interface.
        environment={"DAT_OVERRIDE": "{build}/dat.conf", "DAPL_SCM_NETDEV": "lo"},
        statuses=statuses,
        what=what,
    )


PROVIDER = "softroce-scm"
OPENMPI_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
PROGRAMS = [
    Program("ibstat", ["infiniband-diags"], ["CA 'softroce0'", "State: Active"], ["ibstat"], what="the page of the device"),
    Program("ibstatus", ["infiniband-diags"], ["4: ACTIVE"], ["ibstatus"], what="the page of the device"),
    Program("ibv_devinfo", ["ibverbs-utils"], ["PORT_ACTIVE", "GID[  3]"], ["ibv_devinfo", "-v"], what="all attributes"),
    *[pingpong(kind) for kind in ("rc", "uc", "ud", "srq")],
    dapl("dtest", ["-P", PROVIDER, "-b", "65536"], ["-P", PROVIDER, "-b", "65536", "-h", "127.0.0.1"], ["PASSED"], 15828,
         what="RDMA writes, reads and messages of 64 KiB, verified"),
    dapl("dtestsrq", ["-P", PROVIDER], ["-P", PROVIDER, "-h", "127.0.0.1"], ["SRQ Test Complete"], 46248,
         what="messages that two endpoints receive from one queue"),
    dapl("dapltest", ["-T", "S", "-D", PROVIDER],
         ["-T", "T", "-s", "127.0.0.1", "-D", PROVIDER, "-i", "20", "-t", "2", "-w", "2", "client", "SR", "4096", "2",
          "server", "SR", "4096", "2"],
         ["Total WQE"], 63000, statuses=None, what="2 threads with 2 endpoints each, 20 messages of 4 KiB"),
    mpi("MPICH", "mpirun.mpich", "mpicc.mpich", ["mpich", "libmpich-dev"]),
    mpi("Open MPI (UCX)", "mpirun.openmpi", "mpicc.openmpi", ["openmpi-bin", "libopenmpi-dev"], OPENMPI_ROOT,
        ["--oversubscribe", "--mca", "pml", "ucx", "--mca", "osc", "ucx"]),
    Program("Open MPI (OpenSHMEM)", ["openmpi-bin", "libopenmpi-dev"], ["all data is right"],
            ["oshrun", "-n", "2", "--oversubscribe", "{build}/shmem"],
            build=["oshcc", "-O1", "-o", "{build}/shmem", str(HERE / "shmem.c")],
            environment={**UCX, **OPENMPI_ROOT}, statuses=(0, 139),
            what="a put to the next element; Debian's build crashes in `shmem_finalize`, over TCP too"),
]


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
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def is_listening(session, port):
    """Whether a process of this session has a TCP socket that listens at a port."""
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        rows = [row.split() for row in Path(table).read_text().splitlines()[1:]]
        sockets |= {f"socket:[{row[9]}]" for row in rows
                    if row[3] == LISTEN and int(row[1].rsplit(":", 1)[1], 16) == port}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            # Fields behind the name, which may contain spaces: state, parent, group, session.
            fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
            if int(fields[3]) == session and sockets & {os.readlink(fd) for fd in (process / "fd").iterdir()}:
                return True
        except OSError:
            continue
    return False


class Zoo:
    """Runs programs with the files that they need in a temporary directory."""

    def __init__(self, roce, build):
        self.roce, self.build = roce, build
        (build / "dat.conf").write_text(
            f'{PROVIDER} u2.0 nonthreadsafe default libdaploscm.so.2 dapl.2.0 "softroce0 1" ""\n')

    def filled(self, words):
        return [word.format(build=self.build) for word in words]

    def run(self, program, options):
        """Runs a program in one mode. Returns the cell of the table: seconds, or the number of checked packets."""
        own = {name: value.format(build=self.build) for name, value in (program.environment or {}).items()}
        environment = {**os.environ, **own}
        if program.build:
            subprocess.run(self.filled(program.build), check=True)
        prefix = [str(self.roce), "run", *options, "--"]
        start = time.monotonic()
        logs = [self.build / name for name in ("first.log", "second.log")]
        with open(logs[0], "wb") as first, open(logs[1], "wb") as second:
            command = prefix + self.filled(program.command)
            with started(command, environment, first) as server:
                last = server
                if program.client:
                    self.wait_for_listener(server, program.port)
                    with started(prefix + self.filled(program.client), environment, second) as client:
                        self.wait(client, logs)
                    last = client
                else:
                    self.wait(server, logs)
        took = time.monotonic() - start
        said = "\n".join(log.read_text(errors="replace") for log in logs)
        if program.statuses is not None and last.returncode not in program.statuses:
            raise Failure(f"exit status {last.returncode}\n{said}")
        missing = [words for words in program.says if words not in said]
        if missing:
            raise Failure(f"it does not say {missing}\n{said}")
        checked = sum(int(packets) for packets in re.findall(r"(\d+) of RoCEv2; ICRC", said))
        if "--check" in options and (program.client or program.build) and not checked:
            raise Failure(f"no packet was sent over RoCE\n{said}")
        return f"{checked} packets" if "--check" in options else f"{took:.1f}"

    @staticmethod
    def wait(process, logs):
        try:
            process.wait(TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            said = "\n".join(log.read_text(errors="replace") for log in logs)
            raise Failure(f"it has not ended after {TIME_LIMIT_S} s\n{said}") from None

    @staticmethod
    def wait_for_listener(server, port):
        """Waits until the server listens. No event announces it."""
        limit = time.monotonic() + LISTEN_LIMIT_S
        while not is_listening(server.pid, port):
            if server.poll() is not None or time.monotonic() > limit:
                raise Failure(f"the server does not listen (exit status {server.poll()})")
            time.sleep(0.05)


def version(packages):
    """The first package and its version."""
    asked = ["dpkg-query", "-W", "-f=${Package} ${Version}\n", packages[0]]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def page(rows):
    """The page for the results of a run."""
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"""# Compatibility

Programs of other projects, as their users start them, under `roce run --`. `tools/ci.sh zoo` runs them and writes this page:
on {date.today()}, on {os.cpu_count()} processors, both sides on one machine. Each program verifies its data where it can. The
columns UDP and shm have the seconds of a run over UDP sockets and over shared memory, with other work on the machine. The last
column has the packets of a run, as both sides captured them, in which `roce check` found no violation. [Programs that were run](DROPIN.md) has more.

Not supported: programs that need raw packet queue pairs, DC transport, or memory of a graphics adapter; statically linked programs ([what does not work](DROPIN.md#what-does-not-work)). Of DAPL, `dtestx`
is not in the table: in some runs one side ends before the other has received the last message of their TCP connection.

| program | package | run | UDP | shm | checked |
|---|---|---|---|---|---|
{table}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--roce", type=Path, help="the command, with its libraries beside it")
    parser.add_argument("--write", type=Path, help="write the page with the results")
    parser.add_argument("--packages", action="store_true", help="print the Debian packages that the programs need")
    parser.add_argument("programs", nargs="*", help="names of programs")
    arguments = parser.parse_args()
    if arguments.packages:
        print(*sorted({package for program in PROGRAMS for package in program.packages}))
        return 0
    chosen = [program for program in PROGRAMS if not arguments.programs or program.name in arguments.programs]
    unknown = set(arguments.programs) - {program.name for program in chosen}
    if unknown or not arguments.roce:
        parser.error(f"no such program: {', '.join(unknown)}" if unknown else "--roce is missing")
    rows, failures = [], 0
    with tempfile.TemporaryDirectory(prefix="roce-zoo-") as build:
        zoo = Zoo(arguments.roce.resolve(), Path(build))
        for program in chosen:
            cells = []
            for mode, options in MODES.items():
                try:
                    cells.append(zoo.run(program, options))
                    print(f"{program.name}, {mode}: {cells[-1]}", flush=True)
                except Failure as failure:
                    failures += 1
                    cells.append("fails")
                    print(f"{program.name}, {mode}: {failure}", file=sys.stderr, flush=True)
            rows.append([program.name, version(program.packages), program.what, *cells])
    if arguments.write:
        arguments.write.write_text(page(rows))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
