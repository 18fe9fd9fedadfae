//! Address handles: the way to a host, for UD.

use crate::ids::{Gid, QKey, Qpn};
use crate::net::AddressVector;
use crate::transport::work::UdTarget;
use crate::verbs::{Error, ProtectionDomain};

/// Bytes of a UD receive buffer before the payload: a GRH or IPv6 header, or 20 bytes of zeros and
/// an IPv4 header.
pub const GRH_LEN: usize = 40;

/// The way to a host. A UD send request names one, and the queue pair there.
///
/// ```
/// use softroce::verbs::*;
///
/// let ctx = Context::open(OpenOptions::loopback())?;
/// let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
/// let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE)?;
/// let (a, b) = (pd.create_qp(&QpConfig::ud(&cq))?, pd.create_qp(&QpConfig::ud(&cq))?);
/// a.activate(QKey(0x1234))?;
/// b.activate(QKey(0x1234))?;
///
/// mr.write_at(0, b"hello")?;
/// b.post_recv(RecvRequest::new(1, mr.sge(1024..1024 + GRH_LEN + 5)))?;
/// let ah = pd.create_ah(AddressVector::to(b.endpoint().gid))?;
/// a.post_send(SendRequest::send(2, mr.sge(..5)).to(ah.target(b.qpn(), QKey(0x1234))))?;
///
/// let arrived = cq.wait_one(None)?;
/// assert_eq!((arrived.wr_id, arrived.byte_len, arrived.source_qp), (1, 45, Some(a.qpn())));
///
/// // The answer goes to whoever has sent it.
/// let mut header = [0; GRH_LEN];
/// mr.read_at(1024, &mut header)?;
/// assert_eq!(pd.create_ah_from_header(&header)?, ah);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_ah")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressHandle {
    av: AddressVector,
}

impl AddressHandle {
    /// A queue pair at that host, and the key it wants to see.
    pub fn target(&self, qpn: Qpn, qkey: QKey) -> UdTarget {
        UdTarget { av: self.av, qpn, qkey }
    }

    /// The host.
    pub fn gid(&self) -> Gid {
        self.av.gid
    }
}

impl ProtectionDomain {
    /// The way to a host.
    ///
    /// # Errors
    ///
    /// [`Error::Address`]: the source GID it names does not exist, or is not of the same IP version.
    #[doc(alias = "ibv_create_ah")]
    pub fn create_ah(&self, av: AddressVector) -> Result<AddressHandle, Error> {
        let gids = &self.inner.context.device.gids;
        let source = gids.get(usize::from(av.sgid_index)).map(|gid| gid.ip());
        match source {
            Some(source) if source.is_ipv4() == av.gid.ip().is_ipv4() => Ok(AddressHandle { av }),
            _ => Err(Error::Address { gid: av.gid, index: av.sgid_index }),
        }
    }

    /// The way back to the sender of a UD message, from the first 40 bytes of the buffer that it
    /// arrived in.
    ///
    /// # Errors
    ///
    /// [`Error::Header`] when they are no such header; [`Error::Address`].
    #[doc(alias = "ibv_create_ah_from_wc")]
    pub fn create_ah_from_header(&self, header: &[u8; GRH_LEN]) -> Result<AddressHandle, Error> {
        let av = AddressVector::to_sender(header).ok_or(Error::Header)?;
        self.create_ah(av)
    }
}
