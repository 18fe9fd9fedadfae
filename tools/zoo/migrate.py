"""Live migration of a small QEMU guest over RDMA while it writes its memory: `migrate.py IMAGE DIRECTORY`.

The guest (guest.s) checks each page before it writes it, and prints an X for a wrong one.
"""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

PORT = 4444
LIMIT_S = 60
# Generations of memory that the guest writes before and after the migration.
GENERATIONS = 20


class Guest:
    """A virtual machine with a monitor and a serial port that writes to a file."""

    def __init__(self, image, directory, name, *options):
        self.serial, monitor = directory / f"{name}.serial", directory / f"{name}.monitor"
        self.process = subprocess.Popen(
            ["qemu-system-x86_64", "-accel", "tcg", "-m", "64", "-display", "none", "-nodefaults", "-vga", "none", "-serial",
             f"file:{self.serial}", "-qmp", f"unix:{monitor},server=on,wait=off", "-drive",
             f"file={image},format=raw,if=ide,readonly=off,file.locking=off", *options])
        self.monitor = self.connected(monitor)
        self.lines = self.monitor.makefile("r")
        assert "QMP" in self.lines.readline()
        self.ask("qmp_capabilities")

    def connected(self, path):
        limit = time.monotonic() + LIMIT_S
        while True:
            monitor = socket.socket(socket.AF_UNIX)
            try:
                monitor.connect(str(path))
                return monitor
            except OSError:
                monitor.close()
                assert self.process.poll() is None and time.monotonic() < limit, "QEMU does not listen"
                time.sleep(0.05)

    def ask(self, command, **arguments):
        self.monitor.sendall(json.dumps({"execute": command, "arguments": arguments}).encode())
        while True:
            answer = json.loads(self.lines.readline())
            if "return" in answer:
                return answer["return"]
            assert "error" not in answer, answer

    def said(self):
        return self.serial.read_text() if self.serial.exists() else ""

    def wait_for_generations(self, count):
        limit = time.monotonic() + LIMIT_S
        while self.said().count(".") < count:
            assert self.process.poll() is None and time.monotonic() < limit, f"the guest stands still: {self.said()!r}"
            time.sleep(0.05)

    def end(self):
        self.ask("quit")
        assert self.process.wait(LIMIT_S) == 0


def main():
    image, directory = sys.argv[1], Path(sys.argv[2])
    target = Guest(image, directory, "target", "-incoming", f"rdma:127.0.0.1:{PORT}")
    source = Guest(image, directory, "source")
    source.wait_for_generations(GENERATIONS)
    source.ask("migrate-set-parameters", **{"max-bandwidth": 1 << 40, "downtime-limit": 300})
    source.ask("migrate", uri=f"rdma:127.0.0.1:{PORT}")
    limit = time.monotonic() + LIMIT_S
    while (state := source.ask("query-migrate"))["status"] not in ("completed", "failed", "cancelled"):
        assert time.monotonic() < limit, state
        time.sleep(0.1)
    assert state["status"] == "completed", state
    before = source.said()
    target.wait_for_generations(GENERATIONS)
    assert "X" not in before + target.said(), "a page is wrong"
    ram = state["ram"]
    print(f"migrated in {state['total-time']} ms with {state['downtime']} ms of downtime: {ram['transferred'] >> 20} MiB, "
          f"{ram['dirty-sync-count']} passes; {before.count('.')} generations before, {target.said().count('.')} after")
    source.end()
    target.end()
    print("the guest goes on")


main()
