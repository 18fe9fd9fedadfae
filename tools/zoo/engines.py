"""Mooncake's transfer engine: three engines that each write to all others and read from them. Every byte is compared."""

import ctypes
import os
import random
import sys
from multiprocessing import get_context

from mooncake.engine import TransferEngine

ENGINES = ("first", "second", "third")
LENGTH = 1 << 20
LIMIT_S = 60


def content(writer):
    return random.Random(writer).randbytes(LENGTH)


def run(name, pipe):
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "softroce0") == 0
    buffer = ctypes.create_string_buffer(LENGTH * len(ENGINES))
    base = ctypes.addressof(buffer)
    assert engine.register_memory(base, len(buffer)) == 0
    slot = {peer: LENGTH * number for number, peer in enumerate(ENGINES)}
    ctypes.memmove(base + slot[name], content(name), LENGTH)
    pipe.send((f"127.0.0.1:{engine.get_rpc_port()}", base))
    peers = pipe.recv()
    for at, remote in peers.values():
        assert engine.transfer_sync_write(at, base + slot[name], remote + slot[name], LENGTH) == 0
    pipe.send("written")
    # All others have written too.
    pipe.recv()
    for peer, (at, remote) in peers.items():
        assert buffer.raw[slot[peer]:slot[peer] + LENGTH] == content(peer), f"{name} has wrong bytes of {peer}"
        ctypes.memset(base + slot[peer], 0, LENGTH)
        assert engine.transfer_sync_read(at, base + slot[peer], remote + slot[peer], LENGTH) == 0
        assert buffer.raw[slot[peer]:slot[peer] + LENGTH] == content(peer), f"{name} has read wrong bytes of {peer}"
    pipe.send("read")
    # No engine ends while another reads from it.
    pipe.recv()


def main():
    context = get_context("spawn")
    pipes, processes = {}, []
    for name in ENGINES:
        pipes[name], theirs = context.Pipe()
        processes.append(context.Process(target=run, args=(name, theirs)))
        processes[-1].start()
        theirs.close()
    about = {name: pipe.recv() for name, pipe in pipes.items()}
    for name, pipe in pipes.items():
        pipe.send({peer: about[peer] for peer in ENGINES if peer != name})
    for step in ("written", "read"):
        assert all(pipe.recv() == step for pipe in pipes.values())
        for pipe in pipes.values():
            pipe.send("go on")
    for process in processes:
        process.join(LIMIT_S)
        assert process.exitcode == 0, process.exitcode
    print("all data is right")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
