"""Waits until a server of this network namespace accepts clients: ready.py PID listener, tcp PORT or group ADDRESS.

PID is the server's process. A listener is one of the connection manager, as the control socket of its device shows it.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path

LIMIT_SECONDS = 60
# State of a TCP socket that listens.
LISTEN = "0A"


def status(name):
    """The state of a device by the name of its control socket; empty when the device does not reply."""
    try:
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(LIMIT_SECONDS)
            control.connect(f"\0{name}")
            control.sendall(b"softroce 1 status\n")
            return json.loads(control.makefile().readline())
    except (OSError, ValueError):
        return {}


def has_listener():
    names = {row.split()[-1] for row in Path("/proc/net/unix").read_text().splitlines()}
    devices = [name[1:] for name in names if name.startswith("@softroce/") and "/control/" in name]
    return any(status(name).get("listeners") for name in devices)


def has_tcp(port):
    tables = [Path(f"/proc/net/{table}").read_text().splitlines()[1:] for table in ("tcp", "tcp6")]
    for _, local, _, state, *_ in (row.split() for table in tables for row in table):
        if local.endswith(f":{int(port):04X}") and state == LISTEN:
            return True
    return False


def has_group(address):
    number = int.from_bytes(socket.inet_aton(address), sys.byteorder)
    return f"{number:08X}" in Path("/proc/net/igmp").read_text()


def main():
    pid, kind, *argument = sys.argv[1:]
    is_ready = {"listener": has_listener, "tcp": has_tcp, "group": has_group}[kind]
    until = time.monotonic() + LIMIT_SECONDS
    while not is_ready(*argument):
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            sys.exit("the server has ended before it was ready")
        if time.monotonic() > until:
            sys.exit(f"the server is not ready after {LIMIT_SECONDS} s")
        os.sched_yield()


main()
