//! Advice about the use of memory.

use std::io;
use std::sync::Arc;

use thiserror::Error;

use super::{Memory, span_of};
use crate::ids::{Lkey, PdId};
use crate::mem::access::{AccessError, LocalAccess};

/// Expected use of memory with pages that may not be present (`ibv_advise_mr(3)`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[doc(alias = "ibv_advise_mr_advice")]
pub enum Advice {
    /// Reads: makes pages present.
    #[doc(alias = "IBV_ADVISE_MR_ADVICE_PREFETCH")]
    Prefetch = 0,
    /// Writes: makes pages present and writable.
    #[doc(alias = "IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE")]
    PrefetchWrite = 1,
    /// Reads, without page faults: absent pages stay absent.
    #[doc(alias = "IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT")]
    PrefetchNoFault = 2,
}

impl Memory {
    /// Takes advice about elements `(key, address, length)` of domain `pd`.
    ///
    /// # Errors
    /// See [`AdviseError`].
    pub fn advise(
        &self,
        pd: PdId,
        advice: Advice,
        pieces: impl IntoIterator<Item = (Lkey, u64, u32)>,
    ) -> Result<(), AdviseError> {
        let need = match advice {
            Advice::Prefetch | Advice::PrefetchNoFault => LocalAccess::Read,
            Advice::PrefetchWrite => LocalAccess::Write,
        };
        for (lkey, addr, len) in pieces {
            let table = self.read();
            let region = table.region(pd, lkey.0)?;
            span_of(region, addr, len, need.access())?;
            let offset = region.offset_of(addr, len)?;
            let region = Arc::clone(region);
            drop(table);
            if advice != Advice::PrefetchNoFault {
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                region
                    .prefetch(offset, len, need == LocalAccess::Write)
                    .map_err(AdviseError::Os)?;
            }
        }
        Ok(())
    }
}

/// Error of advice. Earlier elements of the list have taken effect.
#[derive(Debug, Error)]
pub enum AdviseError {
    /// The key does not grant this access.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The system cannot make the pages present.
    #[error("cannot prefetch: {0}")]
    Os(#[source] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::{Access, HostMemory};

    const PD: PdId = PdId(1);

    #[test]
    fn advice_is_checked_like_a_request() {
        let memory = Memory::new([0; 32]);
        let host = HostMemory::alloc(64).unwrap();
        let region = memory.register(PD, host, Some(0x1000), Access::empty()).unwrap();
        let key = region.lkey();
        let advise = |pd, advice, addr| memory.advise(pd, advice, [(key, addr, 64)]);
        for advice in [Advice::Prefetch, Advice::PrefetchNoFault] {
            assert!(advise(PD, advice, 0x1000).is_ok());
        }
        let refused = |pd, advice, addr| match advise(pd, advice, addr) {
            Err(AdviseError::Access(error)) => error,
            other => panic!("{other:?}"),
        };
        let denied = refused(PD, Advice::PrefetchWrite, 0x1000);
        let (need, granted) = (Access::LOCAL_WRITE, Access::empty());
        assert_eq!(denied, AccessError::Denied { key: key.0, need, granted });
        let range = refused(PD, Advice::Prefetch, 0x1001);
        assert!(matches!(range, AccessError::OutOfRange { addr: 0x1001, .. }), "{range}");
        let domain = refused(PdId(2), Advice::Prefetch, 0x1000);
        assert_eq!(domain, AccessError::WrongDomain { key: key.0 });
    }
}
