#!/usr/bin/env python3
"""What targets begin with that take no capture files: packets of the golden captures and vectors.

seeds.py packet|responder|requester|engine|mads DIRECTORY CAPTURE… VECTORS.json
"""

import collections
import json
import pathlib
import struct
import sys

ROCE_PORT = 4791
# What `src/packet.rs` is to put right: everything.
RIGHT = 0xFF
# Bytes of a seed: the fuzzer changes short inputs more often.
MOST = 3000


def frames(file):
    """Ethernet frames of a classic pcap file, or of the vectors."""
    if file.suffix == ".json":
        for vector in json.loads(file.read_text())["vectors"]:
            yield bytes.fromhex(vector["frame_hex"])
        return
    data, at = file.read_bytes(), 24
    while at + 16 <= len(data):
        (length,) = struct.unpack_from("<I", data, at + 8)
        yield data[at + 16 : at + 16 + length]
        at += 16 + length


def datagram(frame):
    """The UDP payload, if it is of RoCEv2."""
    ip = frame[14:]
    if not ip:
        return None
    udp = ip[40:] if ip[0] >> 4 == 6 else ip[(ip[0] & 15) * 4 :]
    if len(udp) < 8 + 16 or int.from_bytes(udp[2:4], "big") != ROCE_PORT:
        return None
    return udp[8 : int.from_bytes(udp[4:6], "big")]


def is_response(packet):
    return 0x0D <= packet[0] & 0x1F <= 0x12


def service(packets, of_transport):
    return of_transport.get(packets[0][0] >> 5, 0)


def needs_1024(packets):
    return max(map(len, packets)) > 320


def begin(target, packets):
    """Queue pairs as `src/hosts.rs` and `src/side.rs` have them, and what is posted to them."""
    if target == "engine":
        kind = service(packets, {1: 3, 3: 4, 5: 5}) | (8 if needs_1024(packets) else 0)
        return bytes([0, kind, 0xFF]) + bytes([3, 255]) * 6 + requests_for(packets, 1)
    kind = service(packets, {1: 1, 3: 2, 5: 3}) | (4 if needs_1024(packets) else 0)
    if target == "requester":
        return bytes([kind]) + requests_for(packets, 5)[:256]
    return bytes([kind]) + bytes([4, 255]) * 6


def record(target, packet, psn):
    action = 6 if target == "engine" else 0
    return bytes([action, RIGHT, psn & 0xFF]) + struct.pack("<H", len(packet)) + packet


def requests_for(packets, action):
    """Requests that these might be the answers to."""
    posts = b""
    for packet in packets:
        op = {0x0D: 3, 0x10: 3, 0x11: 0, 0x12: 4}.get(packet[0] & 0x1F)
        if op is not None and action == 5:
            posts += bytes([5, op]) + struct.pack("<H", 1500 if op == 3 else 200)
        elif op is not None:
            op = {3: 9, 0: 0, 4: 11}[op] | 0x40
            posts += bytes([1, op]) + struct.pack("<HH", 1500 if op == 0x49 else 200, 0)
    return posts


def conversations(file, wanted):
    """Packets of each queue pair that gets some, requests or responses."""
    by_qp = collections.defaultdict(list)
    for packet in filter(None, map(datagram, frames(file))):
        if is_response(packet) == wanted:
            by_qp[packet[5:8]].append(packet)
    return by_qp.values()


def management(file):
    """Messages of the connection manager: as to the side that listens, and as to the one that connects."""
    packets = filter(None, map(datagram, frames(file)))
    # BTH and DETH are before the datagram of 256 bytes, the ICRC is behind it.
    mads = [packet[20:276] for packet in packets if packet[0] == 0x64 and packet[20:22] == b"\x01\x07"]
    if not mads:
        return
    for side in (bytes([5, 3, 5, 0]), bytes([6, 0, 7, 0])):
        received = [bytes([0, 0xFF & ~2]) + mad for mad in mads]
        # After each message, the newest id accepts, replies or establishes.
        yield side + b"".join(mad + bytes([8, 1, 8, 5, 9, 1]) for mad in received[:8])


def seeds(target, file):
    if target == "packet":
        yield from (frame[14:] for frame in frames(file))
        return
    if target == "mads":
        yield from management(file)
        return
    wanted = [False, True] if target == "engine" else [target == "requester"]
    for packets in (packets for which in wanted for packets in conversations(file, which)):
        first = int.from_bytes(packets[0][9:12], "big")
        seed = begin(target, packets)
        for packet in packets:
            psn = int.from_bytes(packet[9:12], "big") - first + 5
            if len(seed) + len(packet) > MOST:
                break
            seed += record(target, packet, psn)
        yield seed


def main():
    target, directory, *files = sys.argv[1:]
    for file in map(pathlib.Path, files):
        for number, seed in enumerate(seeds(target, file)):
            pathlib.Path(directory, f"{file.stem}-{number}").write_bytes(seed)


main()
