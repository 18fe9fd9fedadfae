//! Memory that is more than bytes with a key: none, on the device, expected soon, or registered anew.

use std::sync::Arc;

use crate::mem::{Access, Advice, AdviseError, DeviceMemory, HostMemory, Reregister};
use crate::transport::work::Sge;
use crate::verbs::{Context, Error, MemoryRegion, ProtectionDomain};

impl ProtectionDomain {
    /// A region without memory, of every address: what is read from it is zero, and what is written
    /// is gone. For work requests here; peers may do nothing with it.
    ///
    /// # Errors
    ///
    /// [`Error::Register`] when there are too many regions.
    ///
    /// # Examples
    ///
    /// The middle of a message is not wanted:
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
    /// [`Access::ZERO_BASED`] must be among the flags. It stays allocated as long as the region is
    /// there.
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

    /// Says what will soon be done with memory of which pages may be elsewhere. What is wrong with
    /// the pieces is told in either case; whether the pages could be brought in, only if `wait` asks
    /// for it.
    ///
    /// # Errors
    ///
    /// [`Error::Advise`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// # let pd = Context::open(OpenOptions::loopback())?.alloc_pd();
    /// let mr = pd.alloc_mr(1 << 20, Access::LOCAL_WRITE | Access::ON_DEMAND)?;
    /// pd.advise_mr(Advice::PrefetchWrite, false, &[mr.sge(..4096)])?;
    /// # Ok::<(), Error>(())
    /// ```
    #[doc(alias = "ibv_advise_mr")]
    #[doc(alias = "IBV_ADVISE_MR_FLAG_FLUSH")]
    pub fn advise_mr(&self, advice: Advice, wait: bool, sges: &[Sge]) -> Result<(), Error> {
        let pieces = sges.iter().map(|sge| (sge.lkey, sge.addr, sge.length));
        match self.inner.context.device.memory.advise(self.inner.id, advice, pieces) {
            Err(AdviseError::Os(_)) if !wait => Ok(()),
            other => Ok(other?),
        }
    }
}

impl Context {
    /// Allocates `len` bytes of the device's own memory, zeroed, at a multiple of `2^log_align`
    /// bytes. Here it is memory like any other; there is as much as [`Limits::max_dm_size`] says.
    ///
    /// [`Limits::max_dm_size`]: super::Limits::max_dm_size
    ///
    /// # Errors
    ///
    /// [`Error::DeviceMemory`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// let ctx = Context::open(OpenOptions::loopback())?;
    /// let dm = ctx.alloc_dm(4096, 6)?;
    /// dm.memcpy_to_dm(64, b"a doorbell record")?;
    /// let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::ZERO_BASED;
    /// let mr = ctx.alloc_pd().reg_dm_mr(&dm, 64, 64, access)?;
    /// assert_eq!(mr.remote(2).addr, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "ibv_alloc_dm")]
    pub fn alloc_dm(&self, len: usize, log_align: u32) -> Result<DeviceMemory, Error> {
        Ok(self.inner.device.memory.alloc_dm(len, log_align)?)
    }
}

/// What is to be another of a region. What is not said stays.
#[derive(Debug, Default)]
pub struct Rereg<'a> {
    /// Other memory, and where its addresses start if not at its own.
    #[doc(alias = "IBV_REREG_MR_CHANGE_TRANSLATION")]
    pub memory: Option<(HostMemory, Option<u64>)>,
    /// Another protection domain.
    #[doc(alias = "IBV_REREG_MR_CHANGE_PD")]
    pub pd: Option<&'a ProtectionDomain>,
    /// Other rights.
    #[doc(alias = "IBV_REREG_MR_CHANGE_ACCESS")]
    pub access: Option<Access>,
}

impl MemoryRegion {
    /// Registers it anew, under the key that it has. Requests that are under way with it are cut
    /// off; those that begin later find it as it is then. Other handles are on what it was, which is
    /// deregistered.
    ///
    /// # Errors
    ///
    /// [`Error::Register`], also when memory windows are bound to it; [`Error::OtherDevice`] for the
    /// protection domain. It stays as it was.
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
}
