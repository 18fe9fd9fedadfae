//! Queue pairs.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use softroce::engine::AttrMask;
use softroce::verbs::{Error, FlatAttr, QpCap, QpInfo, QpState, QpType, Qpn, QueuePair, XrcTarget};

use super::context::Objects;
use super::number::next_handle;
use super::users::User;
use super::wr_batch::WrBatch;
use crate::abi::{
    Handle, IbvContext, IbvCq, IbvPd, IbvQp, IbvSrq, IbvXrcd, QpExHead, QpHead, QpWr, UserData,
};
use crate::border::{Errno, Pointee};
use crate::gate::lock;

/// A queue pair. Every `ibv_qp` is an `ibv_qp_ex`.
#[repr(C)]
pub(crate) struct Qp {
    pub(crate) c: QpExHead,
    end: End,
    qp_type: QpType,
    cap: QpCap,
    pub(crate) batch: WrBatch,
    is_extended: bool,
    _of_xrcd: Option<User>,
    objects: Arc<Mutex<Objects>>,
}

impl Pointee for IbvQp {
    type Object = Qp;
}

/// The queue pair of the library.
pub(crate) enum End {
    Pair(QueuePair),
    /// The receiving end of XRC.
    Target(XrcTarget),
}

/// The objects that a queue pair belongs to, as the structure of C names them.
pub(crate) struct QpParents {
    pub(crate) context: Handle<IbvContext>,
    pub(crate) pd: Handle<IbvPd>,
    pub(crate) qp_context: UserData,
    pub(crate) send_cq: Handle<IbvCq>,
    pub(crate) recv_cq: Handle<IbvCq>,
    pub(crate) srq: Handle<IbvSrq>,
    pub(crate) xrcd: Handle<IbvXrcd>,
}

impl QpParents {
    /// Returns the parents of an XRC target, which has only a context and a domain.
    pub(crate) const fn of_target(
        context: Handle<IbvContext>,
        xrcd: Handle<IbvXrcd>,
        qp_context: UserData,
    ) -> Self {
        Self {
            context,
            pd: Handle::NULL,
            qp_context,
            send_cq: Handle::NULL,
            recv_cq: Handle::NULL,
            srq: Handle::NULL,
            xrcd,
        }
    }
}

impl Qp {
    /// Creates the object of a queue pair, and registers it for events. `wr` is for queue pairs that
    /// programs post to by `ibv_wr_start`.
    ///
    /// # Errors
    ///
    /// `EINVAL` when the context is null, or the context or the XRC domain is destroyed; and the errors of
    /// the library.
    pub(crate) fn create(
        parents: &QpParents,
        end: End,
        is_extended: bool,
        wr: QpWr,
    ) -> Result<Handle<IbvQp>, Errno> {
        let objects = Arc::clone(&parents.context.get()?.objects);
        let of_xrcd = parents.xrcd.optional()?.map(|domain| domain.users.join());
        let (qpn, info) = (end.qpn(), end.query()?);
        let (qp_type, cap) = (info.init.qp_type, info.init.cap);
        let base = QpHead {
            context: parents.context,
            qp_context: AtomicPtr::new(parents.qp_context),
            pd: parents.pd,
            send_cq: parents.send_cq,
            recv_cq: parents.recv_cq,
            srq: parents.srq,
            handle: next_handle(),
            qp_num: qpn.value(),
            state: AtomicU32::new(info.state as u32),
            qp_type: qp_type as c_uint,
            mutex: Default::default(),
            cond: Default::default(),
            events_completed: AtomicU32::new(0),
        };
        let (wr_id, wr_flags) = (AtomicU64::new(0), AtomicU32::new(0));
        let c = QpExHead { base, comp_mask: 0, wr_id, wr_flags, wr };
        let (batch, table) = (WrBatch::default(), Arc::clone(&objects));
        let qp = Self { c, end, qp_type, cap, batch, is_extended, _of_xrcd: of_xrcd, objects };
        let qp = Handle::new(qp);
        lock(&table).qps.insert(qpn, qp);
        Ok(qp)
    }

    /// Events no longer name the queue pair after this.
    pub(crate) fn unregister(&self) {
        lock(&self.objects).qps.remove(&self.end.qpn());
    }

    /// Returns the queue pair of the library.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an XRC target, which sends no requests.
    pub(crate) fn initiator(&self) -> Result<&QueuePair, Errno> {
        match &self.end {
            End::Pair(pair) => Ok(pair),
            End::Target(_) => Err(Errno::invalid("an XRC target sends no requests")),
        }
    }

    pub(crate) fn qp_type(&self) -> QpType {
        self.qp_type
    }

    /// Returns the capacities that the library has granted.
    pub(crate) fn cap(&self) -> &QpCap {
        &self.cap
    }

    /// Whether the queue pair was created for `ibv_wr_start`.
    pub(crate) fn is_extended(&self) -> bool {
        self.is_extended
    }

    /// Returns state and attributes, and shows the program the state.
    ///
    /// # Errors
    ///
    /// The errors of the library.
    pub(crate) fn query(&self) -> Result<QpInfo, Error> {
        let info = self.end.query()?;
        self.show_state(info.state);
        Ok(info)
    }

    /// Changes the attributes in the mask, and shows the program the new state.
    ///
    /// # Errors
    ///
    /// The errors of the library.
    pub(crate) fn modify(&self, attr: &FlatAttr, mask: u32) -> Result<(), Error> {
        let mask = mask & !ignored_attributes(self.qp_type).bits();
        match &self.end {
            End::Pair(pair) => pair.modify_masked(attr, mask)?,
            End::Target(target) => target.modify_masked(attr, mask)?,
        }
        self.query().map(|_| ())
    }

    /// Stores the state where the program reads it.
    pub(crate) fn show_state(&self, state: QpState) {
        self.c.base.state.store(state as u32, Ordering::Relaxed);
    }

    pub(crate) fn ack_async_events(&self, events: u32) {
        match &self.end {
            End::Pair(pair) => pair.ack_async_events(events),
            End::Target(target) => target.ack_async_events(events),
        }
    }

    /// Waits until the program has acknowledged all events of the queue pair.
    ///
    /// # Errors
    ///
    /// The errors of the library.
    pub(crate) fn wait_acknowledged(&self) -> Result<(), Error> {
        match &self.end {
            End::Pair(pair) => pair.wait_acknowledged(None),
            End::Target(target) => target.wait_acknowledged(None),
        }
    }

    /// Destroys the queue pair of the library.
    ///
    /// # Errors
    ///
    /// The errors of the library. The queue pair then stays.
    pub(crate) fn destroy(&self) -> Result<(), Error> {
        match &self.end {
            End::Pair(pair) => pair.clone().destroy().map_err(|(_, error)| error),
            End::Target(target) => target.clone().destroy().map_err(|(_, error)| error),
        }
    }
}

impl End {
    fn query(&self) -> Result<QpInfo, Error> {
        match self {
            Self::Pair(pair) => pair.query(),
            Self::Target(target) => target.query(),
        }
    }

    fn qpn(&self) -> Qpn {
        match self {
            Self::Pair(pair) => pair.qpn(),
            Self::Target(target) => target.qpn(),
        }
    }
}

/// Returns attributes of the other end of XRC. Programs pass the attributes of both ends to either, and
/// the kernel ignores those that an end does not have.
fn ignored_attributes(qp_type: QpType) -> AttrMask {
    match qp_type {
        QpType::XrcIni => AttrMask::MAX_DEST_RD_ATOMIC | AttrMask::MIN_RNR_TIMER,
        QpType::XrcTgt => AttrMask::MAX_QP_RD_ATOMIC | AttrMask::RETRY_CNT | AttrMask::RNR_RETRY,
        QpType::Rc | QpType::Uc | QpType::Ud => AttrMask::empty(),
    }
}
