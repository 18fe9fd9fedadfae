#!/usr/bin/env python3
"""The ICRC of every packet of a pcapng file of raw IP packets, with nothing but Python's own CRC-32.

Prints how many packets there are; exits with 1 at the first whose ICRC is wrong.
"""
import struct
import sys
import zlib


def packets(data):
    """The frames of enhanced packet blocks; little-endian, as we write them."""
    at = 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == 6:
            captured, = struct.unpack_from("<I", data, at + 20)
            yield data[at + 28:at + 28 + captured]
        at += length


def icrc(packet):
    """Eight bytes of ones for the LRH, then the packet with what changes on its way as ones."""
    masked = bytearray(packet)
    if packet[0] >> 4 == 4:
        udp = 20
        changing = [1, 8, 10, 11]  # TOS, TTL, header checksum
    else:
        udp = 40
        changing = [1, 2, 3, 7]  # traffic class, flow label, hop limit
        masked[0] |= 0x0F
    changing += [udp + 6, udp + 7]  # UDP checksum
    changing += [udp + 8 + 4]  # FECN, BECN and reserved bits of the BTH
    for byte in changing:
        masked[byte] = 0xFF
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + bytes(masked[:-4])))


count = 0
for packet in packets(open(sys.argv[1], "rb").read()):
    count += 1
    if icrc(packet) != packet[-4:]:
        sys.exit(f"packet {count}: ICRC {packet[-4:].hex()}, expected {icrc(packet).hex()}")
print(count)
