/* Threads post and poll everywhere at once: on the same queue pairs, in the same completion queues, by both of the
 * interfaces that there are for each, while others make, use and break queue pairs and regions. Every message is
 * looked at. */

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>

#include "verbs.h"

enum {
    QPS = 4,        /* connected to four others */
    SENDERS = 4,    /* each posts on all of them */
    POLLERS = 2,    /* of each of the two completion queues */
    WINDOW = 8,     /* messages of a sender on their way */
    MESSAGES = 3000, /* of a sender */
    LENGTH = 600,
    RECEIVES = SENDERS * WINDOW,
    ROUNDS = 150,
};

struct message {
    uint32_t sender, number;
    unsigned char bytes[LENGTH - 8];
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;
static struct ibv_cq *sent, *received;
static struct ibv_qp *from[QPS], *to[QPS];
static struct message outgoing[SENDERS][WINDOW], incoming[QPS][RECEIVES];
static struct ibv_mr *out, *in;
static sem_t windows[SENDERS];
static int busy[SENDERS][WINDOW];
static int seen[SENDERS][MESSAGES];
static int left_to_send = SENDERS * MESSAGES, left_to_receive = SENDERS * MESSAGES;

static unsigned char byte(uint32_t sender, uint32_t number, int at)
{
    return (unsigned char)(sender * 31 + number * 7 + at * 13);
}

/* By ibv_wr_start and ibv_wr_complete, in which one thread at a time is. */
static int post_extended(struct ibv_qp *qp, uint64_t id, struct message *message)
{
    struct ibv_qp_ex *extended = ibv_qp_to_qp_ex(qp);
    CHECK(extended);
    ibv_wr_start(extended);
    extended->wr_id = id;
    extended->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(extended);
    ibv_wr_set_sge(extended, out->lkey, (uintptr_t)message, LENGTH);
    return ibv_wr_complete(extended);
}

static void *send_all(void *number)
{
    uint32_t sender = (uintptr_t)number;
    for (uint32_t n = 0; n < MESSAGES; n++) {
        while (sem_wait(&windows[sender]) != 0)
            CHECK(errno == EINTR);
        int slot = 0;
        while (__atomic_exchange_n(&busy[sender][slot], 1, __ATOMIC_ACQ_REL))
            slot = (slot + 1) % WINDOW;
        struct message *message = &outgoing[sender][slot];
        message->sender = sender;
        message->number = n;
        for (int at = 0; at < LENGTH - 8; at++)
            message->bytes[at] = byte(sender, n, at);
        struct ibv_qp *qp = from[(sender + n) % QPS];
        uint64_t id = sender * WINDOW + slot;
        CHECK((sender % 2 ? post_extended(qp, id, message)
                          : post_send(qp, id, out, message, LENGTH)) == 0);
    }
    return NULL;
}

static void was_sent(uint64_t id, enum ibv_wc_status status)
{
    CHECK(status == IBV_WC_SUCCESS && id < SENDERS * WINDOW);
    __atomic_store_n(&busy[id / WINDOW][id % WINDOW], 0, __ATOMIC_RELEASE);
    CHECK(sem_post(&windows[id / WINDOW]) == 0);
    __atomic_sub_fetch(&left_to_send, 1, __ATOMIC_ACQ_REL);
}

static void was_received(uint64_t id, enum ibv_wc_status status, uint32_t length)
{
    CHECK(status == IBV_WC_SUCCESS && id < QPS * RECEIVES && length == LENGTH);
    struct message *message = &incoming[id / RECEIVES][id % RECEIVES];
    uint32_t sender = message->sender, number = message->number;
    CHECK(sender < SENDERS && number < MESSAGES && (sender + number) % QPS == id / RECEIVES);
    for (int at = 0; at < LENGTH - 8; at++)
        CHECK(message->bytes[at] == byte(sender, number, at));
    CHECK(__atomic_add_fetch(&seen[sender][number], 1, __ATOMIC_ACQ_REL) == 1);
    memset(message, 0, sizeof *message);
    CHECK(post_recv(to[id / RECEIVES], id, in, message, LENGTH) == 0);
    __atomic_sub_fetch(&left_to_receive, 1, __ATOMIC_ACQ_REL);
}

static void *poll_sent(void *unused)
{
    (void)unused;
    struct ibv_wc wc[4];
    while (__atomic_load_n(&left_to_send, __ATOMIC_ACQUIRE) > 0) {
        int found = ibv_poll_cq(sent, 4, wc);
        CHECK(found >= 0 && found <= 4);
        for (int n = 0; n < found; n++)
            was_sent(wc[n].wr_id, wc[n].status);
    }
    return NULL;
}

/* One of the two polls by ibv_start_poll. */
static void *poll_received(void *number)
{
    struct ibv_cq_ex *extended = (struct ibv_cq_ex *)received;
    struct ibv_poll_cq_attr attr = {0};
    while (__atomic_load_n(&left_to_receive, __ATOMIC_ACQUIRE) > 0) {
        if (number) {
            if (ibv_start_poll(extended, &attr) != 0) {
                sched_yield();
                continue;
            }
            uint64_t id = extended->wr_id;
            enum ibv_wc_status status = extended->status;
            uint32_t length = ibv_wc_read_byte_len(extended);
            ibv_end_poll(extended);
            was_received(id, status, length);
        } else {
            struct ibv_wc wc;
            int found = ibv_poll_cq(received, 1, &wc);
            CHECK(found >= 0);
            if (found)
                was_received(wc.wr_id, wc.status, wc.byte_len);
        }
    }
    return NULL;
}

/* Queue pairs that are taken to ERROR with requests under way: every request completes once, and what was received is
 * what was sent. */
static void *break_queue_pairs(void *seed)
{
    char memory[8][64];
    struct ibv_cq *cq = make_cq(context, 16);
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
        CHECK(mr);
        memset(memory, 0, sizeof memory);
        struct ibv_qp *one = make_qp(pd, cq, 4), *other = make_qp(pd, cq, 4);
        connect_qp(one, other->qp_num, gid);
        connect_qp(other, one->qp_num, gid);
        for (int n = 0; n < 4; n++) {
            CHECK(post_recv(other, 4 + n, mr, memory[4 + n], 64) == 0);
            memset(memory[n], (int)(round + n + (uintptr_t)seed), 64);
            CHECK(post_send(one, n, mr, memory[n], 64) == 0);
        }
        struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
        CHECK(ibv_modify_qp(round % 2 ? one : other, &error, IBV_QP_STATE) == 0);
        CHECK(ibv_modify_qp(round % 2 ? other : one, &error, IBV_QP_STATE) == 0);
        int ended[8] = {0};
        for (int n = 0; n < 8; n++) {
            struct ibv_wc wc = next(cq);
            CHECK(wc.wr_id < 8 && ++ended[wc.wr_id] == 1);
            CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR);
            if (wc.wr_id >= 4 && wc.status == IBV_WC_SUCCESS)
                CHECK(memcmp(memory[wc.wr_id], memory[wc.wr_id - 4], 64) == 0);
        }
        struct ibv_wc wc;
        CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
        CHECK(ibv_destroy_qp(one) == 0 && ibv_destroy_qp(other) == 0 && ibv_dereg_mr(mr) == 0);
    }
    CHECK(ibv_destroy_cq(cq) == 0);
    return NULL;
}

/* Contexts, domains, regions and windows that come and go. */
static void *make_and_destroy(void *unused)
{
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        struct ibv_context *another = open_device();
        struct ibv_pd *domain = ibv_alloc_pd(another);
        char *memory = malloc(100000);
        struct ibv_mr *mr = ibv_reg_mr(domain, memory, 100000, IBV_ACCESS_LOCAL_WRITE);
        struct ibv_mw *mw = ibv_alloc_mw(domain, IBV_MW_TYPE_2);
        struct ibv_comp_channel *channel = ibv_create_comp_channel(another);
        struct ibv_cq *cq = ibv_create_cq(another, 16, NULL, channel, 0);
        CHECK(mr && mw && cq && ibv_req_notify_cq(cq, 0) == 0);
        exchange(another);
        CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
        CHECK(ibv_dealloc_mw(mw) == 0 && ibv_dereg_mr(mr) == 0);
        free(memory);
        CHECK(ibv_dealloc_pd(domain) == 0 && ibv_close_device(another) == 0);
    }
    return NULL;
}

static struct ibv_qp *make_extended(void)
{
    struct ibv_qp_init_attr_ex attr = {
        .send_cq = sent,
        .recv_cq = received,
        .cap = {SENDERS * WINDOW, RECEIVES, 1, 1, 0},
        .qp_type = IBV_QPT_RC,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pd,
        .send_ops_flags = IBV_QP_EX_WITH_SEND,
    };
    struct ibv_qp *qp = ibv_create_qp_ex(context, &attr);
    CHECK(qp);
    return qp;
}

int main(void)
{
    context = open_device();
    pd = ibv_alloc_pd(context);
    gid = gid_of(context);
    sent = make_cq(context, SENDERS * WINDOW);
    struct ibv_cq_init_attr_ex attr = {.cqe = QPS * RECEIVES, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN};
    received = ibv_cq_ex_to_cq(ibv_create_cq_ex(context, &attr));
    out = ibv_reg_mr(pd, outgoing, sizeof outgoing, 0);
    in = ibv_reg_mr(pd, incoming, sizeof incoming, IBV_ACCESS_LOCAL_WRITE);
    for (int n = 0; n < QPS; n++) {
        from[n] = make_extended();
        to[n] = make_extended();
        connect_qp(from[n], to[n]->qp_num, gid);
        connect_qp(to[n], from[n]->qp_num, gid);
        for (int r = 0; r < RECEIVES; r++)
            CHECK(post_recv(to[n], n * RECEIVES + r, in, &incoming[n][r], LENGTH) == 0);
    }

    pthread_t threads[SENDERS + 2 * POLLERS + 3];
    int count = 0;
    for (uintptr_t n = 0; n < POLLERS; n++) {
        CHECK(pthread_create(&threads[count++], NULL, poll_sent, NULL) == 0);
        CHECK(pthread_create(&threads[count++], NULL, poll_received, (void *)n) == 0);
    }
    for (uintptr_t n = 0; n < SENDERS; n++) {
        CHECK(sem_init(&windows[n], 0, WINDOW) == 0);
        CHECK(pthread_create(&threads[count++], NULL, send_all, (void *)n) == 0);
    }
    for (uintptr_t n = 0; n < 2; n++)
        CHECK(pthread_create(&threads[count++], NULL, break_queue_pairs, (void *)n) == 0);
    CHECK(pthread_create(&threads[count++], NULL, make_and_destroy, NULL) == 0);
    while (count > 0)
        CHECK(pthread_join(threads[--count], NULL) == 0);

    for (int n = 0; n < QPS; n++)
        CHECK(ibv_destroy_qp(from[n]) == 0 && ibv_destroy_qp(to[n]) == 0);
    CHECK(ibv_dereg_mr(out) == 0 && ibv_dereg_mr(in) == 0);
    CHECK(ibv_destroy_cq(sent) == 0 && ibv_destroy_cq(received) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    puts("every message has come once");
}
