"""NIXL: three agents that each write to all others and read from them. Every byte is compared."""

import ctypes
import os
import random
import sys
import time
from multiprocessing import get_context

from nixl._api import nixl_agent, nixl_agent_config

AGENTS = ("first", "second", "third")
LENGTH = 1 << 20
LIMIT_S = 60


def content(writer):
    return random.Random(writer).randbytes(LENGTH)


class Memory:
    """A registered buffer with a slot for each agent."""

    def __init__(self, agent):
        self.buffer = ctypes.create_string_buffer(LENGTH * len(AGENTS))
        self.base = ctypes.addressof(self.buffer)
        self.registered = agent.register_memory([(self.base, len(self.buffer), 0, "")], "DRAM")

    def slot(self, agent):
        return (self.base + LENGTH * AGENTS.index(agent), LENGTH, 0)

    def bytes_of(self, agent):
        start = LENGTH * AGENTS.index(agent)
        return self.buffer.raw[start:start + LENGTH]


def until(is_true, what):
    limit = time.monotonic() + LIMIT_S
    while not is_true():
        assert time.monotonic() < limit, f"not within {LIMIT_S} s: {what}"
        time.sleep(0.001)


def transfer(agent, operation, local, remote, peer, note):
    handle = agent.initialize_xfer(operation, agent.get_xfer_descs([local], "DRAM"),
                                   agent.get_xfer_descs([remote], "DRAM"), peer, note)
    assert agent.transfer(handle) != "ERR", operation
    until(lambda: agent.check_xfer_state(handle) == "DONE", f"{operation} to {peer}")
    agent.release_xfer_handle(handle)


def run(name, pipe):
    agent = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
    memory = Memory(agent)
    memory.buffer[LENGTH * AGENTS.index(name):LENGTH * (AGENTS.index(name) + 1)] = content(name)
    pipe.send((agent.get_agent_metadata(), memory.base))
    peers = pipe.recv()
    for peer, (metadata, _) in peers.items():
        agent.add_remote_agent(metadata)
    for peer, (_, base) in peers.items():
        transfer(agent, "WRITE", memory.slot(name), (base + LENGTH * AGENTS.index(name), LENGTH, 0), peer, name.encode())
    seen = set()

    def all_seen():
        for notes in agent.get_new_notifs().values():
            seen.update(note.decode() for note in notes)
        return seen == set(peers)

    until(all_seen, "notifications of all writers")
    for peer, (_, base) in peers.items():
        assert memory.bytes_of(peer) == content(peer), f"{name} has wrong bytes of {peer}"
        ctypes.memset(memory.slot(peer)[0], 0, LENGTH)
        # The slot of a peer in its own memory.
        transfer(agent, "READ", memory.slot(peer), (base + LENGTH * AGENTS.index(peer), LENGTH, 0), peer, b"")
        assert memory.bytes_of(peer) == content(peer), f"{name} has read wrong bytes of {peer}"
    pipe.send("done")
    # No agent ends while another reads from it.
    pipe.recv()


def main():
    # NIXL threads do not survive a fork.
    context = get_context("spawn")
    pipes, processes = {}, {}
    for name in AGENTS:
        pipes[name], theirs = context.Pipe()
        processes[name] = context.Process(target=run, args=(name, theirs))
        processes[name].start()
        theirs.close()
    about = {name: pipe.recv() for name, pipe in pipes.items()}
    for name, pipe in pipes.items():
        pipe.send({peer: about[peer] for peer in AGENTS if peer != name})
    assert all(pipe.recv() == "done" for pipe in pipes.values())
    for pipe in pipes.values():
        pipe.send("end")
    for process in processes.values():
        process.join(LIMIT_S)
        assert process.exitcode == 0
    print("all data is right")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
