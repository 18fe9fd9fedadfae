"""A process gets a message and ends by _exit at once. Its peer is to learn that the message has arrived."""

import os
import pyverbs.enums as e
from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

LEN = 8


class End:
    def __init__(self):
        self.context = Context(name="softroce0")
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 4)
        self.mr = MR(self.pd, LEN, e.IBV_ACCESS_LOCAL_WRITE)
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=QPCap(4, 4, 1, 1))
        self.qp = QP(self.pd, init, QPAttr(port_num=1))
        self.sge = SGE(self.mr.buf, LEN, self.mr.lkey)

    def name(self):
        return f"{self.qp.qp_num} {self.context.query_gid(1, 0)}"

    def connect(self, other):
        qpn, gid = other.split()
        way = GlobalRoute(dgid=GID(gid), sgid_index=0)
        attr = QPAttr(port_num=1)
        attr.dest_qp_num = int(qpn)
        attr.path_mtu = e.IBV_MTU_1024
        attr.ah_attr = AHAttr(gr=way, is_global=1, port_num=1)
        # Eight attempts of 67 ms.
        attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 12
        self.qp.to_rts(attr)

    def done(self):
        while True:
            found, completions = self.cq.poll()
            if found:
                return completions[0].status


def told(pipe):
    return pipe.readline().strip()


def main():
    to_child, to_parent = os.pipe(), os.pipe()
    if os.fork() == 0:
        end = End()
        end.qp.post_recv(RecvWR(num_sge=1, sg=[end.sge]))
        os.write(to_parent[1], f"{end.name()}\n".encode())
        end.connect(told(os.fdopen(to_child[0])))
        os.write(to_parent[1], b"ready\n")
        os._exit(end.done())
    answers = os.fdopen(to_parent[0])
    end = End()
    end.connect(told(answers))
    os.write(to_child[1], f"{end.name()}\n".encode())
    assert told(answers) == "ready"
    end.qp.post_send(SendWR(num_sge=1, sg=[end.sge]))
    _, child = os.wait()
    # It has ended before anybody looks here, so that nobody answers any more.
    print("received", child, "sent", end.done())


main()
