//! Address handles: the way to a host, for UD.

use crate::ids::{Gid, QKey, Qpn};
use crate::net::AddressVector;
use crate::transport::work::{Completion, UdTarget, WcStatus};
use crate::verbs::context::ContextInner;
use crate::verbs::{Context, Error, ProtectionDomain};

/// Bytes of a UD receive buffer before the payload: a GRH or IPv6 header, or 20 bytes of zeros and
/// an IPv4 header.
pub const GRH_LEN: usize = 40;

/// The way to a host or a multicast group. A UD send request names one, and the queue pair there.
///
/// It is a value of which the device keeps nothing, so there can be any number; `ibv_destroy_ah` has nothing
/// to do.
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

    /// All that it was made from.
    #[doc(alias = "rdma_query_ah")]
    pub fn attr(&self) -> AddressVector {
        self.av
    }
}

impl ProtectionDomain {
    /// The way to a host or a group. With a flow label, messages leave from the UDP source port that
    /// Linux derives from it, if the port has that; without, from the queue pair's.
    ///
    /// # Errors
    ///
    /// [`Error::Address`]: the source GID it names does not exist, or is not of the same IP version;
    /// [`Error::EmptyGid`]: no interface has that address now; [`Error::Down`].
    #[doc(alias = "ibv_create_ah")]
    pub fn create_ah(&self, av: AddressVector) -> Result<AddressHandle, Error> {
        let gids = &self.inner.context.device.gids;
        let source = gids.get(usize::from(av.sgid_index)).map(|gid| gid.ip());
        if source.is_none_or(|source| source.is_ipv4() != av.gid.ip().is_ipv4()) {
            return Err(Error::Address { gid: av.gid, index: av.sgid_index });
        }
        self.inner.context.present_gid(av.sgid_index.into())?;
        if av.flow_label != 0 {
            // Queue pairs of any shard may use it.
            for shard in self.inner.context.device.shards.iter() {
                shard.with(|core, _| {
                    let port = &mut core.port;
                    let agree = |from, wanted| port.source_port(from, wanted);
                    core.engine.agree_on_flow(av.sgid_index, av.flow_label, agree);
                })?;
            }
        }
        Ok(AddressHandle { av })
    }

    /// The way back to the sender of a UD message, from the first 40 bytes of the buffer that it
    /// arrived in.
    ///
    /// # Errors
    ///
    /// [`Error::Header`] when they are no such header, or that of a message to somebody else.
    pub fn create_ah_from_header(&self, header: &[u8; GRH_LEN]) -> Result<AddressHandle, Error> {
        let gids = &self.inner.context.device.gids;
        let av = AddressVector::to_sender_from(header, gids).ok_or(Error::Header)?;
        self.create_ah(av)
    }

    /// The same, of the completion of that message. Its queue pair is
    /// [`Completion::source_qp`].
    ///
    /// # Errors
    ///
    /// [`Error::NotADatagram`]; [`Error::Header`].
    #[doc(alias = "ibv_create_ah_from_wc")]
    pub fn create_ah_from_wc(
        &self,
        wc: &Completion,
        header: &[u8; GRH_LEN],
    ) -> Result<AddressHandle, Error> {
        self.create_ah(self.inner.context.init_ah_from_wc(wc, header)?)
    }
}

impl ContextInner {
    fn init_ah_from_wc(
        &self,
        wc: &Completion,
        header: &[u8; GRH_LEN],
    ) -> Result<AddressVector, Error> {
        if wc.status != WcStatus::Success || wc.source_qp.is_none() {
            return Err(Error::NotADatagram { opcode: wc.opcode, status: wc.status });
        }
        AddressVector::to_sender_from(header, &self.device.gids).ok_or(Error::Header)
    }
}

impl Context {
    /// What leads back to the sender of a UD message, to be changed before an address handle is made of
    /// it: its GID, traffic class, hop limit and flow label as they came; as source GID, the one that the
    /// message was sent to. Of a message to a multicast group that is the first of its IP version.
    ///
    /// # Errors
    ///
    /// [`Error::NotADatagram`]; [`Error::Header`].
    ///
    /// # Examples
    ///
    /// ```
    /// use softroce::verbs::*;
    ///
    /// let ctx = Context::open(OpenOptions::loopback())?;
    /// let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
    /// let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE)?;
    /// let qp = pd.create_qp(&QpConfig::ud(&cq))?;
    /// qp.activate(QKey(7))?;
    /// qp.post_recv(RecvRequest::new(1, mr.sge(..GRH_LEN + 2)))?;
    /// let expedited = AddressVector { traffic_class: 0xb8, ..AddressVector::to(ctx.query_gid(0)?) };
    /// let ah = pd.create_ah(expedited)?;
    /// qp.post_send(SendRequest::send(2, SendData::inline(b"hi")).to(ah.target(qp.qpn(), QKey(7))))?;
    ///
    /// let arrived = cq.wait_one(None)?;
    /// let mut header = [0; GRH_LEN];
    /// mr.read_at(0, &mut header)?;
    /// let back = ctx.init_ah_from_wc(&arrived, &header)?;
    /// assert_eq!((back.gid, back.sgid_index, back.traffic_class), (ctx.query_gid(0)?, 0, 0xb8));
    /// assert_eq!(pd.create_ah_from_wc(&arrived, &header)?.attr(), back);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "ibv_init_ah_from_wc")]
    pub fn init_ah_from_wc(
        &self,
        wc: &Completion,
        header: &[u8; GRH_LEN],
    ) -> Result<AddressVector, Error> {
        self.inner.init_ah_from_wc(wc, header)
    }
}
