/* A lap of PSNs: a READ, then WRITEs of 2^24 - 1 packets, then a WRITE alone, whose PSN is that of the READ. The
 * responder keeps the READ to answer a copy of it, and must not take the WRITE for such a copy. */

#include "verbs.h"

enum { MTU_BYTES = 256, PACKETS = 4096, MESSAGES = 4096, IN_FLIGHT = 8 };

static char memory[2][PACKETS * MTU_BYTES];

static struct ibv_mr *registered[2];

static void post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint32_t length)
{
    struct ibv_sge piece = {(uintptr_t)memory[0], length, registered[0]->lkey};
    struct ibv_send_wr wr = {.sg_list = &piece,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {(uintptr_t)memory[1], registered[1]->rkey}},
                       *bad;
    CHECK(ibv_post_send(qp, &wr, &bad) == 0);
}

static void succeeds(struct ibv_cq *cq, const char *request)
{
    struct ibv_wc wc = next(cq);
    if (wc.status != IBV_WC_SUCCESS) {
        fprintf(stderr, "%s: %s\n", request, ibv_wc_status_str(wc.status));
        exit(1);
    }
}

int main(void)
{
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd);
    struct ibv_cq *cq = make_cq(context, 2 * IN_FLIGHT);
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    for (int side = 0; side < 2; side++)
        CHECK((registered[side] = ibv_reg_mr(pd, memory[side], sizeof memory[side], access)));
    struct ibv_qp *from = make_qp(pd, cq, IN_FLIGHT), *to = make_qp(pd, cq, 1);
    connect_with_mtu(from, to->qp_num, gid_of(context), IBV_MTU_256);
    connect_with_mtu(to, from->qp_num, gid_of(context), IBV_MTU_256);

    post(from, IBV_WR_RDMA_READ, 8);
    succeeds(cq, "the READ");
    for (int posted = 0; posted < MESSAGES; posted++) {
        if (posted >= IN_FLIGHT)
            succeeds(cq, "a WRITE of many packets");
        /* The last message ends one PSN before that of the READ. */
        int packets = posted + 1 < MESSAGES ? PACKETS : PACKETS - 1;
        post(from, IBV_WR_RDMA_WRITE, packets * MTU_BYTES);
    }
    for (int completed = 0; completed < IN_FLIGHT; completed++)
        succeeds(cq, "a WRITE of many packets");

    strcpy(memory[0], "after a lap");
    post(from, IBV_WR_RDMA_WRITE, sizeof "after a lap");
    succeeds(cq, "the WRITE after a lap of PSNs");
    CHECK(strcmp(memory[1], "after a lap") == 0);
    puts("the lap is complete");
}
