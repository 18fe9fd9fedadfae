//! What each message has, as tables: reading, writing and showing follow from them.

use std::net::IpAddr;

use crate::ids::{Gid, Mtu, PKey, QKey, Qpn};
use crate::psn::Psn;

use super::field::{Part, Value};
use super::{CommId, Guid, ServiceId};

/// Generates a message from the table of its fields. After each field: the byte and the bit in it
/// at which it begins, bit 0 being transmitted first, and how many bits it has.
macro_rules! message {
    ($(
        $(#[$doc:meta])* $name:ident[$len:literal] {
            $($(#[$about:meta])* $field:ident: $type:ty = $byte:literal . $bit:literal [$bits:literal];)*
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name {
            $($(#[$about])* pub $field: $type,)*
        }

        impl $name {
            /// Bytes on the wire.
            pub const LEN: usize = $len;

            /// Reads it from the first [`LEN`](Self::LEN) bytes; what is not there reads as zero.
            pub fn parse(bytes: &[u8]) -> Self {
                Self { $($field: Part::read(bytes, $byte * 8 + $bit, $bits),)* }
            }

            /// Writes it. Bits that are nobody's are left as they are.
            pub fn write(&self, bytes: &mut [u8; Self::LEN]) {
                $(Part::write(&self.$field, bytes, $byte * 8 + $bit, $bits);)*
            }

            /// Shows each field, in the order of the table.
            pub fn each_field(&self, show: &mut dyn FnMut(&'static str, Value)) {
                $(Part::show(&self.$field, stringify!($field), show);)*
            }
        }
    )*};
}

message! {
    /// Asks for a connection.
    Req[140] {
        /// What the sender calls the connection.
        local_id: CommId = 0 . 0 [32];
        /// What is asked for.
        service_id: ServiceId = 8 . 0 [64];
        /// The sender's adapter.
        ca_guid: Guid = 16 . 0 [64];
        /// For datagrams.
        qkey: QKey = 28 . 0 [32];
        /// The sender's queue pair.
        qpn: Qpn = 32 . 0 [24];
        /// READs and atomics that the sender takes at once.
        responder_resources: u8 = 35 . 0 [8];
        /// The sender's end-to-end context.
        eecn: u32 = 36 . 0 [24];
        /// READs and atomics that the sender wants to issue at once.
        initiator_depth: u8 = 39 . 0 [8];
        /// The receiver's end-to-end context.
        remote_eecn: u32 = 40 . 0 [24];
        /// How long the receiver may take to answer: an exponent of 4.096 µs.
        remote_cm_timeout: u8 = 43 . 0 [5];
        /// 0 RC, 1 UC, 2 RD, 3 see `extended_transport`.
        transport: u8 = 43 . 5 [2];
        /// Whether acknowledgements count receives.
        flow_control: bool = 43 . 7 [1];
        /// The first PSN that the receiver is to send with.
        starting_psn: Psn = 44 . 0 [24];
        /// How long the sender may take to answer.
        local_cm_timeout: u8 = 47 . 0 [5];
        /// Attempts after the first.
        retry_count: u8 = 47 . 5 [3];
        /// The partition.
        pkey: PKey = 48 . 0 [16];
        /// `None` for a code that is not assigned.
        path_mtu: Option<Mtu> = 50 . 0 [4];
        /// Whether there is a reliable datagram channel already.
        rdc_exists: bool = 50 . 4 [1];
        /// Attempts after RNR NAKs; 7 for no end.
        rnr_retry_count: u8 = 50 . 5 [3];
        /// How often the connection manager repeats a message.
        max_cm_retries: u8 = 51 . 0 [4];
        /// Whether the sender receives through a shared queue.
        srq: bool = 51 . 4 [1];
        /// 1 XRC.
        extended_transport: u8 = 51 . 5 [3];
        /// The path to take.
        primary: Path = 52 . 0 [352];
        /// The path to go over to; without one its `local_lid` is 0.
        alternate: Path = 96 . 0 [352];
    }

    /// A path in a REQ.
    Path[44] {
        /// 0xffff for a path through routers.
        local_lid: u16 = 0 . 0 [16];
        /// Likewise.
        remote_lid: u16 = 2 . 0 [16];
        /// The address of the REQ's sender.
        local_gid: Gid = 4 . 0 [128];
        /// The address of its receiver.
        remote_gid: Gid = 20 . 0 [128];
        /// The IPv6 flow label.
        flow_label: u32 = 36 . 0 [20];
        /// A code for bytes in a second.
        rate: u8 = 39 . 2 [6];
        /// TOS or traffic class.
        traffic_class: u8 = 40 . 0 [8];
        /// TTL or hop limit.
        hop_limit: u8 = 41 . 0 [8];
        /// The service level.
        service_level: u8 = 42 . 0 [4];
        /// Whether it leaves the subnet not.
        subnet_local: bool = 42 . 4 [1];
        /// The ACK timeout: an exponent of 4.096 µs.
        ack_timeout: u8 = 43 . 0 [5];
    }

    /// Asks for patience.
    Mra[10] {
        /// What the sender calls the connection.
        local_id: CommId = 0 . 0 [32];
        /// What the receiver calls it.
        remote_id: CommId = 4 . 0 [32];
        /// What is being worked on: 0 REQ, 1 REP, 2 LAP.
        message: u8 = 8 . 0 [2];
        /// How long it may take: an exponent of 4.096 µs.
        service_timeout: u8 = 9 . 0 [5];
    }

    /// Says no.
    Rej[84] {
        /// What the sender calls the connection; 0 if it has come to no name.
        local_id: CommId = 0 . 0 [32];
        /// What the receiver calls it.
        remote_id: CommId = 4 . 0 [32];
        /// To what: 0 REQ, 1 REP, 2 anything.
        message: u8 = 8 . 0 [2];
        /// Bytes that say more about the reason.
        info_len: u8 = 9 . 0 [7];
        /// Why; [`reason_text`](Self::reason_text) says it in words.
        reason: u16 = 10 . 0 [16];
    }

    /// Says yes.
    Rep[36] {
        /// What the sender calls the connection.
        local_id: CommId = 0 . 0 [32];
        /// What the receiver calls it.
        remote_id: CommId = 4 . 0 [32];
        /// For datagrams.
        qkey: QKey = 8 . 0 [32];
        /// The sender's queue pair.
        qpn: Qpn = 12 . 0 [24];
        /// The sender's end-to-end context.
        eecn: u32 = 16 . 0 [24];
        /// The first PSN that the receiver is to send with.
        starting_psn: Psn = 20 . 0 [24];
        /// READs and atomics that the sender takes at once.
        responder_resources: u8 = 24 . 0 [8];
        /// READs and atomics that the sender will issue at once.
        initiator_depth: u8 = 25 . 0 [8];
        /// How long the sender may take to acknowledge: an exponent of 4.096 µs.
        target_ack_delay: u8 = 26 . 0 [5];
        /// What has become of the alternate path.
        failover: u8 = 26 . 5 [2];
        /// Whether acknowledgements count receives.
        flow_control: bool = 26 . 7 [1];
        /// Attempts after RNR NAKs; 7 for no end.
        rnr_retry_count: u8 = 27 . 0 [3];
        /// Whether the sender receives through a shared queue.
        srq: bool = 27 . 3 [1];
        /// The sender's adapter.
        ca_guid: Guid = 28 . 0 [64];
    }

    /// All that RTU and DREP have.
    Ids[8] {
        /// What the sender calls the connection.
        local_id: CommId = 0 . 0 [32];
        /// What the receiver calls it.
        remote_id: CommId = 4 . 0 [32];
    }

    /// Ends a connection.
    Dreq[12] {
        /// What the sender calls the connection.
        local_id: CommId = 0 . 0 [32];
        /// What the receiver calls it.
        remote_id: CommId = 4 . 0 [32];
        /// The receiver's queue pair.
        remote_qpn: Qpn = 8 . 0 [24];
    }

    /// Asks for the queue pair of a UD service.
    SidrReq[16] {
        /// What the sender calls this.
        request_id: CommId = 0 . 0 [32];
        /// The partition.
        pkey: PKey = 4 . 0 [16];
        /// What is asked for.
        service_id: ServiceId = 8 . 0 [64];
    }

    /// Tells the queue pair of a UD service.
    SidrRep[96] {
        /// What the receiver calls this.
        request_id: CommId = 0 . 0 [32];
        /// 0 for good, 1 no such service, 2 rejected, 3 no queue pair, 4 ask another, 5 version.
        status: u8 = 4 . 0 [8];
        /// Bytes that say more about the status.
        info_len: u8 = 5 . 0 [8];
        /// The queue pair.
        qpn: Qpn = 8 . 0 [24];
        /// What was asked for.
        service_id: ServiceId = 12 . 0 [64];
        /// The key it takes.
        qkey: QKey = 20 . 0 [32];
    }

    /// What rdma_cm puts before the consumer's private data in REQ and SIDR_REQ.
    IpHeader[36] {
        /// 0.
        version: u8 = 0 . 0 [8];
        /// 4 or 6.
        ip_version: u8 = 1 . 0 [4];
        /// The requester's port; the other is in the service id.
        source_port: u16 = 2 . 0 [16];
        /// The requester's address.
        source_ip: IpAddr = 4 . 0 [128];
        /// The address that is asked.
        destination_ip: IpAddr = 20 . 0 [128];
    }
}

impl Rej {
    /// What the reason says (IBTA vol 1, §12.6.7.2).
    pub const fn reason_text(&self) -> &'static str {
        match self.reason {
            1 => "no queue pair",
            2 => "no end-to-end context",
            3 => "no resources",
            4 => "timeout",
            5 => "unsupported request",
            6 => "invalid communication id",
            7 => "invalid communication instance",
            8 => "invalid service id",
            9 => "invalid transport type",
            10 => "stale connection",
            11 => "the reliable datagram channel does not exist",
            12 => "primary remote GID",
            13 => "primary remote LID",
            14 => "primary service level",
            15 => "primary traffic class",
            16 => "primary hop limit",
            17 => "primary packet rate",
            18 => "alternate remote GID",
            19 => "alternate remote LID",
            20 => "alternate service level",
            21 => "alternate traffic class",
            22 => "alternate hop limit",
            23 => "alternate packet rate",
            24 => "ask another port's connection manager",
            25 => "ask another port",
            26 => "invalid path MTU",
            27 => "insufficient responder resources",
            28 => "the consumer's decision",
            29 => "RNR retry count",
            30 => "duplicate local communication id",
            31 => "unsupported class version",
            32 => "primary flow label",
            33 => "alternate flow label",
            _ => "a reason that is not assigned",
        }
    }
}
