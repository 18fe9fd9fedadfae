//! Multicast: a UD queue pair that gets what is sent to a group.

use crate::ids::Gid;
use crate::runtime::AttachError;
use crate::verbs::{Error, QueuePair};

impl QueuePair {
    /// Attaches a UD queue pair to a multicast group. It then receives what anybody sends there with its
    /// queue key, once, except what it sends itself; other queue pairs of this device that are attached
    /// get that too. To attach it twice is to attach it once. It is detached when its last handle is dropped;
    /// to [`destroy`](Self::destroy) it before it is detached is refused.
    ///
    /// The group is an IP address: `::ffff:224.0.0.0/100` for IPv4, `ff00::/8` for IPv6, of the version
    /// that an address of the device has. With the first queue pair that is attached the host joins it, by
    /// IGMP or MLD, on the interface that has the address; of several addresses of that version, on each of
    /// their interfaces. RoCE has no LID.
    ///
    /// Whoever sends to a group aims at its GID; the number of the queue pair is then always
    /// [`Qpn::MULTICAST`](super::Qpn::MULTICAST). Nobody knows how many receive it, nor how fast.
    ///
    /// # Errors
    ///
    /// [`Error::Mcast`]: it is no group, or no queue pair of UD, or there are too many; [`Error::Join`]: the
    /// system refuses; [`Error::Down`].
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
        let qpn = self.inner.end.qpn;
        let attached = self.inner.end.shard.with(|core, _| core.attach_mcast(qpn, group))?;
        attached.map_err(|error| match error {
            AttachError::Engine(source) => Error::Mcast { qpn, source },
            AttachError::Port(source) => Error::Join(source),
        })
    }

    /// Detaches it from a group. With the last queue pair of the device the host leaves it.
    ///
    /// # Errors
    ///
    /// [`Error::Mcast`]: it does not belong to the group; [`Error::Down`].
    #[doc(alias = "ibv_detach_mcast")]
    pub fn detach_mcast(&self, group: Gid) -> Result<(), Error> {
        let qpn = self.inner.end.qpn;
        let detached = self.inner.end.shard.with(|core, _| core.detach_mcast(qpn, group))?;
        detached.map_err(|source| Error::Mcast { qpn, source })
    }

    /// The groups that it belongs to.
    ///
    /// # Errors
    ///
    /// [`Error::Down`].
    pub fn mcast_groups(&self) -> Result<Vec<Gid>, Error> {
        let qpn = self.inner.end.qpn;
        Ok(self.inner.end.shard.with(|core, _| core.engine.mcast_groups(qpn))?)
    }

    /// Refuses when it belongs to a group.
    pub(super) fn check_groups(&self) -> Result<(), Error> {
        // In a device that has failed it is as good as destroyed.
        match self.mcast_groups().map_or(0, |groups| groups.len()) {
            0 => Ok(()),
            count => {
                let (what, by, count) = ("queue pair", "multicast groups", count as u64);
                Err(Error::InUse { what, by, count })
            }
        }
    }
}
