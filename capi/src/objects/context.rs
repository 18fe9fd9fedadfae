//! Contexts: an open device, and what was made of it.

use std::collections::HashMap;
use std::ffi::c_int;
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, OnceLock};

use softroce::verbs::{self, Qpn, Srqn};

use crate::abi::{ContextOps, IbvContext, VerbsContext};
use crate::border::{Errno, Handle, Object, number, pointer};
use crate::entry::cq::Cq;
use crate::entry::device::Device;
use crate::entry::qp::Qp;
use crate::entry::srq::Srq;
use crate::entry::{channel, cq, mr, pd, post, qp, query, srq};
use crate::{log, open};

/// `ibv_context`, with more before and behind it.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) c: VerbsContext,
    pub(crate) verbs: verbs::Context,
    /// Objects have it too: programs close a device before they destroy what was made of it.
    pub(crate) objects: Arc<Mutex<Objects>>,
}

impl Object for Context {
    const HEAD: usize = offset_of!(Context, c) + offset_of!(VerbsContext, context);
}

/// What events can tell of, by the numbers that they have for it.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) cqs: HashMap<u32, Handle<Cq>>,
    pub(crate) qps: HashMap<Qpn, Handle<Qp>>,
    pub(crate) srqs: HashMap<Srqn, Handle<Srq>>,
}

/// What is inline in the headers of programs, and calls us through these.
const OPS: ContextOps = ContextOps {
    query_device: query::query_device,
    query_port: query::query_port,
    none_a: [0; 5],
    alloc_mw: mr::alloc_mw,
    bind_mw: mr::bind_mw,
    dealloc_mw: mr::dealloc_mw,
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

/// The same, of what was added later. What is null is answered with `EOPNOTSUPP` by those headers.
fn extended(device: Handle<Device>, cmd_fd: c_int, async_fd: c_int) -> VerbsContext {
    VerbsContext {
        none_a: [0; 6],
        query_port: query::query_port_sized,
        advise_mr: mr::advise_mr,
        alloc_null_mr: mr::alloc_null_mr,
        none_b: [0; 4],
        reg_dm_mr: mr::reg_dm_mr,
        alloc_dm: mr::alloc_dm,
        free_dm: mr::free_dm,
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
        open_xrcd: srq::open_xrcd,
        close_xrcd: srq::close_xrcd,
        placeholder: 0,
        size: size_of::<VerbsContext>(),
        context: IbvContext {
            device,
            ops: OPS,
            cmd_fd,
            async_fd,
            num_comp_vectors: 1,
            mutex: Default::default(),
            abi_compat: usize::MAX,
        },
    }
}

/// Commands are for kernels, but programs duplicate it. One does for all, which leaves descriptors to those who
/// open many contexts. It can be read only: what is written to it fails.
fn cmd_fd() -> c_int {
    static COMMANDS: OnceLock<Option<File>> = OnceLock::new();
    let commands = COMMANDS.get_or_init(|| File::open("/dev/null").ok());
    commands.as_ref().map_or(-1, AsRawFd::as_raw_fd)
}

pub(crate) extern "C" fn open_device(device: Handle<Device>) -> Handle<Context> {
    pointer(|| {
        device.get()?;
        let verbs = open::open().map_err(|error| {
            log::failed(&error);
            Errno(error.errno())
        })?;
        Device::opened_at(verbs.ip());
        let events = verbs.event_fd()?;
        channel::block(events)?;
        let c = extended(device, cmd_fd(), events.as_raw_fd());
        Ok(Handle::new(Context { c, verbs, objects: Arc::default() }))
    })
}

pub(crate) extern "C" fn close_device(context: Handle<Context>) -> c_int {
    number(|| {
        context.get()?;
        context.destroy();
        open::complete_capture();
        Ok(())
    })
}
