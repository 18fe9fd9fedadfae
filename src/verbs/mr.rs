//! Memory regions.

use std::ops::{Bound, Deref, RangeBounds};
use std::sync::Arc;

use crate::mem::{Access, BindInfo, DeregisterError, DeviceMemory, HostMemory, Region, Reregister};
use crate::transport::work::{RemoteAddr, Sge};
use crate::verbs::pd::PdInner;
use crate::verbs::{Error, ProtectionDomain};

/// Registered memory. Dropping the last handle deregisters it: later work requests with its keys end with
/// `LOC_PROT_ERR`, and requests of peers with `REM_ACCESS_ERR`, also those with keys of memory windows
/// bound to it.
///
/// The methods of [`Region`] read and write its bytes, because peers may write them at any time.
///
/// ```
/// # use softroce::verbs::*;
/// # let pd = Context::open(OpenOptions::loopback())?.alloc_pd();
/// let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::ZERO_BASED)?;
/// assert_eq!(mr.sge(16..80), Sge { addr: 16, length: 64, lkey: mr.lkey() });
/// assert_eq!(mr.remote(16), RemoteAddr { addr: 16, rkey: mr.rkey() });
/// # Ok::<(), Error>(())
/// ```
#[doc(alias = "ibv_mr")]
#[derive(Clone, Debug)]
pub struct MemoryRegion {
    inner: Arc<MrInner>,
}

#[derive(Debug)]
struct MrInner {
    region: Arc<Region>,
    pd: Arc<PdInner>,
    /// The device memory that it is a part of, which stays allocated with the region.
    dm: Option<DeviceMemory>,
}

impl MemoryRegion {
    fn new(region: Arc<Region>, pd: Arc<PdInner>, dm: Option<DeviceMemory>) -> Self {
        Self { inner: Arc::new(MrInner { region, pd, dm }) }
    }

    /// Returns the scatter/gather element of these bytes for a work request. The device checks the bounds
    /// when it executes the request.
    #[inline]
    pub fn sge(&self, range: impl RangeBounds<usize>) -> Sge {
        let (start, end) = self.bounds(&range);
        Sge {
            addr: self.remote(start).addr,
            // The length of a message is below this limit.
            length: u32::try_from(end.saturating_sub(start)).unwrap_or(u32::MAX),
            lkey: self.lkey(),
        }
    }

    /// Deregisters the region while handles on it exist, unless memory windows are bound to it.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`]; it stays registered.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn deregister(&self) -> Result<(), Error> {
        let memory = &self.inner.pd.context.device.memory;
        memory.try_deregister(&self.inner.region).map_err(|DeregisterError { windows }| {
            Error::InUse { what: "memory region", by: "memory windows", count: windows as u64 }
        })
    }

    /// Returns the attributes that bind a memory window to these bytes, with these access rights of peers.
    /// The device checks the bounds when it binds the window.
    pub fn bind_info(&self, range: impl RangeBounds<usize>, access: Access) -> BindInfo {
        let (start, end) = self.bounds(&range);
        let length = end.saturating_sub(start) as u64;
        BindInfo { lkey: self.lkey(), addr: self.remote(start).addr, length, access }
    }

    /// Returns the address of the byte at `offset` for requests of peers.
    pub fn remote(&self, offset: usize) -> RemoteAddr {
        RemoteAddr { addr: self.addr().wrapping_add(offset as u64), rkey: self.rkey() }
    }

    /// Registers the region anew under the same keys. Requests in progress on the old memory end early;
    /// later requests use the changed region. Other handles refer to the old region, which is
    /// deregistered.
    ///
    /// # Errors
    ///
    /// [`Error::Register`], also when memory windows are bound to it; [`Error::OtherDevice`] for the
    /// protection domain. The region does not change.
    ///
    /// # Examples
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// # let pd = Context::open(OpenOptions::loopback())?.alloc_pd();
    /// let mut mr = pd.alloc_mr(4096, Access::LOCAL_WRITE)?;
    /// let key = mr.rkey();
    /// mr.rereg(Rereg { access: Some(Access::REMOTE_READ), ..Rereg::default() })?;
    /// mr.rereg(Rereg { memory: Some((HostMemory::alloc(1 << 20)?, None)), ..Rereg::default() })?;
    /// assert_eq!((mr.rkey(), mr.len(), mr.access()), (key, 1 << 20, Access::REMOTE_READ));
    /// # Ok::<(), Error>(())
    /// ```
    #[doc(alias = "ibv_rereg_mr")]
    pub fn rereg(&mut self, change: Rereg<'_>) -> Result<(), Error> {
        let old = &self.inner;
        let pd = change.pd.map_or(&old.pd, |pd| &pd.inner);
        if !old.pd.context.is_of(&pd.context.device) {
            return Err(Error::OtherDevice { what: "protection domain" });
        }
        let dm = if change.memory.is_some() { None } else { old.dm.clone() };
        let change = Reregister { memory: change.memory, pd: Some(pd.id), access: change.access };
        let region = pd.context.device.memory.reregister(&old.region, change)?;
        *self = Self::new(region, Arc::clone(pd), dm);
        Ok(())
    }

    #[inline]
    fn bounds(&self, range: &impl RangeBounds<usize>) -> (usize, usize) {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.len(),
        };
        (start, end)
    }
}

impl Deref for MemoryRegion {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.inner.region
    }
}

impl Drop for MrInner {
    fn drop(&mut self) {
        self.pd.context.device.memory.deregister(&self.region);
    }
}

/// Attributes of a region that [`MemoryRegion::rereg`] changes; `None` keeps one.
#[derive(Debug, Default)]
pub struct Rereg<'a> {
    /// Other memory, and its first address if that is not the host address.
    #[doc(alias = "IBV_REREG_MR_CHANGE_TRANSLATION")]
    pub memory: Option<(HostMemory, Option<u64>)>,
    /// Another protection domain.
    #[doc(alias = "IBV_REREG_MR_CHANGE_PD")]
    pub pd: Option<&'a ProtectionDomain>,
    /// Other access rights.
    #[doc(alias = "IBV_REREG_MR_CHANGE_ACCESS")]
    pub access: Option<Access>,
}

impl ProtectionDomain {
    /// Allocates `len` bytes, zeroed and page-aligned, and registers them.
    ///
    /// # Errors
    ///
    /// [`Error::Alloc`], [`Error::Register`].
    pub fn alloc_mr(&self, len: usize, access: Access) -> Result<MemoryRegion, Error> {
        self.reg_mr(HostMemory::alloc(len)?, access)
    }

    /// Registers memory. Peers and work requests address it by its host addresses, or from zero
    /// with [`Access::ZERO_BASED`].
    ///
    /// # Errors
    ///
    /// [`Error::Register`]; the memory is dropped.
    #[doc(alias = "ibv_reg_mr")]
    pub fn reg_mr(&self, memory: HostMemory, access: Access) -> Result<MemoryRegion, Error> {
        self.register(memory, None, access)
    }

    /// Registers memory that peers and work requests address from `iova` on.
    ///
    /// # Errors
    ///
    /// [`Error::Register`]; the memory is dropped.
    #[doc(alias = "ibv_reg_mr_iova")]
    pub fn reg_mr_iova(
        &self,
        memory: HostMemory,
        iova: u64,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        self.register(memory, Some(iova), access)
    }

    /// Registers a region without memory, which contains every address: reads return zeros, and writes are
    /// discarded. It is for local work requests; peers have no access.
    ///
    /// # Errors
    ///
    /// [`Error::Register`] when there are too many regions.
    ///
    /// # Examples
    ///
    /// A receiver discards the middle of a message:
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// # let ctx = Context::open(OpenOptions::loopback())?;
    /// # let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
    /// # let qp = pd.create_qp(&QpConfig::rc(&cq))?;
    /// # qp.connect(&qp.endpoint(), &ConnectOptions::default())?;
    /// let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE)?;
    /// let null = pd.alloc_null_mr()?;
    /// let pieces = [mr.sge(..5), null.sge(..7), mr.sge(5..9)];
    /// qp.post_recv(RecvRequest::scattered(1, &pieces))?;
    /// qp.post_send(SendRequest::send(2, SendData::inline(b"start middle end")))?;
    /// assert_eq!(cq.wait_one(None)?.byte_len, 16);
    /// let mut seen = [0; 9];
    /// mr.read_at(0, &mut seen)?;
    /// assert_eq!(&seen, b"start end");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "ibv_alloc_null_mr")]
    pub fn alloc_null_mr(&self) -> Result<MemoryRegion, Error> {
        self.reg_mr(HostMemory::null(), Access::LOCAL_WRITE)
    }

    /// Registers `len` bytes of device memory from `offset` on, addressed from zero:
    /// [`Access::ZERO_BASED`] must be among the flags. The device memory stays allocated as long as
    /// the region exists.
    ///
    /// # Errors
    ///
    /// [`Error::Register`]; [`Error::OtherDevice`].
    #[doc(alias = "ibv_reg_dm_mr")]
    pub fn reg_dm_mr(
        &self,
        dm: &DeviceMemory,
        offset: usize,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let pd = Arc::clone(&self.inner);
        let memory = &pd.context.device.memory;
        if !memory.owns(dm) {
            return Err(Error::OtherDevice { what: "device memory" });
        }
        let region = memory.register_dm(pd.id, dm, offset, len, access)?;
        Ok(MemoryRegion::new(region, pd, Some(dm.clone())))
    }

    fn register(
        &self,
        memory: HostMemory,
        iova: Option<u64>,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let pd = Arc::clone(&self.inner);
        let region = pd.context.device.memory.register(pd.id, memory, iova, access)?;
        Ok(MemoryRegion::new(region, pd, None))
    }
}
