/* The native half of Exchange.java. */

#include <jni.h>

#include "../../tests/dropin/hostile/verbs.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *from, *to;

static struct ibv_mr *registered(JNIEnv *env, jobject buffer)
{
    void *address = (*env)->GetDirectBufferAddress(env, buffer);
    struct ibv_mr *mr = ibv_reg_mr(pd, address, (size_t)(*env)->GetDirectBufferCapacity(env, buffer),
                                   IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr);
    return mr;
}

JNIEXPORT void JNICALL Java_Exchange_open(JNIEnv *env, jclass type, jobject source, jobject target)
{
    (void)type;
    context = open_device();
    pd = ibv_alloc_pd(context);
    CHECK(pd);
    cq = make_cq(context, 4);
    qp = make_qp(pd, cq, 1);
    connect_qp(qp, qp->qp_num, gid_of(context));
    from = registered(env, source);
    to = registered(env, target);
}

JNIEXPORT jint JNICALL Java_Exchange_send(JNIEnv *env, jclass type, jint length)
{
    (void)env, (void)type;
    CHECK(post_recv(qp, 1, to, to->addr, (uint32_t)to->length) == 0);
    CHECK(post_send(qp, 2, from, from->addr, (uint32_t)length) == 0);
    enum ibv_wc_status first = next(cq).status, second = next(cq).status;
    return (jint)(first ? first : second);
}

JNIEXPORT void JNICALL Java_Exchange_close(JNIEnv *env, jclass type)
{
    (void)env, (void)type;
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(from) == 0 && ibv_dereg_mr(to) == 0);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
}
