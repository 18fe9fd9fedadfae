/* Two processes that write to each other for a time: "writers PORT MILLISECONDS TIMEOUT", and of the one that connects
 * "writers PORT MILLISECONDS TIMEOUT HOST", with the exponent of the ACK timeout. Exit status 3 when a request fails, and 4 when the other has gone before or after
 * that: nothing else may come of a peer that is killed. */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>

#include "../dropin/hostile/verbs.h"

enum { LENGTH = 20000, DEPTH = 4, FAILED = 3, GONE = 4 };

struct place {
    union ibv_gid gid;
    uint32_t qp_num, rkey;
    uint64_t address;
};

static double now(void)
{
    struct timespec at;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &at) == 0);
    return at.tv_sec + at.tv_nsec * 1e-9;
}

static int meet(const char *port, const char *host)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int yes = 1, stream = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(stream >= 0 && inet_aton(host ? host : "127.0.0.1", &at.sin_addr));
    if (host) {
        if (connect(stream, (struct sockaddr *)&at, sizeof at) != 0)
            exit(GONE);
        return stream;
    }
    CHECK(setsockopt(stream, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
    CHECK(bind(stream, (struct sockaddr *)&at, sizeof at) == 0 && listen(stream, 1) == 0);
    int connection = accept(stream, NULL, NULL);
    CHECK(connection >= 0 && close(stream) == 0);
    return connection;
}

static void swap(int stream, const void *ours, void *theirs, size_t length)
{
    if (send(stream, ours, length, MSG_NOSIGNAL) != (ssize_t)length ||
        recv(stream, theirs, length, MSG_WAITALL) != (ssize_t)length)
        exit(GONE);
}

/* Without an answer a request fails after four attempts. */
static void connect_with_timeout(struct ibv_qp *qp, const struct place *peer, uint8_t timeout)
{
    CHECK(to_init(qp) == 0);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_4096,
        .dest_qp_num = peer->qp_num,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .hop_limit = 64}},
    };
    CHECK(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                            IBV_QP_MIN_RNR_TIMER) == 0);
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = timeout, .retry_cnt = 3, .rnr_retry = 7, .max_rd_atomic = 1};
    CHECK(ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

int main(int count, char **words)
{
    CHECK(count == 4 || count == 5);
    static unsigned char memory[2][LENGTH];
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = make_cq(context, DEPTH);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_qp *qp = make_qp(pd, cq, DEPTH);
    CHECK(pd && mr);
    struct place peer, place = {gid_of(context), qp->qp_num, mr->rkey, (uintptr_t)memory[1]};
    int stream = meet(words[1], words[4]);
    swap(stream, &place, &peer, sizeof place);
    connect_with_timeout(qp, &peer, (uint8_t)atoi(words[3]));
    char byte = 0;
    swap(stream, &byte, &byte, 1);

    double end = now() + atof(words[2]) / 1000;
    struct ibv_sge piece = {(uintptr_t)memory[0], LENGTH, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {peer.address, peer.rkey}}, *bad;
    int posted = 0;
    for (; posted < DEPTH; posted++)
        CHECK(ibv_post_send(qp, &wr, &bad) == 0);
    while (posted > 0) {
        enum ibv_wc_status status = next(cq).status;
        if (status != IBV_WC_SUCCESS) {
            CHECK(status == IBV_WC_RETRY_EXC_ERR);
            exit(FAILED);
        }
        if (now() < end)
            CHECK(ibv_post_send(qp, &wr, &bad) == 0);
        else
            posted--;
    }
    swap(stream, &byte, &byte, 1);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}
