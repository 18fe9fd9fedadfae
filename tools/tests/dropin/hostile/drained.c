/* A program that reads the descriptor of a completion channel itself. Events are still delivered, and nothing waits for
 * bytes that the program has taken. */

#include <poll.h>

#include "verbs.h"

int main(void)
{
    alarm(20);
    struct ibv_context *context = open_device();
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, channel, 0);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(channel && cq && pd);
    struct ibv_qp *qp = make_qp(pd, cq, 1);
    connect_qp(qp, qp->qp_num, gid_of(context));
    CHECK(post_recv(qp, 1, NULL, NULL, 0) == 0 && ibv_req_notify_cq(cq, 0) == 0);
    CHECK(post_send(qp, 2, NULL, NULL, 0) == 0);

    struct pollfd readable = {.fd = channel->fd, .events = POLLIN};
    CHECK(poll(&readable, 1, -1) == 1);
    char taken[8];
    CHECK(read(channel->fd, taken, sizeof taken) == sizeof taken);
    struct ibv_cq *announced;
    void *word;
    CHECK(ibv_get_cq_event(channel, &announced, &word) == 0 && announced == cq);
    ibv_ack_cq_events(cq, 1);
    CHECK(next(cq).status == IBV_WC_SUCCESS && next(cq).status == IBV_WC_SUCCESS);

    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
    CHECK(ibv_destroy_comp_channel(channel) == 0 && ibv_dealloc_pd(pd) == 0);
    CHECK(ibv_close_device(context) == 0);
    puts("every event has come");
}
