//! Tables of a device's port: GIDs and partition keys.

use std::net::IpAddr;

use crate::ids::{Gid, PKey};
use crate::runtime::Core;
use crate::verbs::context::ContextInner;
use crate::verbs::{Context, Error};

/// An entry of a GID table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[doc(alias = "ibv_gid_entry")]
#[non_exhaustive]
pub struct GidEntry {
    /// The GID, an IP address. Its type is RoCEv2.
    #[doc(alias = "IBV_GID_TYPE_ROCE_V2")]
    pub gid: Gid,
    /// Index in the table, for `sgid_index`.
    pub gid_index: usize,
    /// Number of the port, always 1.
    pub port_num: u8,
    /// Index of the network interface that has the address; 0 if unknown.
    pub ndev_ifindex: u32,
}

impl GidEntry {
    /// Returns the IP address.
    pub fn ip(&self) -> IpAddr {
        self.gid.ip()
    }
}

impl ContextInner {
    /// Returns the address of an entry of the GID table.
    pub(super) fn slot(&self, index: usize) -> Result<Gid, Error> {
        let gids = &self.device.gids;
        gids.get(index).copied().ok_or(Error::TableIndex { table: "GID", index, len: gids.len() })
    }

    /// Returns the GID of an entry that is not empty.
    pub(super) fn present_gid(&self, index: usize) -> Result<Gid, Error> {
        let slot = self.slot(index)?;
        let gid = self.device.shards.first().with_old_time(|core, _| core.engine.gid(index))?;
        gid.ok_or(Error::EmptyGid { index, ip: slot.ip() })
    }
}

impl Context {
    /// Returns the GID with this index.
    ///
    /// The table contains the addresses with which the device was [opened](super::OpenOptions::also_ip), in that
    /// order. A device with fewer than four addresses lists them again up to index 3, as adapters do: programs have
    /// such indices built in. Each address keeps its indices: while no interface has the address, its entries are [`Gid::EMPTY`].
    /// [`AsyncEvent::GidChange`](super::AsyncEvent::GidChange) reports changes. The address of a VLAN interface is a
    /// valid entry.
    ///
    /// # Errors
    ///
    /// [`Error::TableIndex`], [`Error::Device`].
    #[doc(alias = "ibv_query_gid")]
    pub fn query_gid(&self, index: usize) -> Result<Gid, Error> {
        self.inner.slot(index)?;
        let gid =
            self.inner.device.shards.first().with_old_time(|core, _| core.engine.gid(index))?;
        Ok(gid.unwrap_or(Gid::EMPTY))
    }

    /// Returns the entry of the GID table with this index.
    ///
    /// # Errors
    ///
    /// [`Error::TableIndex`]; [`Error::EmptyGid`]; [`Error::Device`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// let ctx = Context::open(OpenOptions::loopback())?;
    /// let entry = ctx.query_gid_ex(0)?;
    /// assert_eq!((entry.ip(), entry.gid_index, entry.port_num), (ctx.ip(), 0, 1));
    /// assert_eq!(ctx.query_gid_table()?[0], entry);
    /// assert_eq!(ctx.query_gid(3)?, entry.gid);
    /// assert_eq!(
    ///     ctx.query_gid_ex(4).unwrap_err().to_string(),
    ///     "index 4 is not in the GID table, which has 4"
    /// );
    /// # Ok::<(), Error>(())
    /// ```
    #[doc(alias = "ibv_query_gid_ex")]
    pub fn query_gid_ex(&self, index: usize) -> Result<GidEntry, Error> {
        let gid = self.inner.present_gid(index)?;
        let interface = |core: &mut Core, _| core.interface_of(gid.ip());
        let ndev_ifindex = self.inner.device.shards.first().with_old_time(interface)?;
        Ok(GidEntry { gid, gid_index: index, port_num: 1, ndev_ifindex })
    }

    /// Returns the GID table without empty entries.
    ///
    /// # Errors
    ///
    /// [`Error::Device`].
    #[doc(alias = "ibv_query_gid_table")]
    pub fn query_gid_table(&self) -> Result<Vec<GidEntry>, Error> {
        let entries = (0..self.inner.device.gids.len()).map(|index| self.query_gid_ex(index));
        entries.filter(|entry| !matches!(entry, Err(Error::EmptyGid { .. }))).collect()
    }

    /// Returns the partition key with this index. The table contains only [`PKey::DEFAULT`], unless the device was
    /// opened with [others](super::OpenOptions::pkeys).
    ///
    /// # Errors
    ///
    /// [`Error::TableIndex`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use softroce::verbs::*;
    /// let ctx = Context::open(OpenOptions::loopback())?;
    /// assert_eq!(ctx.query_pkey(0)?, PKey(0xffff));
    /// assert_eq!(ctx.pkey_index(PKey(0xffff)), Some(0));
    /// assert_eq!(ctx.pkey_index(PKey(0x8001)), None);
    /// assert!(ctx.query_pkey(1).is_err());
    /// # Ok::<(), Error>(())
    /// ```
    #[doc(alias = "ibv_query_pkey")]
    pub fn query_pkey(&self, index: usize) -> Result<PKey, Error> {
        let pkeys = &self.inner.device.pkeys;
        let len = pkeys.len();
        pkeys.get(index).copied().ok_or(Error::TableIndex { table: "P_Key", index, len })
    }

    /// Returns the index of a partition key, or `None` when the table does not contain it.
    #[doc(alias = "ibv_get_pkey_index")]
    pub fn pkey_index(&self, pkey: PKey) -> Option<u16> {
        let at = self.inner.device.pkeys.iter().position(|own| *own == pkey)?;
        u16::try_from(at).ok()
    }
}
