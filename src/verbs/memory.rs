//! Device memory, and advice about memory registered on demand.

use crate::mem::{Advice, AdviseError, DeviceMemory};
use crate::transport::work::Sge;
use crate::verbs::{Context, Error, ProtectionDomain};

impl ProtectionDomain {
    /// Advises the device about the use of memory with pages that may not be resident. Invalid scatter/gather elements
    /// are always an error; pages that cannot be made resident are an error with `wait` only.
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
        let pieces = sges.iter().map(Sge::piece);
        match self.inner.context.device.memory.advise(self.inner.id, advice, pieces) {
            Err(AdviseError::Os(_)) if !wait => Ok(()),
            other => Ok(other?),
        }
    }
}

impl Context {
    /// Allocates `len` bytes of device memory, zeroed, at a multiple of `2^log_align` bytes. Device memory is
    /// ordinary memory here; its total size is at most [`Limits::max_dm_size`].
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
