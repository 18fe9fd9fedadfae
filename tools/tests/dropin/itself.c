/* Two connected queue pairs of one process: SENDs and READs from one to the other. */

#include "hostile/verbs.h"

enum { ROUNDS = 20, PAYLOAD_BYTES = 3000 };

static char memory[2][PAYLOAD_BYTES];
static struct ibv_mr *registered[2];

static void post(struct ibv_qp *qp, enum ibv_wr_opcode opcode)
{
    struct ibv_sge piece = {(uintptr_t)memory[0], PAYLOAD_BYTES, registered[0]->lkey};
    struct ibv_send_wr wr = {.sg_list = &piece,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {(uintptr_t)memory[1], registered[1]->rkey}},
                       *bad;
    CHECK(ibv_post_send(qp, &wr, &bad) == 0);
}

int main(void)
{
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd);
    struct ibv_cq *cq = make_cq(context, 8);
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
    for (int side = 0; side < 2; side++)
        CHECK((registered[side] = ibv_reg_mr(pd, memory[side], sizeof memory[side], access)));
    struct ibv_qp *from = make_qp(pd, cq, 4), *to = make_qp(pd, cq, 4);
    connect_with_mtu(from, to->qp_num, gid_of(context), IBV_MTU_1024);
    connect_with_mtu(to, from->qp_num, gid_of(context), IBV_MTU_1024);

    for (int round = 0; round < ROUNDS; round++) {
        CHECK(post_recv(to, 1, registered[1], memory[1], PAYLOAD_BYTES) == 0);
        post(from, IBV_WR_SEND);
        post(from, IBV_WR_RDMA_READ);
        for (int ended = 0; ended < 3; ended++)
            CHECK(next(cq).status == IBV_WC_SUCCESS);
    }
    puts("all is done");
}
