/* Q_Keys of bit 31, which need CAP_NET_RAW. */

#include <linux/capability.h>
#include <sys/syscall.h>

#include "verbs.h"

enum { KEY = (int)0x80010000u, GRH = 40 };

static int to_init_with(struct ibv_qp *qp, uint32_t key)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = key};
    return ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
}

static struct ibv_qp *datagrams(struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr init = qp_attr(cq, 4);
    init.qp_type = IBV_QPT_UD;
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp);
    return qp;
}

static void drop_net_raw(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2];
    CHECK(syscall(SYS_capget, &header, sets) == 0);
    sets[0].effective &= ~(1u << CAP_NET_RAW);
    CHECK(syscall(SYS_capset, &header, sets) == 0);
}

int main(void)
{
    char memory[128] = "is it there?";
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd);
    struct ibv_cq *cq = make_cq(context, 4);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    struct ibv_qp *qp = datagrams(pd, cq);
    CHECK(to_init_with(qp, KEY) == 0);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS};
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);

    /* A request with any key of bit 31 is sent with the queue pair's own. */
    union ibv_gid gid = gid_of(context);
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}};
    struct ibv_ah *ah = ibv_create_ah(pd, &to);
    CHECK(ah);
    for (uint32_t key = 0x80000000u; key != 0x80020000u; key += 0x10000u) {
        CHECK(post_recv(qp, 1, mr, memory + 64, 64) == 0);
        struct ibv_sge piece = {(uintptr_t)memory, 12, mr->lkey};
        struct ibv_send_wr wr = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND,
                                 .send_flags = IBV_SEND_SIGNALED,
                                 .wr.ud = {ah, qp->qp_num, key}}, *bad;
        CHECK(ibv_post_send(qp, &wr, &bad) == 0);
        for (int ends = 0; ends < 2; ends++)
            CHECK(next(cq).status == IBV_WC_SUCCESS);
        CHECK(memcmp(memory + 64 + GRH, memory, 12) == 0);
    }

    drop_net_raw();
    attr = (struct ibv_qp_attr){.qkey = KEY};
    REFUSED(EPERM, ibv_modify_qp(qp, &attr, IBV_QP_QKEY));
    struct ibv_qp *other = datagrams(pd, cq);
    REFUSED(EPERM, to_init_with(other, KEY));
    CHECK(to_init_with(other, 7) == 0);
    puts("only the privileged have such keys");
}
