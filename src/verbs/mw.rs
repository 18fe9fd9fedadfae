//! Memory windows.

use std::sync::{Arc, PoisonError};

use crate::ids::{MwId, Rkey};
use crate::mem::{MwType, TooManyWindows};
use crate::runtime::Device;
use crate::sync::Mutex;
use crate::verbs::pd::PdInner;
use crate::verbs::{Error, ProtectionDomain};

/// A part of a [`MemoryRegion`](super::MemoryRegion) with its own key, access rights and lifetime. Binding and
/// invalidating a window costs less than registering and deregistering memory.
///
/// [`QueuePair::bind_mw`](super::QueuePair::bind_mw) binds a window of type 1. A work request binds one of
/// type 2, as here; another work request, or a SEND of the peer, invalidates it. Dropping the last handle
/// deallocates a window, bound or not.
///
/// ```
/// use softroce::verbs::*;
///
/// let ctx = Context::open(OpenOptions::loopback())?;
/// let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
/// let (near, far) = (pd.create_qp(&QpConfig::rc(&cq))?, pd.create_qp(&QpConfig::rc(&cq))?);
/// near.connect(&far.endpoint(), &ConnectOptions::default())?;
/// far.connect(&near.endpoint(), &ConnectOptions::default())?;
///
/// let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::MW_BIND)?;
/// let mw = pd.alloc_mw(MwType::Type2)?;
/// let rkey = mw.rkey().inc();
/// let info = mr.bind_info(..64, Access::REMOTE_WRITE | Access::ZERO_BASED);
/// far.post_send(SendRequest::bind_mw(1, mw.id(), rkey, info).signaled())?;
/// assert_eq!(cq.wait_one(None)?.status, WcStatus::Success);
///
/// // The peer writes, sends a notification, and invalidates its own access.
/// far.post_recv(RecvRequest::scattered(2, &[]))?;
/// let window = RemoteAddr { addr: 0, rkey };
/// near.post_send(SendRequest::write(3, SendData::inline(b"done"), window))?;
/// near.post_send(SendRequest::send_inv(4, SendData::none(), rkey))?;
/// assert_eq!(cq.wait_one(None)?.invalidated, Some(rkey));
///
/// near.post_send(SendRequest::write(5, SendData::inline(b"more"), window))?;
/// assert_eq!(cq.wait_one(None)?.status, WcStatus::RemAccessErr);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_mw")]
#[derive(Clone, Debug)]
pub struct MemoryWindow {
    inner: Arc<MwInner>,
}

#[derive(Debug)]
struct MwInner {
    id: MwId,
    mw_type: MwType,
    /// The key of the last bind request that the program posted.
    posted: Mutex<Rkey>,
    pd: Arc<PdInner>,
}

impl MemoryWindow {
    /// Returns its number, which work requests contain.
    pub fn id(&self) -> MwId {
        self.inner.id
    }

    /// Returns its type, which determines how to bind it.
    pub fn mw_type(&self) -> MwType {
        self.inner.mw_type
    }

    /// Returns its current key: that of the last bind request that the device has executed. The key permits
    /// no access while the window is not bound.
    pub fn rkey(&self) -> Rkey {
        // The window exists as long as a handle on it.
        self.inner.pd.context.device.memory.window_key(self.inner.id).unwrap_or_default()
    }

    pub(super) fn is_of(&self, device: &Arc<Device>) -> bool {
        self.inner.pd.context.is_of(device)
    }

    /// Calls `post` with the next key, and returns this key when the bind request was posted.
    pub(super) fn with_next_key(
        &self,
        post: impl FnOnce(MwId, Rkey) -> Result<(), Error>,
    ) -> Result<Rkey, Error> {
        let (found, needed) = (self.inner.mw_type, MwType::Type1);
        if found != needed {
            return Err(Error::WindowType { what: "bind_mw", found, needed });
        }
        // The lock keeps the keys in the order of the requests.
        let mut posted = self.inner.posted.lock().unwrap_or_else(PoisonError::into_inner);
        let rkey = posted.inc();
        post(self.inner.id, rkey)?;
        *posted = rkey;
        Ok(rkey)
    }
}

impl Drop for MwInner {
    #[doc(alias = "ibv_dealloc_mw")]
    fn drop(&mut self) {
        self.pd.context.device.memory.dealloc_window(self.id);
    }
}

impl ProtectionDomain {
    /// Allocates a memory window, which is not bound yet.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]: there are [`max_mw`](super::Limits::max_mw).
    #[doc(alias = "ibv_alloc_mw")]
    pub fn alloc_mw(&self, mw_type: MwType) -> Result<MemoryWindow, Error> {
        let pd = Arc::clone(&self.inner);
        let memory = &pd.context.device.memory;
        let id = memory
            .alloc_window(pd.id, mw_type)
            .map_err(|TooManyWindows { max }| Error::Full { what: "memory windows", max })?;
        let posted = Mutex::new(memory.window_key(id).unwrap_or_default());
        Ok(MemoryWindow { inner: Arc::new(MwInner { id, mw_type, posted, pd }) })
    }
}
