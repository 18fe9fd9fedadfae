//! Tables of message fields, which generate parsing, writing and display.

use std::net::{IpAddr, Ipv6Addr};

use crate::ids::{Gid, Mtu, PKey, QKey, Qpn};
use crate::psn::Psn;
use crate::wire::Mad;

use super::field::{BitField, Value, is_possible};
use super::ids::{CommId, Guid, ServiceId};
use super::info::Info;

/// Generates a message from the table of its fields. Each field has the byte and bit at which it starts, where bit 0
/// is transmitted first, and its number of bits.
macro_rules! message {
    ($(
        $(#[$doc:meta])* $name:ident[$len:literal] {
            $($(#[$about:meta])* $field:ident: $type:ty = $byte:literal . $bit:literal [$bits:literal];)*
        }
    )*) => {$(
        const _: () = {
            $(assert!(is_possible($bit, $bits));)*
        };

        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct $name {
            $($(#[$about])* pub $field: $type,)*
        }

        impl $name {
            /// Length in bytes.
            pub const LEN: usize = $len;
            /// Room for private data behind it, in bytes, if it is the body of a message.
            pub const PRIVATE_DATA: usize = Mad::DATAGRAM_LEN - Mad::LEN - $len;

            /// Parses the message from the first [`LEN`](Self::LEN) bytes; missing bytes count as zeros.
            pub fn parse(bytes: &[u8]) -> Self {
                Self { $($field: BitField::read(bytes, $byte * 8 + $bit, $bits),)* }
            }

            /// Writes the message. Reserved bits do not change.
            pub fn write(&self, bytes: &mut [u8; Self::LEN]) {
                $(BitField::write(&self.$field, bytes, $byte * 8 + $bit, $bits);)*
            }

            /// Calls `show` for each field, in the order of the table.
            pub fn each_field(&self, show: &mut dyn FnMut(&'static str, Value)) {
                $(BitField::show(&self.$field, stringify!($field), show);)*
            }
        }
    )*};
}

message! {
    /// Request for communication (REQ).
    Req[140] {
        /// Communication ID of the sender.
        local_id: CommId = 0 . 0 [32];
        /// Vendor of the ECE options, which are the attribute modifier.
        ece_vendor: u32 = 5 . 0 [24];
        /// Requested service.
        service_id: ServiceId = 8 . 0 [64];
        /// GUID of the sender's adapter.
        ca_guid: Guid = 16 . 0 [64];
        /// Queue key, for datagrams.
        qkey: QKey = 28 . 0 [32];
        /// Queue pair of the sender.
        qpn: Qpn = 32 . 0 [24];
        /// Outstanding READs and atomics that the sender accepts as a responder.
        responder_resources: u8 = 35 . 0 [8];
        /// End-to-end context of the sender.
        eecn: u32 = 36 . 0 [24];
        /// Outstanding READs and atomics that the sender wants to issue.
        initiator_depth: u8 = 39 . 0 [8];
        /// End-to-end context of the receiver.
        remote_eecn: u32 = 40 . 0 [24];
        /// Response timeout of the receiver, as an exponent of 4.096 µs.
        remote_cm_timeout: u8 = 43 . 0 [5];
        /// Transport: 0 RC, 1 UC, 2 RD, 3 by `extended_transport`.
        transport: u8 = 43 . 5 [2];
        /// Whether acknowledgements contain credits.
        flow_control: bool = 43 . 7 [1];
        /// First PSN of the receiver's requests.
        starting_psn: Psn = 44 . 0 [24];
        /// Response timeout of the sender.
        local_cm_timeout: u8 = 47 . 0 [5];
        /// Number of retries.
        retry_count: u8 = 47 . 5 [3];
        /// Partition key.
        pkey: PKey = 48 . 0 [16];
        /// Path MTU; `None` for an unassigned code.
        path_mtu: Option<Mtu> = 50 . 0 [4];
        /// Whether a reliable datagram channel exists.
        rdc_exists: bool = 50 . 4 [1];
        /// Number of retries after RNR NAKs; 7 for no limit.
        rnr_retry_count: u8 = 50 . 5 [3];
        /// Number of retransmissions of a CM message.
        max_cm_retries: u8 = 51 . 0 [4];
        /// Whether the sender uses a shared receive queue.
        srq: bool = 51 . 4 [1];
        /// Extended transport: 1 for XRC.
        extended_transport: u8 = 51 . 5 [3];
        /// Primary path.
        primary: Path = 52 . 0 [352];
        /// Alternate path. Without one, its `local_lid` is 0.
        alternate: Path = 96 . 0 [352];
    }

    /// A path in a REQ.
    Path[44] {
        /// Local LID, 0xffff for a routed path.
        local_lid: u16 = 0 . 0 [16];
        /// Remote LID, 0xffff for a routed path.
        remote_lid: u16 = 2 . 0 [16];
        /// GID of the sender of the REQ.
        local_gid: Gid = 4 . 0 [128];
        /// GID of the receiver of the REQ.
        remote_gid: Gid = 20 . 0 [128];
        /// IPv6 flow label.
        flow_label: u32 = 36 . 0 [20];
        /// Code of the packet rate.
        rate: u8 = 39 . 2 [6];
        /// TOS or traffic class.
        traffic_class: u8 = 40 . 0 [8];
        /// TTL or hop limit.
        hop_limit: u8 = 41 . 0 [8];
        /// Service level.
        service_level: u8 = 42 . 0 [4];
        /// Whether the path stays within the subnet.
        subnet_local: bool = 42 . 4 [1];
        /// Local ACK timeout, as an exponent of 4.096 µs.
        ack_timeout: u8 = 43 . 0 [5];
        /// Alternate path: whether the service for alternate paths is supported.
        sap_supported: bool = 43 . 5 [1];
    }

    /// Message receipt acknowledgement (MRA), which extends a timeout.
    Mra[10] {
        /// Communication ID of the sender.
        local_id: CommId = 0 . 0 [32];
        /// Communication ID of the receiver.
        remote_id: CommId = 4 . 0 [32];
        /// Message in progress: 0 REQ, 1 REP, 2 LAP.
        message: u8 = 8 . 0 [2];
        /// Maximum time until the response, as an exponent of 4.096 µs.
        service_timeout: u8 = 9 . 0 [5];
    }

    /// Rejection (REJ).
    Rej[84] {
        /// Communication ID of the sender; 0 if none was assigned.
        local_id: CommId = 0 . 0 [32];
        /// Communication ID of the receiver.
        remote_id: CommId = 4 . 0 [32];
        /// Rejected message: 0 REQ, 1 REP, 2 other.
        message: u8 = 8 . 0 [2];
        /// Length of additional information in bytes.
        info_len: u8 = 9 . 0 [7];
        /// Reason; [`reason_text`](Self::reason_text) returns it as text.
        reason: u16 = 10 . 0 [16];
        /// Additional information, which depends on the reason.
        info: Info = 12 . 0 [576];
    }

    /// Reply to a REQ (REP).
    Rep[36] {
        /// Communication ID of the sender.
        local_id: CommId = 0 . 0 [32];
        /// Communication ID of the receiver.
        remote_id: CommId = 4 . 0 [32];
        /// Queue key, for datagrams.
        qkey: QKey = 8 . 0 [32];
        /// Queue pair of the sender.
        qpn: Qpn = 12 . 0 [24];
        /// High byte of the vendor of the ECE options.
        ece_vendor_high: u8 = 15 . 0 [8];
        /// End-to-end context of the sender; for XRC its queue pair.
        eecn: u32 = 16 . 0 [24];
        /// Middle byte of the vendor of the ECE options.
        ece_vendor_middle: u8 = 19 . 0 [8];
        /// First PSN of the receiver's requests.
        starting_psn: Psn = 20 . 0 [24];
        /// Low byte of the vendor of the ECE options.
        ece_vendor_low: u8 = 23 . 0 [8];
        /// Outstanding READs and atomics that the sender accepts as a responder.
        responder_resources: u8 = 24 . 0 [8];
        /// Outstanding READs and atomics that the sender will issue.
        initiator_depth: u8 = 25 . 0 [8];
        /// Maximum delay of the sender's acknowledgements, as an exponent of 4.096 µs.
        target_ack_delay: u8 = 26 . 0 [5];
        /// Whether the alternate path was accepted.
        failover: u8 = 26 . 5 [2];
        /// Whether acknowledgements contain credits.
        flow_control: bool = 26 . 7 [1];
        /// Number of retries after RNR NAKs; 7 for no limit.
        rnr_retry_count: u8 = 27 . 0 [3];
        /// Whether the sender uses a shared receive queue.
        srq: bool = 27 . 3 [1];
        /// GUID of the sender's adapter.
        ca_guid: Guid = 28 . 0 [64];
    }

    /// The fields of RTU and DREP.
    Ids[8] {
        /// Communication ID of the sender.
        local_id: CommId = 0 . 0 [32];
        /// Communication ID of the receiver.
        remote_id: CommId = 4 . 0 [32];
    }

    /// Request for disconnection (DREQ).
    Dreq[12] {
        /// Communication ID of the sender.
        local_id: CommId = 0 . 0 [32];
        /// Communication ID of the receiver.
        remote_id: CommId = 4 . 0 [32];
        /// Queue pair of the receiver.
        remote_qpn: Qpn = 8 . 0 [24];
    }

    /// Service ID resolution request, for the queue pair of a UD service.
    SidrReq[16] {
        /// Request ID of the sender.
        request_id: CommId = 0 . 0 [32];
        /// Partition key.
        pkey: PKey = 4 . 0 [16];
        /// Requested service.
        service_id: ServiceId = 8 . 0 [64];
    }

    /// Service ID resolution response, with the queue pair of a UD service.
    SidrRep[96] {
        /// Request ID of the request.
        request_id: CommId = 0 . 0 [32];
        /// Status: 0 valid, 1 no such service, 2 rejected, 3 no queue pair, 4 redirected, 5 unsupported version.
        status: u8 = 4 . 0 [8];
        /// Length of additional information in bytes.
        info_len: u8 = 5 . 0 [8];
        /// High bytes of the vendor of the ECE options.
        ece_vendor_high: u16 = 6 . 0 [16];
        /// Queue pair of the service.
        qpn: Qpn = 8 . 0 [24];
        /// Low byte of the vendor of the ECE options.
        ece_vendor_low: u8 = 11 . 0 [8];
        /// Requested service.
        service_id: ServiceId = 12 . 0 [64];
        /// Queue key of the queue pair.
        qkey: QKey = 20 . 0 [32];
        /// Additional information, which depends on the status.
        info: Info = 24 . 0 [576];
    }

    /// Header of rdma_cm before the consumer's private data in REQ and SIDR_REQ.
    IpHeader[36] {
        /// Version, 0.
        version: u8 = 0 . 0 [8];
        /// IP version, 4 or 6.
        ip_version: u8 = 1 . 0 [4];
        /// Port of the requester. The port of the listener is in the service ID.
        source_port: u16 = 2 . 0 [16];
        /// Address of the requester.
        source_ip: IpAddr = 4 . 0 [128];
        /// Address of the listener.
        destination_ip: IpAddr = 20 . 0 [128];
    }
}

impl Rep {
    /// Returns the vendor of the ECE options, 24 bits.
    pub const fn ece_vendor(&self) -> u32 {
        let (high, middle, low) =
            (self.ece_vendor_high, self.ece_vendor_middle, self.ece_vendor_low);
        u32::from_be_bytes([0, high, middle, low])
    }

    /// Returns the message with this vendor of the ECE options.
    pub const fn with_ece_vendor(self, vendor: u32) -> Self {
        let [_, ece_vendor_high, ece_vendor_middle, ece_vendor_low] = vendor.to_be_bytes();
        Self { ece_vendor_high, ece_vendor_middle, ece_vendor_low, ..self }
    }
}

impl SidrRep {
    /// Returns the vendor of the ECE options, 24 bits.
    pub const fn ece_vendor(&self) -> u32 {
        let [high, middle] = self.ece_vendor_high.to_be_bytes();
        u32::from_be_bytes([0, high, middle, self.ece_vendor_low])
    }

    /// Returns the message with this vendor of the ECE options.
    pub const fn with_ece_vendor(self, vendor: u32) -> Self {
        let [_, high, middle, ece_vendor_low] = vendor.to_be_bytes();
        Self { ece_vendor_high: u16::from_be_bytes([high, middle]), ece_vendor_low, ..self }
    }
}

impl IpHeader {
    /// Returns the header with addresses of its IP version. Parsing cannot tell an IPv4 address from an IPv6 address
    /// with 12 leading zero bytes, such as `::1`.
    pub(super) fn with_version(self) -> Self {
        let of_version = |ip: IpAddr| match ip {
            IpAddr::V4(v4) if self.ip_version == 6 => {
                Ipv6Addr::from(u128::from(u32::from(v4))).into()
            }
            ip => ip,
        };
        let (source_ip, destination_ip) =
            (of_version(self.source_ip), of_version(self.destination_ip));
        Self { source_ip, destination_ip, ..self }
    }
}

impl Rej {
    /// Returns the message with this additional information, without that past its length.
    pub fn with_info(self, info: &[u8]) -> Self {
        let info_len = u8::try_from(info.len().min(Info::LEN)).unwrap_or_default();
        Self { info_len, info: Info::new(info), ..self }
    }

    /// Returns the text of the reason (IBTA vol 1, §12.6.7.2).
    pub const fn reason_text(&self) -> &'static str {
        Self::text_of(self.reason)
    }

    /// Returns the text of a reason.
    pub const fn text_of(reason: u16) -> &'static str {
        match reason {
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
            35 => "vendor option not supported",
            _ => "a reason that is not assigned",
        }
    }
}
