//! Address handles: destinations of UD requests.

use crate::ids::{Gid, QKey, Qpn};
use crate::net::AddressVector;
use crate::port::Control;
use crate::transport::work::{Completion, UdTarget, WcStatus};
use crate::verbs::context::ContextInner;
use crate::verbs::{Context, Error, ProtectionDomain};

/// Length in bytes of the network header before the payload in a UD receive buffer (IBTA vol 1, §11.4.1.2;
/// `ibv_post_recv(3)`). It contains a GRH or IPv6 header, or 20 bytes of zeros and an IPv4 header.
pub const GRH_LEN: usize = 40;

/// Address of a host or a multicast group. A UD send request contains one, with a queue pair number and a queue key.
///
/// It is a plain value: the device keeps no state for it, so the number of handles is unlimited, and no call
/// corresponds to `ibv_destroy_ah`.
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
/// // The first 40 bytes of the buffer give the address handle for a reply to the sender.
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
    /// Returns the target for requests to queue pair `qpn` at this host, with queue key `qkey`.
    pub fn target(&self, qpn: Qpn, qkey: QKey) -> UdTarget {
        UdTarget { av: self.av, qpn, qkey }
    }

    /// Returns the GID of the host.
    pub fn gid(&self) -> Gid {
        self.av.gid
    }

    /// Returns the address vector from which it was created.
    #[doc(alias = "rdma_query_ah")]
    pub fn attr(&self) -> AddressVector {
        self.av
    }
}

impl ProtectionDomain {
    /// Creates an address handle for a host or a multicast group. If the vector has a flow label, messages leave from
    /// the UDP source port that Linux derives from it, where the device's port supports that; otherwise from the
    /// source port of the queue pair.
    ///
    /// # Errors
    ///
    /// [`Error::Address`] when the source GID does not exist or has another IP version; [`Error::EmptyGid`] when no
    /// interface has its address at present; [`Error::Device`].
    #[doc(alias = "ibv_create_ah")]
    pub fn create_ah(&self, av: AddressVector) -> Result<AddressHandle, Error> {
        let gids = &self.inner.context.device.gids;
        let source = gids.get(usize::from(av.sgid_index)).map(|gid| gid.ip());
        if source.is_none_or(|source| source.is_ipv4() != av.gid.ip().is_ipv4()) {
            return Err(Error::Address { gid: av.gid, index: av.sgid_index });
        }
        self.inner.context.present_gid(av.sgid_index.into())?;
        if av.flow_label != 0 {
            // The queue pairs of all shards may use it.
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

    /// Creates an address handle for a reply to a UD message, from the first 40 bytes of its receive buffer.
    ///
    /// # Errors
    ///
    /// [`Error::Header`] when the bytes are not such a header, or the header of a message to another address.
    pub fn create_ah_from_header(&self, header: &[u8; GRH_LEN]) -> Result<AddressHandle, Error> {
        let gids = &self.inner.context.device.gids;
        let av = AddressVector::to_sender_from(header, gids).ok_or(Error::Header)?;
        self.create_ah(av)
    }

    /// Creates an address handle for a reply to a UD message, from its completion and the first 40 bytes of its
    /// receive buffer. [`Completion::source_qp`] is the queue pair of the sender.
    ///
    /// # Errors
    ///
    /// [`Error::NotADatagram`] for other completions; [`Error::Header`] as for
    /// [`create_ah_from_header`](Self::create_ah_from_header).
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
    /// Returns the address vector for a reply to a UD message, which the program may change before it creates an
    /// address handle. GID, traffic class, hop limit and flow label are those of the received header. The source GID
    /// is the destination of the message; for a message to a multicast group, it is the first GID of the same IP
    /// version.
    ///
    /// # Errors
    ///
    /// [`Error::NotADatagram`] for other completions; [`Error::Header`] for bytes that are not the header of a
    /// message to this device.
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
