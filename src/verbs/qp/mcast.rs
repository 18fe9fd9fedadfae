//! Attachment of UD queue pairs to multicast groups.

use crate::ids::Gid;
use crate::runtime::AttachError;
use crate::verbs::{Error, QueuePair};

impl QueuePair {
    /// Attaches a UD queue pair to a multicast group. It then receives messages to the group that carry its queue
    /// key, from all senders except itself. Every attached queue pair of the device receives a copy. Attaching again
    /// has no effect. Dropping the last handle detaches the queue pair; [`destroy`](Self::destroy) fails while it is
    /// attached.
    ///
    /// The group is an IP multicast address, `::ffff:224.0.0.0/100` for IPv4 or `ff00::/8` for IPv6, of an IP version
    /// that the device has an address of. When the first queue pair attaches, the host joins the group by IGMP or MLD
    /// on the interfaces of all device addresses of this version. RoCE has no multicast LID (`ibv_attach_mcast(3)`).
    ///
    /// Senders address the group's GID and queue pair number [`Qpn::MULTICAST`](super::Qpn::MULTICAST). Multicast has
    /// no acknowledgements and no flow control.
    ///
    /// # Errors
    ///
    /// [`Error::Mcast`] when the address is not a multicast group, the queue pair is not UD, or a limit is reached;
    /// [`Error::Join`] when the system refuses; [`Error::Device`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use softroce::verbs::*;
    ///
    /// let group = Gid::from(Ipv4Addr::new(239, 1, 2, 3));
    /// let key = QKey(0x1234);
    /// let ctx = Context::open(OpenOptions::loopback())?;
    /// let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
    /// let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE)?;
    /// let [a, b] = [pd.create_qp(&QpConfig::ud(&cq))?, pd.create_qp(&QpConfig::ud(&cq))?];
    /// for qp in [&a, &b] {
    ///     qp.activate(key)?;
    ///     qp.attach_mcast(group)?;
    ///     qp.post_recv(RecvRequest::new(1, mr.sge(..256)))?;
    /// }
    /// assert_eq!(b.mcast_groups()?, [group]);
    ///
    /// let ah = pd.create_ah(AddressVector::to(group))?;
    /// let hello = SendRequest::send(2, SendData::inline(b"hello all"));
    /// a.post_send(hello.to(ah.target(Qpn::MULTICAST, key)))?;
    ///
    /// let arrived = cq.wait_one(None)?;
    /// assert_eq!((arrived.qpn, arrived.source_qp), (b.qpn(), Some(a.qpn())));
    /// b.detach_mcast(group)?;
    /// # Ok::<(), Error>(())
    /// ```
    #[doc(alias = "ibv_attach_mcast")]
    pub fn attach_mcast(&self, group: Gid) -> Result<(), Error> {
        let qpn = self.inner.handle.qpn;
        let attached = self.inner.handle.shard.with(|core, _| core.attach_mcast(qpn, group))?;
        attached.map_err(|error| match error {
            AttachError::Engine(source) => Error::Mcast { qpn, source },
            AttachError::Port(source) => Error::Join(source),
        })
    }

    /// Detaches the queue pair from a group. When the last queue pair of the device detaches, the host leaves the
    /// group.
    ///
    /// # Errors
    ///
    /// [`Error::Mcast`] when the queue pair is not attached to the group; [`Error::Device`].
    #[doc(alias = "ibv_detach_mcast")]
    pub fn detach_mcast(&self, group: Gid) -> Result<(), Error> {
        let qpn = self.inner.handle.qpn;
        let detached = self.inner.handle.shard.with(|core, _| core.detach_mcast(qpn, group))?;
        detached.map_err(|source| Error::Mcast { qpn, source })
    }

    /// Returns the groups to which the queue pair is attached.
    ///
    /// # Errors
    ///
    /// [`Error::Device`].
    pub fn mcast_groups(&self) -> Result<Vec<Gid>, Error> {
        let qpn = self.inner.handle.qpn;
        Ok(self.inner.handle.shard.with(|core, _| core.engine.mcast_groups(qpn))?)
    }

    /// Returns an error when the queue pair is attached to a group.
    pub(super) fn check_groups(&self) -> Result<(), Error> {
        // A queue pair of a failed device needs no detachment.
        match self.mcast_groups().map_or(0, |groups| groups.len()) {
            0 => Ok(()),
            count => {
                let (what, by, count) = ("queue pair", "multicast groups", count as u64);
                Err(Error::InUse { what, by, count })
            }
        }
    }
}
