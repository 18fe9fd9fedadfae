"""Common parts of the benchmarks with kernel rxe: guests, and commands in them."""

import os
import subprocess
from pathlib import Path

from benchmark import ROOT, TARGET, fail, run

VM = ROOT / "tools/rxe-vm/rxe-vm"
ENVIRONMENT = os.environ | {"RXE_VM_CACHE": str(TARGET / "rxe-vm")}
TRIPLE = "x86_64-unknown-linux-gnu"
# TCP port of the control connection of both programs.
PORT = 18515
# Fails until a program listens there.
LISTENS = f"grep -q ':{PORT:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6"


def vm(*command):
    return run(VM, *command, env=ENVIRONMENT)


def in_guest(guest, line):
    return vm("run", "-t", "300", guest, line)


def static_roce():
    """`roce` with all its libraries in it."""
    if given := os.environ.get("ROCE"):
        return Path(given)
    target = TARGET / "static"
    command = ["cargo", "build", "--release", "--package=softroce-tools", "--bin=roce", f"--target={TRIPLE}"]
    flags = os.environ | {"RUSTFLAGS": "-C target-feature=+crt-static", "CARGO_TARGET_DIR": str(target)}
    if subprocess.run(command, cwd=ROOT, env=flags, check=False).returncode != 0:
        fail("roce was not built")
    return target / TRIPLE / "release" / "roce"


def perftest(verb, size, mtu, *options):
    """perftest's command for what `roce perf` calls `verb`; the options name its device."""
    words = [f"ib_{verb.replace('-', '_')} -F -s {size} -m {mtu}", *options]
    return " ".join(words)


def row_of(said, size):
    """The columns of the row that perftest has printed; `None` when it has not."""
    rows = [line.split() for line in said.splitlines() if line.split()[:1] == [str(size)]]
    return rows[0] if len(rows) == 1 else None
