// Goroutines that each send to themselves over a queue pair of their own, by cgo. Every byte is compared.
package main

// #cgo LDFLAGS: -libverbs
// #include <stdlib.h>
// #include <infiniband/verbs.h>
import "C"

import (
	"bytes"
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"sync"
	"unsafe"
)

const (
	goroutines = 8
	rounds     = 50
	length     = 100000
)

type device struct {
	context *C.struct_ibv_context
	pd      *C.struct_ibv_pd
	gid     C.union_ibv_gid
}

func check(ok bool, what string, err error) {
	if !ok {
		fmt.Fprintln(os.Stderr, what, err)
		os.Exit(1)
	}
}

func open() device {
	list, err := C.ibv_get_device_list(nil)
	check(list != nil && *list != nil, "ibv_get_device_list", err)
	defer C.ibv_free_device_list(list)
	context, err := C.ibv_open_device(*list)
	check(context != nil, "ibv_open_device", err)
	pd, err := C.ibv_alloc_pd(context)
	check(pd != nil, "ibv_alloc_pd", err)
	opened := device{context: context, pd: pd}
	status, err := C.ibv_query_gid(context, 1, 0, &opened.gid)
	check(status == 0, "ibv_query_gid", err)
	return opened
}

// Connects a queue pair to itself.
func connect(qp *C.struct_ibv_qp, gid C.union_ibv_gid, psn C.uint32_t) {
	modify := func(attr C.struct_ibv_qp_attr, mask C.int) {
		status, err := C.ibv_modify_qp(qp, &attr, mask)
		check(status == 0, "ibv_modify_qp", err)
	}
	attr := C.struct_ibv_qp_attr{qp_state: C.IBV_QPS_INIT, port_num: 1}
	modify(attr, C.IBV_QP_STATE|C.IBV_QP_PKEY_INDEX|C.IBV_QP_PORT|C.IBV_QP_ACCESS_FLAGS)
	attr = C.struct_ibv_qp_attr{qp_state: C.IBV_QPS_RTR, path_mtu: C.IBV_MTU_4096, dest_qp_num: qp.qp_num, min_rnr_timer: 12,
		rq_psn: psn}
	attr.ah_attr.is_global, attr.ah_attr.port_num, attr.ah_attr.grh.dgid = 1, 1, gid
	modify(attr, C.IBV_QP_STATE|C.IBV_QP_AV|C.IBV_QP_PATH_MTU|C.IBV_QP_DEST_QPN|C.IBV_QP_RQ_PSN|
		C.IBV_QP_MAX_DEST_RD_ATOMIC|C.IBV_QP_MIN_RNR_TIMER)
	attr = C.struct_ibv_qp_attr{qp_state: C.IBV_QPS_RTS, timeout: 16, retry_cnt: 7, rnr_retry: 7, sq_psn: psn}
	modify(attr, C.IBV_QP_STATE|C.IBV_QP_TIMEOUT|C.IBV_QP_RETRY_CNT|C.IBV_QP_RNR_RETRY|C.IBV_QP_SQ_PSN|
		C.IBV_QP_MAX_QP_RD_ATOMIC)
}

func exchange(opened device, seed int64) {
	random := rand.New(rand.NewSource(seed))
	cq, err := C.ibv_create_cq(opened.context, 4, nil, nil, 0)
	check(cq != nil, "ibv_create_cq", err)
	init := C.struct_ibv_qp_init_attr{send_cq: cq, recv_cq: cq, qp_type: C.IBV_QPT_RC}
	init.cap = C.struct_ibv_qp_cap{max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1}
	qp, err := C.ibv_create_qp(opened.pd, &init)
	check(qp != nil, "ibv_create_qp", err)
	// As programs do: each connection has a first PSN of its own.
	connect(qp, opened.gid, C.uint32_t(random.Intn(1<<24)))

	// Memory of C, since Go may move its own.
	memory := C.malloc(2 * length)
	defer C.free(memory)
	mr, err := C.ibv_reg_mr(opened.pd, memory, 2*length, C.IBV_ACCESS_LOCAL_WRITE)
	check(mr != nil, "ibv_reg_mr", err)
	content := unsafe.Slice((*byte)(memory), 2*length)
	// As for the memory: pointers to the pieces are in the requests.
	pieces := (*[2]C.struct_ibv_sge)(C.malloc(C.size_t(2 * unsafe.Sizeof(C.struct_ibv_sge{}))))
	defer C.free(unsafe.Pointer(pieces))
	base := C.uint64_t(uintptr(memory))
	for number := 0; number < rounds; number++ {
		size := 1 + random.Intn(length)
		random.Read(content[:size])
		pieces[0] = C.struct_ibv_sge{addr: base, length: C.uint32_t(size), lkey: mr.lkey}
		pieces[1] = C.struct_ibv_sge{addr: base + length, length: length, lkey: mr.lkey}
		receive := C.struct_ibv_recv_wr{wr_id: 1, sg_list: &pieces[1], num_sge: 1}
		send := C.struct_ibv_send_wr{wr_id: 2, sg_list: &pieces[0], num_sge: 1, opcode: C.IBV_WR_SEND,
			send_flags: C.IBV_SEND_SIGNALED}
		var badReceive *C.struct_ibv_recv_wr
		var badSend *C.struct_ibv_send_wr
		status, err := C.ibv_post_recv(qp, &receive, &badReceive)
		check(status == 0, "ibv_post_recv", err)
		status, err = C.ibv_post_send(qp, &send, &badSend)
		check(status == 0, "ibv_post_send", err)
		for left := 2; left > 0; {
			var completion C.struct_ibv_wc
			found := C.ibv_poll_cq(cq, 1, &completion)
			check(found >= 0 && completion.status == C.IBV_WC_SUCCESS, fmt.Sprint("completion ", completion.status), nil)
			left -= int(found)
			if found == 0 {
				runtime.Gosched()
			}
		}
		check(bytes.Equal(content[:size], content[length:length+size]), fmt.Sprint("message ", number, " is wrong"), nil)
	}
	check(C.ibv_destroy_qp(qp) == 0 && C.ibv_dereg_mr(mr) == 0 && C.ibv_destroy_cq(cq) == 0, "destroy", nil)
}

func main() {
	opened := open()
	var all sync.WaitGroup
	for number := int64(0); number < goroutines; number++ {
		all.Add(1)
		go func(seed int64) {
			defer all.Done()
			exchange(opened, seed)
		}(number)
	}
	all.Wait()
	check(C.ibv_dealloc_pd(opened.pd) == 0 && C.ibv_close_device(opened.context) == 0, "close", nil)
	fmt.Println("all data is right")
}
