//! The table of functions in each context, through which the inline functions of `verbs.h` call the
//! library.

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::AsRawFd;

use softroce::runtime::PerProcess;

use crate::abi::{ContextHead, ContextOps, Handle, IbvDevice, VerbsContext};
use crate::entry::{cq, dm, mr, mw, pd, post, qp, query, srq, xrcd};

/// The functions of `ibv_context`.
const CONTEXT_OPS: ContextOps = ContextOps {
    query_device: query::query_device,
    query_port: query::query_port,
    none_a: [0; 5],
    alloc_mw: mw::alloc_mw,
    bind_mw: mw::bind_mw,
    dealloc_mw: mw::dealloc_mw,
    none_b: [0; 1],
    poll_cq: cq::poll_cq,
    req_notify_cq: cq::req_notify_cq,
    none_c: [0; 7],
    post_srq_recv: post::post_srq_recv,
    none_d: [0; 4],
    post_send: post::post_send,
    post_recv: post::post_recv,
    none_e: [0; 5],
};

/// Returns the structure that C sees of a new context. The inline functions of `verbs.h` return
/// `EOPNOTSUPP` for null entries of the table.
pub(super) fn verbs_context(device: Handle<IbvDevice>, async_fd: c_int) -> VerbsContext {
    VerbsContext {
        none_a: [0; 6],
        query_port: query::query_port_sized,
        advise_mr: mr::advise_mr,
        alloc_null_mr: mr::alloc_null_mr,
        none_b: [0; 4],
        reg_dm_mr: dm::reg_dm_mr,
        alloc_dm: dm::alloc_dm,
        free_dm: dm::free_dm,
        none_c: [0; 3],
        modify_qp_rate_limit: qp::modify_qp_rate_limit,
        alloc_parent_domain: pd::alloc_parent_domain,
        dealloc_td: pd::dealloc_td,
        alloc_td: pd::alloc_td,
        modify_cq: cq::modify_cq,
        none_d: [0; 6],
        query_rt_values: query::query_rt_values,
        create_cq_ex: cq::create_cq_ex,
        private: 0,
        query_device_ex: query::query_device_ex,
        none_e: [0; 4],
        open_qp: qp::open_qp,
        create_qp_ex: qp::create_qp_ex,
        get_srq_num: srq::get_srq_num,
        create_srq_ex: srq::create_srq_ex,
        open_xrcd: xrcd::open_xrcd,
        close_xrcd: xrcd::close_xrcd,
        placeholder: 0,
        size: size_of::<VerbsContext>(),
        context: ContextHead {
            device,
            ops: CONTEXT_OPS,
            cmd_fd: cmd_fd(),
            async_fd,
            num_comp_vectors: 1,
            mutex: Default::default(),
            abi_compat: usize::MAX,
        },
    }
}

/// Returns a descriptor for commands to the kernel, which programs duplicate. All contexts share one, so
/// programs that open many contexts do not run out of descriptors. It is read-only: writes to it fail.
fn cmd_fd() -> c_int {
    static COMMANDS: PerProcess<Option<File>> = PerProcess::new(|_| File::open("/dev/null").ok());
    COMMANDS.get().as_ref().map_or(-1, AsRawFd::as_raw_fd)
}
