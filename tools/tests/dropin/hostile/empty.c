/* Regions of no bytes: no byte of them can be sent, and messages of no bytes can. */

#include "verbs.h"

int main(void)
{
    static char memory[4096];
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd);
    struct ibv_cq *cq = make_cq(context, 4);
    void *places[] = {memory, memory + 1, NULL};
    for (int i = 0; i < 3; i++) {
        struct ibv_mr *mr = ibv_reg_mr(pd, places[i], 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        CHECK(mr && mr->length == 0 && mr->addr == places[i]);
        struct ibv_qp *from = make_qp(pd, cq, 1), *to = make_qp(pd, cq, 1);
        connect_qp(from, to->qp_num, gid_of(context));
        connect_qp(to, from->qp_num, gid_of(context));
        CHECK(post_recv(to, 1, mr, places[i], 0) == 0);
        CHECK(post_send(from, 2, mr, places[i], 0) == 0);
        for (int ends = 0; ends < 2; ends++)
            CHECK(next(cq).status == IBV_WC_SUCCESS);
        CHECK(post_send(from, 3, mr, places[i], 1) == 0);
        CHECK(next(cq).status == IBV_WC_LOC_PROT_ERR);
        CHECK(ibv_destroy_qp(from) == 0 && ibv_destroy_qp(to) == 0 && ibv_dereg_mr(mr) == 0);
    }
    puts("all is as it should be");
}
