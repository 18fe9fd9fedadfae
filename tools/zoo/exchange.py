"""Two processes with pyverbs: SEND, RDMA WRITE and READ of random lengths, and atomics. Every byte is compared."""

import os
import random
import struct

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

LIMIT = 1 << 20
ROUNDS = 40
SEED = 7
# The last eight bytes of a region are a counter for atomics.
COUNTER = 2 * LIMIT
LENGTH = COUNTER + 8
ACCESS = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
          | e.IBV_ACCESS_REMOTE_ATOMIC)


class Side:
    """A queue pair with a region of memory."""

    def __init__(self):
        self.context = Context(name="softroce0")
        self.pd = PD(self.context)
        # If an acknowledgement is lost, the answer to a message arrives before the message completes.
        self.sent, self.received = CQ(self.context, 8), CQ(self.context, 8)
        self.mr = MR(self.pd, LENGTH, ACCESS)
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.sent, rcq=self.received, cap=QPCap(8, 8, 1, 1))
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = ACCESS
        self.qp = QP(self.pd, init, attr)

    def name(self):
        return f"{self.qp.qp_num} {self.context.query_gid(1, 0)} {self.mr.buf} {self.mr.rkey}"

    def connect(self, other):
        number, gid, address, key = other.split()
        self.remote = int(key), int(address)
        attr = QPAttr(port_num=1)
        attr.dest_qp_num = int(number)
        attr.path_mtu = e.IBV_MTU_4096
        attr.ah_attr = AHAttr(gr=GlobalRoute(dgid=GID(gid), sgid_index=0), is_global=1, port_num=1)
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
        attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 12
        self.qp.to_rts(attr)

    def piece(self, offset, length):
        return SGE(self.mr.buf + offset, length, self.mr.lkey)

    def receive(self, offset, length):
        self.qp.post_recv(RecvWR(num_sge=1, sg=[self.piece(offset, length)]))

    def request(self, opcode, offset, length, remote=None, add=None):
        """Sends one request and waits for its completion."""
        request = SendWR(opcode=opcode, num_sge=1, sg=[self.piece(offset, length)], send_flags=e.IBV_SEND_SIGNALED)
        key, address = self.remote
        if remote is not None:
            request.set_wr_rdma(key, address + remote)
        if add is not None:
            request.set_wr_atomic(key, address + COUNTER, add, 0)
        self.qp.post_send(request)
        completed(self.sent)


def completed(queue):
    while True:
        found, completions = queue.poll()
        if found:
            assert completions[0].status == e.IBV_WC_SUCCESS, completions[0]
            return completions[0]


def serve(side, ready):
    """Compares each message with the numbers that follow from the seed."""
    numbers = random.Random(SEED)
    side.receive(0, LIMIT)
    ready()
    for number in range(ROUNDS):
        data = numbers.randbytes(numbers.randrange(1, LIMIT))
        assert completed(side.received).byte_len == len(data)
        assert side.mr.read(len(data), 0) == data, f"message {number} is wrong"
        # The next message waits for this word.
        side.receive(0, LIMIT)
        side.request(e.IBV_WR_SEND, COUNTER, 8)


def ask(side):
    numbers = random.Random(SEED)
    for number in range(ROUNDS):
        data = numbers.randbytes(numbers.randrange(1, LIMIT))
        side.receive(COUNTER, 8)
        side.mr.write(data, len(data), 0)
        side.request(e.IBV_WR_RDMA_WRITE, 0, len(data), remote=LIMIT)
        side.request(e.IBV_WR_RDMA_READ, LIMIT, len(data), remote=LIMIT)
        assert side.mr.read(len(data), LIMIT) == data, f"bytes that were read are wrong in round {number}"
        side.request(e.IBV_WR_ATOMIC_FETCH_AND_ADD, LIMIT, 8, add=3)
        assert struct.unpack("=Q", side.mr.read(8, LIMIT)) == (3 * number,)
        side.request(e.IBV_WR_SEND, 0, len(data))
        # The server's word is the counter.
        completed(side.received)
        assert struct.unpack("=Q", side.mr.read(8, COUNTER)) == (3 * (number + 1),)


def main():
    to_child, to_parent = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        side = Side()
        os.write(to_parent[1], f"{side.name()}\n".encode())
        words = os.fdopen(to_child[0])
        side.connect(words.readline())
        serve(side, lambda: os.write(to_parent[1], b"ready\n"))
        # The last acknowledgement may be lost, and is not repeated after the end of this process.
        assert words.readline() == "done\n"
        return
    side, answers = Side(), os.fdopen(to_parent[0])
    side.connect(answers.readline())
    os.write(to_child[1], f"{side.name()}\n".encode())
    assert answers.readline() == "ready\n"
    ask(side)
    os.write(to_child[1], b"done\n")
    assert os.waitpid(child, 0)[1] == 0
    print("all data is right")


main()
