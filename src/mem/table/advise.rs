//! Advice on what memory will be used for.

use std::io;
use std::sync::Arc;

use thiserror::Error;

use super::{Memory, open};
use crate::ids::{Lkey, PdId};
use crate::mem::access::{AccessError, Need};

/// What will soon be done with memory whose pages may be elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[doc(alias = "ibv_advise_mr_advice")]
pub enum Advice {
    /// It will be read: bring it in.
    #[doc(alias = "IBV_ADVISE_MR_ADVICE_PREFETCH")]
    Prefetch = 0,
    /// It will be written: bring it in for that.
    #[doc(alias = "IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE")]
    PrefetchWrite = 1,
    /// It will be read, but what is not in stays where it is.
    #[doc(alias = "IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT")]
    PrefetchNoFault = 2,
}

impl Memory {
    /// Takes advice on `(key, address, length)` of domain `pd`.
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
            Advice::Prefetch | Advice::PrefetchNoFault => Need::Read,
            Advice::PrefetchWrite => Need::Write,
        };
        for (lkey, addr, len) in pieces {
            let table = self.read();
            let region = table.region(pd, lkey.0)?;
            open(region, addr, len, need.access())?;
            let offset = region.offset_of(addr, len)?;
            let region = Arc::clone(region);
            drop(table);
            if advice != Advice::PrefetchNoFault {
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                region.prefetch(offset, len, need == Need::Write).map_err(AdviseError::Os)?;
            }
        }
        Ok(())
    }
}

/// Why advice was not taken. What came before in the list has been.
#[derive(Debug, Error)]
pub enum AdviseError {
    /// The key does not open that memory for that.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The system cannot bring it in.
    #[error("cannot prefetch: {0}")]
    Os(#[source] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::{Access, HostMemory};

    const PD: PdId = PdId(1);

    #[test]
    fn advice_is_checked_as_a_request_would_be() {
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
