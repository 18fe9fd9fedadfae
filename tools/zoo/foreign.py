"""Calls libibverbs by ctypes, without a binding: a queue pair that is connected to itself sends to itself."""

import ctypes
import os
from ctypes import POINTER, Structure, addressof, byref, c_int, c_uint8, c_uint32, c_uint64, c_void_p, memmove, sizeof

verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
LENGTH, ROUNDS = 100_000, 50
LOCAL_WRITE, RC, SIGNALED, MTU_4096, SEND = 1, 2, 2, 5, 2
INIT, RTR, RTS = 1, 2, 3
# Places of functions in struct ibv_context_ops, which ibv_poll_cq and ibv_post_* of <verbs.h> call.
POLL_CQ, POST_SEND, POST_RECV = 11, 25, 26


class Context(Structure):
    _fields_ = [("device", c_void_p), ("ops", c_void_p * 32)]


class Memory(Structure):
    _fields_ = [("context", c_void_p), ("pd", c_void_p), ("addr", c_void_p), ("length", ctypes.c_size_t),
                ("handle", c_uint32), ("lkey", c_uint32), ("rkey", c_uint32)]


class Cap(Structure):
    _fields_ = [(name, c_uint32) for name in
                ("max_send_wr", "max_recv_wr", "max_send_sge", "max_recv_sge", "max_inline_data")]


class InitAttr(Structure):
    _fields_ = [("qp_context", c_void_p), ("send_cq", c_void_p), ("recv_cq", c_void_p), ("srq", c_void_p), ("cap", Cap),
                ("qp_type", c_int), ("sq_sig_all", c_int)]


class QueuePair(Structure):
    _fields_ = [("context", c_void_p), ("qp_context", c_void_p), ("pd", c_void_p), ("send_cq", c_void_p),
                ("recv_cq", c_void_p), ("srq", c_void_p), ("handle", c_uint32), ("qp_num", c_uint32)]


class Address(Structure):
    _fields_ = [("dgid", c_uint8 * 16), ("flow_label", c_uint32), ("sgid_index", c_uint8), ("hop_limit", c_uint8),
                ("traffic_class", c_uint8), ("dlid", ctypes.c_uint16), ("sl", c_uint8), ("src_path_bits", c_uint8),
                ("static_rate", c_uint8), ("is_global", c_uint8), ("port_num", c_uint8)]


class Attr(Structure):
    _fields_ = [(name, c_uint32) for name in
                ("qp_state", "cur_qp_state", "path_mtu", "path_mig_state", "qkey", "rq_psn", "sq_psn", "dest_qp_num",
                 "qp_access_flags")]
    _fields_ += [("cap", Cap), ("ah", Address), ("alt_ah", Address), ("pkey_index", ctypes.c_uint16),
                 ("alt_pkey_index", ctypes.c_uint16)]
    _fields_ += [(name, c_uint8) for name in
                 ("en_sqd_async_notify", "sq_draining", "max_rd_atomic", "max_dest_rd_atomic", "min_rnr_timer", "port_num",
                  "timeout", "retry_cnt", "rnr_retry", "alt_port_num", "alt_timeout")]
    _fields_ += [("rate_limit", c_uint32), ("padding", c_uint32)]


class Piece(Structure):
    _fields_ = [("addr", c_uint64), ("length", c_uint32), ("lkey", c_uint32)]


class Receive(Structure):
    _fields_ = [("wr_id", c_uint64), ("next", c_void_p), ("sg_list", POINTER(Piece)), ("num_sge", c_int)]


class Request(Structure):
    # Unions for other opcodes follow.
    _fields_ = [*Receive._fields_, ("opcode", c_int), ("send_flags", c_uint32), ("imm", c_uint32), ("rest", c_uint8 * 88)]


class Completion(Structure):
    _fields_ = [("wr_id", c_uint64), ("status", c_int), ("opcode", c_int), ("vendor_err", c_uint32),
                ("byte_len", c_uint32), ("rest", c_uint8 * 24)]


# As <verbs.h> has them.
assert (sizeof(Attr), sizeof(Request), sizeof(Completion)) == (144, 128, 48)


def function(name, result, *arguments):
    found = getattr(verbs, name)
    found.restype, found.argtypes = result, arguments
    return found


def good(pointer):
    assert pointer, os.strerror(ctypes.get_errno())
    return pointer


def modify(queue_pair, mask, **values):
    """Changes the attributes of a mask."""
    attr = Attr()
    for name, value in values.items():
        setattr(attr, name, value)
    status = function("ibv_modify_qp", c_int, c_void_p, c_void_p, c_int)(queue_pair, byref(attr), mask)
    assert status == 0, os.strerror(status)


def main():
    devices = good(function("ibv_get_device_list", POINTER(c_void_p), c_void_p)(None))
    context = good(function("ibv_open_device", c_void_p, c_void_p)(devices[0]))
    domain = good(function("ibv_alloc_pd", c_void_p, c_void_p)(context))
    source, target = ctypes.create_string_buffer(LENGTH), ctypes.create_string_buffer(LENGTH)
    register = function("ibv_reg_mr", POINTER(Memory), c_void_p, c_void_p, ctypes.c_size_t, c_int)
    regions = [good(register(domain, memory, LENGTH, LOCAL_WRITE)) for memory in (source, target)]
    queue = good(function("ibv_create_cq", c_void_p, c_void_p, c_int, c_void_p, c_void_p, c_int)(context, 8, None, None, 0))
    init = InitAttr(send_cq=queue, recv_cq=queue, cap=Cap(4, 4, 1, 1, 0), qp_type=RC)
    pair = good(function("ibv_create_qp", POINTER(QueuePair), c_void_p, c_void_p)(domain, byref(init)))
    gid = (c_uint8 * 16)()
    assert function("ibv_query_gid", c_int, c_void_p, c_uint8, c_int, c_void_p)(context, 1, 0, gid) == 0
    # State, P_Key index, port and access flags.
    modify(pair, 1 | 1 << 4 | 1 << 5 | 1 << 3, qp_state=INIT, port_num=1)
    # State, address, MTU, number and PSN of the peer, READs that it may have in flight, RNR timer.
    modify(pair, 1 | 1 << 7 | 1 << 8 | 1 << 20 | 1 << 12 | 1 << 17 | 1 << 15, qp_state=RTR, path_mtu=MTU_4096,
           dest_qp_num=pair.contents.qp_num, min_rnr_timer=12, ah=Address(dgid=gid, is_global=1, port_num=1))
    # State, PSN, time-out, retries, RNR retries, READs in flight.
    modify(pair, 1 | 1 << 16 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13, qp_state=RTS, timeout=14, retry_cnt=7, rnr_retry=7)

    operations = Context.from_address(context).ops
    post = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p)
    post_send, post_receive = (post(operations[place]) for place in (POST_SEND, POST_RECV))
    poll = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_void_p)(operations[POLL_CQ])
    bad, completion = c_void_p(), Completion()
    pieces = [Piece(addressof(memory), LENGTH, region.contents.lkey) for memory, region in zip((source, target), regions)]
    for number in range(ROUNDS):
        data = os.urandom(LENGTH)
        memmove(source, data, LENGTH)
        receive = Receive(number, None, ctypes.pointer(pieces[1]), 1)
        request = Request(number, None, ctypes.pointer(pieces[0]), 1, SEND, SIGNALED)
        assert post_receive(pair, byref(receive), byref(bad)) == 0
        assert post_send(pair, byref(request), byref(bad)) == 0
        for _ in range(2):
            while poll(queue, 1, byref(completion)) == 0:
                pass
            assert (completion.status, completion.wr_id) == (0, number), completion.status
        assert target.raw == data, f"message {number} is wrong"
    for name, thing in (("ibv_destroy_qp", pair), ("ibv_destroy_cq", queue), ("ibv_dereg_mr", regions[0]),
                        ("ibv_dereg_mr", regions[1]), ("ibv_dealloc_pd", domain), ("ibv_close_device", context)):
        assert function(name, c_int, c_void_p)(thing) == 0, name
    print("all data is right")


main()
