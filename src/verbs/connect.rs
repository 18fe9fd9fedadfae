//! Options of a connection.

use crate::ids::Mtu;
use crate::mem::Access;
use crate::net::AddressVector;
use crate::time::{AckTimeout, RnrTimer};

/// Attributes of a connection between two queue pairs. Both sides need the same `path_mtu`, and neither may
/// have more READs outstanding than the other accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectOptions {
    /// Payload of a full packet; `None` for the active MTU of the port.
    pub path_mtu: Option<Mtu>,
    /// Time to wait for an acknowledgement. 14 is 67 ms: a busy peer is scheduled again within that time.
    pub timeout: AckTimeout,
    /// Number of retries after timeouts, 0 to 7.
    pub retry_cnt: u8,
    /// Number of retries after RNR NAKs, 0 to 6; 7 for any number.
    pub rnr_retry: u8,
    /// Time that the peer waits after an RNR NAK. 12 is 0.64 ms.
    pub min_rnr_timer: RnrTimer,
    /// Maximum number of outstanding READs, atomics, FLUSHes and ATOMIC WRITEs, in either direction.
    pub max_rd_atomic: u8,
    /// Index of the source GID: the address of the device to which the peer sends.
    pub sgid_index: u8,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// Accesses to local memory that the peer may make, where the region allows them too.
    pub access: Access,
    /// Index in the P_Key table of the queue pair's partition. Like `access` it applies to a queue pair in RESET.
    pub pkey_index: u16,
    /// Receive buffer of the peer's socket in bytes, as its kernel counts them
    /// ([`DeviceInfo::port`](super::DeviceInfo) there): a larger one allows a larger window. With `None`, the
    /// kernel reports the buffer of a socket of this machine, and another peer is assumed to have the
    /// default of Linux.
    pub peer_receive_buffer: Option<u64>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            path_mtu: None,
            timeout: AckTimeout::new(14).unwrap_or_default(),
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::new(12).unwrap_or_default(),
            max_rd_atomic: 16,
            sgid_index: 0,
            traffic_class: 0,
            hop_limit: AddressVector::DEFAULT_HOP_LIMIT,
            access: Access::REMOTE_WRITE
                | Access::REMOTE_READ
                | Access::REMOTE_ATOMIC
                | Access::FLUSH_GLOBAL
                | Access::FLUSH_PERSISTENT,
            pkey_index: 0,
            peer_receive_buffer: None,
        }
    }
}
