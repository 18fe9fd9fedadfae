/* Objects that are made, used and destroyed until the time is over: "churn SECONDS". First on a device that stays open
 * behind them, then on devices that are opened and closed with them. Prints figures of the process after warm-up and
 * later, each as "NAME VALUE", behind a line "census STAGE WHEN". */

#include <dirent.h>
#include <malloc.h>
#include <time.h>

#include "../dropin/hostile/verbs.h"

enum {
    LENGTH = 20000,
    PAIRS = 20,      /* of queue pairs, a round */
    REGIONS = 400,
    WINDOWS = 40,
    OPENED = 4,      /* devices */
    KEPT = 1100,     /* more than the places that the library keeps of destroyed objects of a type */
};

static struct {
    long devices, queue_pairs, regions, windows, channels, announcements, async_events, messages;
} counts;

static double now(void)
{
    struct timespec at;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &at) == 0);
    return at.tv_sec + at.tv_nsec * 1e-9;
}

/* The library does not use the number of a destroyed queue pair again for ten seconds: queue pairs destroyed in each
 * of the last seconds, the present one included. */
enum { TIMEWAIT = 11 };
static struct {
    long second, queue_pairs;
} destroyed[TIMEWAIT];

static void count_destroyed(long queue_pairs)
{
    long second = (long)now();
    if (destroyed[second % TIMEWAIT].second != second) {
        destroyed[second % TIMEWAIT].second = second;
        destroyed[second % TIMEWAIT].queue_pairs = 0;
    }
    destroyed[second % TIMEWAIT].queue_pairs += queue_pairs;
    counts.queue_pairs += queue_pairs;
}

static long in_timewait(void)
{
    long found = 0;
    for (int number = 0; number < TIMEWAIT; number++)
        if (destroyed[number].second > (long)now() - TIMEWAIT)
            found += destroyed[number].queue_pairs;
    return found;
}

static long entries(const char *path)
{
    DIR *directory = opendir(path);
    CHECK(directory);
    long found = -2; /* "." and ".." */
    while (readdir(directory))
        found++;
    CHECK(closedir(directory) == 0);
    return found;
}

/* The number of lines, or the number behind a word. */
static long lines(const char *path, const char *word)
{
    FILE *file = fopen(path, "r");
    CHECK(file);
    char line[512];
    long found = 0;
    while (fgets(line, sizeof line, file)) {
        if (!word)
            found++;
        else if (strncmp(line, word, strlen(word)) == 0)
            found = atol(line + strlen(word));
    }
    CHECK(fclose(file) == 0);
    return found;
}

static void census(int stays, const char *when)
{
    struct mallinfo2 heap = mallinfo2();
    printf("census %s %s\n", stays ? "open" : "closed", when);
    printf("descriptors %ld\n", entries("/proc/self/fd") - 1);
    printf("threads %ld\n", entries("/proc/self/task"));
    printf("mappings %ld\n", lines("/proc/self/maps", NULL));
    printf("resident %ld\n", lines("/proc/self/smaps_rollup", "Rss:"));
    printf("proportional %ld\n", lines("/proc/self/smaps_rollup", "Pss:"));
    /* A device that is closed forgets its numbers. */
    printf("timewait %ld\n", stays ? in_timewait() : 0);
    printf("heap %zu\n", (heap.uordblks + heap.hblkhd) >> 10);
}

static void fill(unsigned char *bytes, unsigned seed)
{
    for (unsigned at = 0; at < LENGTH; at++)
        bytes[at] = (unsigned char)(seed * 31 + at * 13 + (at >> 8));
}

static int post_rdma(struct ibv_qp *qp, enum ibv_wr_opcode opcode, struct ibv_mr *mr, void *at,
                     uint32_t length, void *there, uint32_t rkey)
{
    struct ibv_sge piece = {(uintptr_t)at, length, mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &piece, .num_sge = 1, .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {(uintptr_t)there, rkey}}, *bad;
    return ibv_post_send(qp, &wr, &bad);
}

static void succeeds(struct ibv_cq *cq)
{
    struct ibv_wc wc = next(cq);
    CHECK(wc.status == IBV_WC_SUCCESS);
    counts.messages++;
}

/* A device with memory, and what a round needs of it. */
struct side {
    struct ibv_context *context;
    struct ibv_pd *pd;
    union ibv_gid gid;
    unsigned char memory[3][LENGTH];
    struct ibv_mr *mr;
};

static void begin(struct side *side)
{
    side->context = open_device();
    side->pd = ibv_alloc_pd(side->context);
    side->gid = gid_of(side->context);
    side->mr = ibv_reg_mr(side->pd, side->memory, sizeof side->memory,
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                              IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND);
    CHECK(side->pd && side->mr);
}

static void end(struct side *side)
{
    CHECK(ibv_dereg_mr(side->mr) == 0 && ibv_dealloc_pd(side->pd) == 0);
    CHECK(ibv_close_device(side->context) == 0);
    counts.devices++;
}

/* Two queue pairs that are connected with each other. */
struct pair {
    struct ibv_comp_channel *channel;
    struct ibv_cq *sent, *received;
    struct ibv_srq *srq;
    struct ibv_qp *from, *to;
};

static void join(struct side *side, struct pair *pair, int shared)
{
    pair->channel = ibv_create_comp_channel(side->context);
    pair->sent = make_cq(side->context, 8);
    pair->received = ibv_create_cq(side->context, 8, side, pair->channel, 0);
    CHECK(pair->channel && pair->received);
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = 8, .max_sge = 1}};
    pair->srq = shared ? ibv_create_srq(side->pd, &srq) : NULL;
    struct ibv_qp_init_attr attr = qp_attr(pair->received, 8);
    attr.srq = pair->srq;
    attr.send_cq = pair->sent;
    pair->from = make_qp(side->pd, pair->sent, 8);
    pair->to = ibv_create_qp(side->pd, &attr);
    CHECK(pair->to);
    connect_qp(pair->from, pair->to->qp_num, side->gid);
    connect_qp(pair->to, pair->from->qp_num, side->gid);
}

static void part(struct pair *pair)
{
    CHECK(ibv_destroy_qp(pair->from) == 0 && ibv_destroy_qp(pair->to) == 0);
    CHECK(!pair->srq || ibv_destroy_srq(pair->srq) == 0);
    CHECK(ibv_destroy_cq(pair->sent) == 0 && ibv_destroy_cq(pair->received) == 0);
    CHECK(ibv_destroy_comp_channel(pair->channel) == 0);
    count_destroyed(2);
    counts.channels++;
}

/* A SEND that is announced, a WRITE and a READ. */
static void talk(struct side *side, struct pair *pair, unsigned seed)
{
    unsigned char *out = side->memory[0], *in = side->memory[1], *back = side->memory[2];
    fill(out, seed);
    memset(in, 0, LENGTH);
    CHECK(ibv_req_notify_cq(pair->received, 0) == 0);
    if (pair->srq) {
        struct ibv_sge piece = {(uintptr_t)in, LENGTH, side->mr->lkey};
        struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &piece, .num_sge = 1}, *bad;
        CHECK(ibv_post_srq_recv(pair->srq, &wr, &bad) == 0);
    } else {
        CHECK(post_recv(pair->to, 2, side->mr, in, LENGTH) == 0);
    }
    CHECK(post_send(pair->from, 1, side->mr, out, LENGTH) == 0);
    struct ibv_cq *announced;
    void *word;
    CHECK(ibv_get_cq_event(pair->channel, &announced, &word) == 0);
    CHECK(announced == pair->received && word == side);
    ibv_ack_cq_events(announced, 1);
    counts.announcements++;
    succeeds(pair->received);
    succeeds(pair->sent);
    CHECK(memcmp(out, in, LENGTH) == 0);

    fill(out, seed + 1);
    CHECK(post_rdma(pair->from, IBV_WR_RDMA_WRITE, side->mr, out, LENGTH, in, side->mr->rkey) == 0);
    succeeds(pair->sent);
    CHECK(memcmp(out, in, LENGTH) == 0);
    memset(back, 0, LENGTH);
    CHECK(post_rdma(pair->from, IBV_WR_RDMA_READ, side->mr, back, LENGTH, in, side->mr->rkey) == 0);
    succeeds(pair->sent);
    CHECK(memcmp(out, back, LENGTH) == 0);
}

/* A WRITE with a key that opens nothing: both queue pairs fail, and an event tells of it. */
static void fail(struct side *side, struct pair *pair)
{
    CHECK(post_rdma(pair->from, IBV_WR_RDMA_WRITE, side->mr, side->memory, 100, side->memory,
                    0xdeadbe00) == 0);
    CHECK(next(pair->sent).status == IBV_WC_REM_ACCESS_ERR);
    struct ibv_async_event event;
    do {
        CHECK(ibv_get_async_event(side->context, &event) == 0);
        ibv_ack_async_event(&event);
        counts.async_events++;
    } while (event.event_type != IBV_EVENT_QP_ACCESS_ERR || event.element.qp != pair->to);
}

static void regions(struct side *side, struct pair *pair, unsigned seed)
{
    for (unsigned number = 0; number < REGIONS; number++) {
        size_t length = 1000 + (seed * REGIONS + number) * 997 % 50000;
        char *memory = malloc(length);
        CHECK(memory);
        struct ibv_mr *mr = ibv_reg_mr(side->pd, memory, length,
                                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        CHECK(mr);
        if (number % 20 == 0) {
            fill(side->memory[0], seed + number);
            CHECK(post_rdma(pair->from, IBV_WR_RDMA_WRITE, side->mr, side->memory[0], 1000, memory,
                            mr->rkey) == 0);
            succeeds(pair->sent);
            CHECK(memcmp(memory, side->memory[0], 1000) == 0);
            CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, side->pd, NULL, 0,
                               IBV_ACCESS_LOCAL_WRITE) == 0);
        }
        CHECK(ibv_dereg_mr(mr) == 0);
        free(memory);
    }
    counts.regions += REGIONS;
}

static void windows(struct side *side, struct pair *pair)
{
    for (int number = 0; number < WINDOWS; number++) {
        struct ibv_mw *mw = ibv_alloc_mw(side->pd, number % 2 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
        CHECK(mw);
        struct ibv_mw_bind_info info = {side->mr, (uintptr_t)side->memory[1], 1000,
                                        IBV_ACCESS_REMOTE_WRITE};
        uint32_t rkey;
        if (mw->type == IBV_MW_TYPE_1) {
            struct ibv_mw_bind bind = {3, IBV_SEND_SIGNALED, info};
            CHECK(ibv_bind_mw(pair->to, mw, &bind) == 0);
            rkey = mw->rkey;
        } else {
            rkey = ibv_inc_rkey(mw->rkey);
            struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
                                     .bind_mw = {mw, rkey, info}}, *bad;
            uint32_t before = mw->rkey;
            CHECK(ibv_post_send(pair->to, &wr, &bad) == 0);
            /* The key is the program's to keep, as with mlx5 and rxe. */
            CHECK(mw->rkey == before);
        }
        succeeds(pair->sent);
        side->memory[0][0] = (unsigned char)number;
        CHECK(post_rdma(pair->from, IBV_WR_RDMA_WRITE, side->mr, side->memory[0], 1000,
                        side->memory[1], rkey) == 0);
        succeeds(pair->sent);
        CHECK(side->memory[1][0] == (unsigned char)number);
        CHECK(ibv_dealloc_mw(mw) == 0);
    }
    counts.windows += WINDOWS;
}

static void work(struct side *side, unsigned seed)
{
    struct pair pair;
    for (int number = 0; number < PAIRS - 1; number++) {
        join(side, &pair, number % 4 == 3);
        talk(side, &pair, seed + number);
        if (number % 5 == 4)
            fail(side, &pair);
        part(&pair);
    }
    join(side, &pair, 0);
    regions(side, &pair, seed);
    windows(side, &pair);
    part(&pair);
}

/* Devices that are opened beside what is open, or alone. */
static void open_and_close(void)
{
    for (int number = 0; number < OPENED; number++) {
        struct ibv_context *context = open_device();
        exchange(context);
        CHECK(ibv_close_device(context) == 0);
        counts.devices++;
        count_destroyed(2);
        counts.messages++;
    }
}

static void round_with(struct side *side, int stays, unsigned seed)
{
    if (!stays)
        begin(side);
    work(side, seed);
    if (!stays)
        end(side);
    open_and_close();
}

/* As many of every type as the library keeps places of, so that no more are made from then on. */
static void fill_places(void)
{
    struct ibv_context *context = open_device();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = make_cq(context, 1);
    char memory[16];
    for (int number = 0; number < KEPT; number++) {
        struct ibv_context *another = open_device();
        struct ibv_pd *domain = ibv_alloc_pd(another);
        struct ibv_comp_channel *channel = ibv_create_comp_channel(another);
        struct ibv_cq *queue = ibv_create_cq(another, 1, NULL, channel, 0);
        struct ibv_mr *mr = ibv_reg_mr(domain, memory, sizeof memory, 0);
        struct ibv_mw *mw = ibv_alloc_mw(domain, IBV_MW_TYPE_1);
        struct ibv_srq_init_attr attr = {.attr = {.max_wr = 1, .max_sge = 1}};
        struct ibv_srq *srq = ibv_create_srq(domain, &attr);
        CHECK(domain && channel && queue && mr && mw && srq);
        CHECK(ibv_destroy_qp(make_qp(pd, cq, 1)) == 0);
        CHECK(ibv_destroy_srq(srq) == 0 && ibv_dealloc_mw(mw) == 0 && ibv_dereg_mr(mr) == 0);
        CHECK(ibv_destroy_cq(queue) == 0 && ibv_destroy_comp_channel(channel) == 0);
        CHECK(ibv_dealloc_pd(domain) == 0 && ibv_close_device(another) == 0);
    }
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}

static void soak(struct side *side, int stays, double seconds)
{
    double start = now();
    unsigned seed = 0;
    /* Until every source port has its socket, and a fifth of the time has gone by. */
    while (seed < 8 || now() - start < seconds / 5)
        round_with(side, stays, seed++);
    census(stays, "warm");
    while (now() - start < seconds * 3 / 5)
        round_with(side, stays, seed++);
    census(stays, "half");
    while (now() - start < seconds)
        round_with(side, stays, seed++);
    census(stays, "end");
}

int main(int count, char **words)
{
    CHECK(count == 2);
    double seconds = atof(words[1]) / 2;
    static struct side side;
    fill_places();
    begin(&side);
    soak(&side, 1, seconds);
    end(&side);
    soak(&side, 0, seconds);
    printf("counts %ld devices, %ld queue pairs, %ld regions, %ld windows, %ld channels, "
           "%ld announcements, %ld asynchronous events, %ld messages\n",
           counts.devices, counts.queue_pairs, counts.regions, counts.windows, counts.channels,
           counts.announcements, counts.async_events, counts.messages);
}
