//! The rules of the checker.

use std::fmt;

macro_rules! rules {
    ($($rule:ident $id:literal $name:literal $clause:literal {
        rule: $statement:literal,
        cause: $cause:literal,
        action: $action:literal,
    })*) => {
        /// A rule of RoCEv2.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Rule {$(
            #[doc = $statement]
            $rule,
        )*}

        impl Rule {
            /// Every rule.
            pub const ALL: &'static [Self] = &[$(Self::$rule,)*];

            /// Returns the identifier in the list of conformance statements (docs/COMPLIANCE.md): `CRC-08`.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$rule => $id,)* }
            }

            /// Returns the name, in the manner of Wireshark's filters for expert information: `icrc.bad`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$rule => $name,)* }
            }

            /// Returns the clause of the IBTA specification.
            pub const fn clause(self) -> &'static str {
                match self { $(Self::$rule => $clause,)* }
            }

            /// Returns what the rule requires.
            pub const fn statement(self) -> &'static str {
                match self { $(Self::$rule => $statement,)* }
            }

            /// Returns what typically causes a finding.
            pub const fn typical_cause(self) -> &'static str {
                match self { $(Self::$rule => $cause,)* }
            }

            /// Returns what to do about a finding.
            pub const fn action(self) -> &'static str {
                match self { $(Self::$rule => $action,)* }
            }
        }
    };
}

rules! {
    UdpSourcePort "PKT-01" "udp.source_port" "annex A17" {
        rule: "the UDP source port is one of 0xC000 to 0xFFFF",
        cause: "a sender that uses an ephemeral or fixed port, or a NAT on the way",
        action: "no action if the peer accepts it; behind a NAT the ICRC fails too, so use a path without one",
    }
    Ipv4Header "PKT-03" "ip.header" "annex A17" {
        rule: "an IPv4 header has no options, has DF set, and is not of a fragment",
        cause: "a socket without path MTU discovery, or a router that fragments",
        action: "set IP_MTU_DISCOVER in the sender; give both sides an MTU that the path carries (roce doctor HOST)",
    }
    DatagramLength "PKT-07" "packet.length" "vol 1, §9.6" {
        rule: "a datagram holds its headers, padding and ICRC, and a payload only if its opcode has one",
        cause: "a sender that computes lengths wrongly, or a device that truncates",
        action: "compare the UDP length with the headers of the opcode; look for a middlebox that rewrites packets",
    }
    TransportVersion "PKT-08" "bth.tver" "vol 1, §9.2" {
        rule: "the transport version is 0",
        cause: "traffic of another protocol on UDP port 4791",
        action: "find the program that sends it: ss -ulpn on the source host",
    }
    UnassignedOpcode "PKT-09" "bth.opcode" "vol 1, §9.2.1" {
        rule: "the opcode is assigned",
        cause: "a vendor's own opcode (0xC0 and above), or a damaged implementation",
        action: "ignore vendor opcodes between devices of that vendor; else report it to the author of the sender",
    }
    DestinationQp "PKT-10" "bth.destqp" "vol 1, §9.6" {
        rule: "no packet goes to queue pair 0, and no RC or UC packet to queue pair 1 or 0xFFFFFF",
        cause: "a queue pair number that was exchanged wrongly, or never set",
        action: "check how the two sides exchange their queue pair numbers",
    }
    TransportMismatch "PKT-11" "bth.transport" "vol 1, §9.6" {
        rule: "all packets of a connection have one transport service",
        cause: "the two sides created queue pairs of different types",
        action: "give both sides the same transport service (roce perf -c, qp_type)",
    }
    PKey "PKT-12" "bth.pkey" "vol 1, §10.9.3" {
        rule: "the P_Key names a partition, the same in all packets of a connection",
        cause: "sides with different P_Key tables or pkey_index",
        action: "compare the P_Key at pkey_index on both sides (roce devinfo -v)",
    }
    ReservedBits "PKT-15" "bth.reserved" "vol 1, §9.2" {
        rule: "reserved bits, FECN and BECN are 0, and MigReq of a connection is 1",
        cause: "kernel rxe sends MigReq 0; a switch may set FECN or BECN",
        action: "no action: receivers ignore these bits",
    }
    Padding "PKT-16" "bth.padcnt" "vol 1, §9.2.4" {
        rule: "zero bytes pad the payload to a multiple of four",
        cause: "a sender that pads with the wrong count or leaves old memory in the pad",
        action: "report it to the author of the sender; the pad may leak memory",
    }
    MtuMismatch "PKT-18" "mtu.first_middle" "vol 1, §9.7.4.1.6" {
        rule: "FIRST and MIDDLE carry exactly the path MTU, which both sides share",
        cause: "path_mtu differs between the two queue pairs",
        action: "give both sides the same path MTU (-m in perftest and roce)",
    }
    IcrcMethod "CRC-01" "icrc.method" "annex A17" {
        rule: "the ICRC is computed over the fields that the annex names",
        cause: "kernel rxe covers the headers of a FLUSH twice",
        action: "no action with rxe on both sides; softroce accepts it",
    }
    IcrcBad "CRC-08" "icrc.bad" "annex A17" {
        rule: "the ICRC matches the packet",
        cause: "a NAT or router that rewrites addresses or ports, a damaged link, or a capture taken before the sender computed it",
        action: "run roce doctor HOST, which names the change; use a path without address translation",
    }
    PsnGap "REQ-01" "psn.gap" "vol 1, §9.7.1" {
        rule: "PSNs of consecutive requests are consecutive",
        cause: "packets lost before the point of capture, or a capture that dropped them",
        action: "look for retransmissions of the same PSNs; capture with a larger buffer (dumpcap -B)",
    }
    PsnInsideRead "REQ-03" "psn.inside_read" "vol 1, §9.7.1" {
        rule: "a request after a READ starts after the PSNs of the READ response",
        cause: "a requester that counts one PSN for a READ of many packets",
        action: "report it to the author of the requester",
    }
    AckReq "REQ-06" "bth.ackreq" "vol 1, §9.2" {
        rule: "AckReq is set in requests of RC and XRC only",
        cause: "a sender that sets it in responses or in UC and UD packets",
        action: "no action: receivers ignore it there",
    }
    RetransmissionWithoutAckReq "REQ-07" "rc.retransmission.ackreq" "vol 1, §9.7.3" {
        rule: "the last packet of a retransmitted message requests an acknowledgement",
        cause: "a requester that retransmits packets without setting AckReq",
        action: "report it to the author of the requester; such a connection may time out again",
    }
    ImpliedNak "REQ-12" "rc.implied_nak" "vol 1, §9.7.6" {
        rule: "a request after a READ or atomic is not acknowledged before the response of that READ or atomic",
        cause: "the response was lost, so the requester repeats the request",
        action: "look for loss on the path from the responder",
    }
    ReadResponseGap "REQ-14" "read.response_gap" "vol 1, §9.7.6" {
        rule: "READ responses arrive in the order of their PSNs",
        cause: "responses lost or reordered by the network",
        action: "look for loss or reordering on the path from the responder",
    }
    ReadResumed "REQ-16" "read.resumed" "vol 1, §9.7.3" {
        rule: "a READ that continues after a loss names the rest of its memory",
        cause: "a requester that computes address or length of the rest wrongly",
        action: "report it to the author of the requester",
    }
    ReadResponseShape "REQ-17" "read.response" "vol 1, §9.7.5" {
        rule: "a READ response has the position and length that its PSN requires",
        cause: "a responder that splits responses at another MTU than the requester expects",
        action: "give both sides the same path MTU; else report it to the author of the responder",
    }
    FastRetransmission "REQ-18" "rc.retransmission.nak" "vol 1, §9.7.4.1.4" {
        rule: "a NAK for a missing packet makes the requester retransmit from it",
        cause: "a packet was lost or reordered",
        action: "look for full queues on the path; roce analyze shows what the loss cost",
    }
    Retransmission "REQ-19" "rc.retransmission" "vol 1, §9.7.3" {
        rule: "a retransmitted packet equals the original",
        cause: "a copy made by the network, or, with other contents, a program that changed memory before the completion",
        action: "for a changed packet, do not touch a buffer before its completion",
    }
    FatalNak "REQ-21" "rc.nak.fatal" "vol 1, §9.7.5.2" {
        rule: "a NAK other than for a missing packet ends the connection",
        cause: "an rkey, address range or access right that the responder does not accept, or a message longer than its receive buffer",
        action: "look at the completion error of the requester, and at the memory that the request names",
    }
    NakCode "REQ-22" "aeth.nak_code" "vol 1, §9.7.5.2" {
        rule: "the NAK code is assigned",
        cause: "a responder that sends a reserved or RD code",
        action: "report it to the author of the responder",
    }
    RnrRetransmission "REQ-23" "rc.rnr_retransmission" "vol 1, §9.7.5.2.8" {
        rule: "after an RNR NAK the requester waits at least the time that the NAK names",
        cause: "the responder had no receive request posted",
        action: "post more receive requests; a requester that retries too early breaks the rule",
    }
    TimeoutRetransmission "REQ-28" "rc.retransmission.timeout" "vol 1, §9.7.6.1.3" {
        rule: "a request without a response within the ACK timeout is retransmitted",
        cause: "the last packet of a burst or its acknowledgement was lost, or the responder was slow",
        action: "look for loss at the end of bursts; lower the ACK timeout (qp-timeout) for a short path",
    }
    OutstandingReads "REQ-31" "read.outstanding" "vol 1, §9.7.5" {
        rule: "no more READs and atomics are outstanding than the responder accepts",
        cause: "max_rd_atomic of the requester is larger than max_dest_rd_atomic of the responder",
        action: "give the requester a max_rd_atomic that the responder has agreed to",
    }
    ResponseNotAck "REQ-39" "aeth.not_ack" "vol 1, §9.7.5" {
        rule: "the AETH of a READ response or atomic acknowledgement is an ACK",
        cause: "a responder that puts a NAK syndrome into a response",
        action: "report it to the author of the responder",
    }
    FlushResponse "REQ-40" "flush.response" "annex A19" {
        rule: "the response to FLUSH and ATOMIC WRITE is an empty READ response",
        cause: "a responder that sends a plain ACK or data",
        action: "report it to the author of the responder",
    }
    Solicited "REQ-41" "bth.se" "vol 1, §9.2" {
        rule: "the solicited event bit is set only in the last packet of a SEND or of a WRITE with immediate data",
        cause: "a sender that sets it in other packets",
        action: "no action: receivers ignore it there",
    }
    SequenceNak "RSP-02" "rc.nak.sequence" "vol 1, §9.7.5.2" {
        rule: "a PSN gap causes one NAK, with the missing PSN",
        cause: "a packet was lost; more than one NAK means a responder that does not suppress repeats",
        action: "look for loss; report repeated NAKs to the author of the responder",
    }
    OldAck "RSP-04" "rc.duplicate_ack" "vol 1, §9.7.5.1.2" {
        rule: "a duplicate SEND or WRITE is acknowledged with the newest PSN",
        cause: "a responder that acknowledges the PSN of the duplicate, as kernel rxe does, or reordering",
        action: "no action: requesters ignore old acknowledgements",
    }
    DuplicateReadResponse "RSP-05" "read.duplicate_response" "vol 1, §9.7.5.1.2" {
        rule: "a READ is executed once for each time it is requested",
        cause: "the network duplicated packets, or a repeated READ request is missing from the capture",
        action: "no action, unless packets are duplicated on the path",
    }
    DuplicateAtomic "RSP-08" "atomic.duplicate_result" "vol 1, §9.7.5.1.2" {
        rule: "a duplicate atomic request gets the first result",
        cause: "a responder that executes a duplicate atomic again",
        action: "report it to the author of the responder: memory is corrupted",
    }
    Syndrome "RSP-11" "aeth.syndrome" "vol 1, §9.7.7.2" {
        rule: "the syndrome is an ACK, a NAK or an RNR NAK, and the requester keeps within the credits of an ACK",
        cause: "kernel rxe ignores credits; a reserved syndrome is a defect",
        action: "no action for credits: the responder sends RNR NAKs",
    }
    AckOfUnseen "RSP-12" "rc.ack_unseen" "vol 1, §9.7.6" {
        rule: "only sent packets are acknowledged",
        cause: "requests are missing from the capture",
        action: "capture at the requester, or with a larger buffer (dumpcap -B)",
    }
    Msn "RSP-14" "aeth.msn" "vol 1, §9.7.7" {
        rule: "the MSN counts completed messages",
        cause: "a responder that counts packets, or does not count; in a note, a capture that lacks requests",
        action: "report violations to the author of the responder",
    }
    MessageNotOpened "RSP-15" "message.no_first" "vol 1, §9.7.4.1.2" {
        rule: "MIDDLE and LAST follow a FIRST",
        cause: "a requester that starts in the middle of a message",
        action: "report it to the author of the requester",
    }
    MessageNotFinished "RSP-16" "message.no_last" "vol 1, §9.7.4.1.2" {
        rule: "no other request comes between FIRST and LAST of a message",
        cause: "a requester that interleaves messages or abandons one",
        action: "report it to the author of the requester",
    }
    MessageMixed "RSP-17" "message.mixed" "vol 1, §9.7.4.1.2" {
        rule: "all packets of a message have one operation",
        cause: "a requester that changes between SEND and WRITE within a message",
        action: "report it to the author of the requester",
    }
    PayloadLength "RSP-19" "payload.length" "vol 1, §9.7.4.1.6" {
        rule: "LAST carries at least one byte, and no packet more than the path MTU",
        cause: "path_mtu differs between the two queue pairs",
        action: "give both sides the same path MTU (-m in perftest and roce)",
    }
    WriteLength "RSP-20" "write.length" "vol 1, §9.7.4.1.6" {
        rule: "the packets of a WRITE add up to its RETH length",
        cause: "a requester that announces another length than it sends",
        action: "report it to the author of the requester",
    }
    RethLength "RSP-21" "reth.length" "vol 1, §9.3.3" {
        rule: "the RETH length is at most 2^31",
        cause: "a length that was computed wrongly, or not in network byte order",
        action: "report it to the author of the requester",
    }
    RnrNak "RSP-23" "rc.rnr_nak" "vol 1, §9.7.5.2.8" {
        rule: "an RNR NAK is the response to a request that consumes a receive request",
        cause: "the application posts receive requests too late or too few",
        action: "post more receive requests, or use a shared receive queue with a limit event",
    }
    NakAfterRnr "RSP-25" "rc.nak_after_rnr" "vol 1, §9.7.5.2.8" {
        rule: "after an RNR NAK the responder drops later requests without a response",
        cause: "kernel rxe sends a sequence NAK for each of them",
        action: "no action: the requester retransmits either way",
    }
    AccessNak "RSP-26" "rc.nak.access" "vol 1, §9.7.5.2" {
        rule: "a remote access NAK is the response to a request that names memory",
        cause: "a responder that sends this code for a SEND",
        action: "report it to the author of the responder",
    }
    AddressOverflow "RSP-28" "reth.overflow" "vol 1, §9.3.3" {
        rule: "address and length stay within 64 bits",
        cause: "an address that was exchanged wrongly",
        action: "check how the two sides exchange memory addresses",
    }
    AtomicAlignment "RSP-31" "atomic.alignment" "vol 1, §9.3.6" {
        rule: "the address of an atomic is a multiple of 8",
        cause: "a buffer that is not aligned to 8 bytes",
        action: "align the target of atomics to 8 bytes",
    }
    AtomicWrite "RSP-32" "atomic_write.shape" "annex A19" {
        rule: "an ATOMIC WRITE has 8 bytes at a multiple of 8",
        cause: "a buffer that is not aligned to 8 bytes",
        action: "align the target of ATOMIC WRITEs to 8 bytes",
    }
    ResponseOrder "RSP-40" "rc.response_order" "vol 1, §9.7.5" {
        rule: "responses come in the order of their requests",
        cause: "the network reordered packets, or the capture merged two interfaces",
        action: "capture on one interface; look for per-packet load balancing (use per-flow)",
    }
    ResponseAfterFatalNak "RSP-42" "rc.response_after_fatal_nak" "vol 1, §9.9.3" {
        rule: "no response follows a NAK that ends the connection",
        cause: "a new connection with the same queue pair numbers, or a responder that does not enter the error state",
        action: "report violations to the author of the responder",
    }
    UcPsnGap "UC-02" "uc.psn_gap" "vol 1, §9.8.2.2" {
        rule: "PSNs of a UC stream are consecutive, or the message is lost",
        cause: "the network lost, duplicated or reordered packets",
        action: "UC does not retransmit: use RC, or look for loss on the path",
    }
    MulticastQp "UD-10" "ud.multicast_qp" "vol 1, §10.5" {
        rule: "a datagram to a multicast address goes to queue pair 0xFFFFFF",
        cause: "kernel rxe sends to the queue pair of the work request",
        action: "no action if receivers accept it",
    }
    GsiQKey "UD-11" "gsi.qkey" "vol 1, §10.2.5" {
        rule: "a datagram to queue pair 1 has the Q_Key 0x80010000",
        cause: "a sender that uses an ordinary Q_Key for management",
        action: "report it to the author of the sender",
    }
    Mad "CM-01" "gsi.mad" "vol 1, §13.4.3" {
        rule: "a datagram to queue pair 1 is a MAD of 256 bytes",
        cause: "traffic of a program that does not know queue pair 1 is reserved",
        action: "use another queue pair number",
    }
    CmAddresses "CM-03" "cm.addresses" "annex A11" {
        rule: "a REQ states the addresses of its IP header, in the form of rdma_cm",
        cause: "a NAT on the way, or a sender with several addresses",
        action: "use a path without address translation: the peer replies to the stated address",
    }
    CmNoListener "CM-05" "cm.reject.no_listener" "vol 1, §12.6.7" {
        rule: "a listener has the service ID of a REQ",
        cause: "the server is not running, or listens on another port or address",
        action: "start the server first; compare the port with that in the REQ (roce dump)",
    }
    CmDepth "CM-07" "cm.rep_depth" "vol 1, §12.6" {
        rule: "a REP announces no more READs and atomics at once than its REQ accepts",
        cause: "a passive side that ignores the limits of the request",
        action: "lower initiator_depth in rdma_accept",
    }
    CmTransaction "CM-08" "cm.transaction_id" "vol 1, §12.6" {
        rule: "a response of the connection manager has the transaction ID of its request",
        cause: "a manager that uses transaction IDs of its own",
        action: "report it to the author of that side",
    }
    CmRetransmission "CM-09" "cm.retransmission" "vol 1, §12.9.8" {
        rule: "a message of the connection manager without a response is retransmitted unchanged",
        cause: "the message or its response was lost, or the peer's program responds late",
        action: "look for loss of datagrams to queue pair 1; a slow server sends MRAs",
    }
    CmSecondReply "CM-10" "cm.second_reply" "vol 1, §12.9.8" {
        rule: "a retransmitted REQ makes no second connection",
        cause: "a passive side that does not recognize the communication ID",
        action: "report it to the author of the passive side",
    }
    CmStale "CM-11" "cm.reject.stale" "vol 1, §12.9.8.3" {
        rule: "a REQ is from a queue pair without a connection",
        cause: "an end of the earlier connection that did not arrive: a crash, or a lost DREQ",
        action: "connect again; the rejection ends the earlier connection",
    }
    CmDelayed "CM-12" "cm.mra" "vol 1, §12.6.6" {
        rule: "an MRA extends the time until the response",
        cause: "a program that is slow to accept",
        action: "no action, unless connection setup takes too long",
    }
    CmRejected "CM-13" "cm.reject" "vol 1, §12.6.7" {
        rule: "a REJ ends the setup of a connection and names the reason",
        cause: "the program rejects the request, or a parameter of the request",
        action: "look at the reason, and at the private data of the REJ",
    }
    CmDisconnect "CM-14" "cm.dreq_qp" "vol 1, §12.6.10" {
        rule: "a DREQ names the queue pair of its receiver",
        cause: "a sender that names its own queue pair, or that of another connection",
        action: "report it to the author of the sender: the receiver ignores the DREQ",
    }
    CmService "CM-15" "cm.sidr" "vol 1, §12.11" {
        rule: "a SIDR_REP names the queue pair of the service",
        cause: "no datagram service at that port, or a program that rejects the request",
        action: "start the server first; compare the port with that in the SIDR_REQ (roce dump)",
    }
    CmMtu "CM-17" "cm.reject.mtu" "vol 1, §12.6.7" {
        rule: "the path MTU of a REQ is at most that of the passive side",
        cause: "interfaces with different MTUs",
        action: "give both interfaces the same MTU (ip link set mtu)",
    }
    Cnp "CC-01" "cnp.shape" "annex A17" {
        rule: "a CNP has BECN set, PSN 0, no other flag, and 16 zero bytes",
        cause: "an adapter or switch that builds CNPs in another way",
        action: "no action if the peer reacts to them",
    }
}

impl Rule {
    /// Returns whether a sender that breaks the rule does so in every packet, so that one report is enough.
    pub(super) const fn is_habit(self) -> bool {
        matches!(
            self,
            Self::UdpSourcePort
                | Self::ReservedBits
                | Self::AckReq
                | Self::Syndrome
                | Self::MulticastQp
        )
    }

    /// Returns whether the rule concerns the length of packets.
    pub(super) const fn is_of_length(self) -> bool {
        matches!(
            self,
            Self::DatagramLength
                | Self::Padding
                | Self::MtuMismatch
                | Self::ReadResponseShape
                | Self::FlushResponse
                | Self::PayloadLength
                | Self::WriteLength
                | Self::AtomicWrite
                | Self::Mad
                | Self::Cnp
        )
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_and_identifiers_are_unique() {
        let count = |of: fn(Rule) -> &'static str| {
            Rule::ALL.iter().map(|rule| of(*rule)).collect::<BTreeSet<_>>().len()
        };
        assert_eq!(
            [count(Rule::id), count(Rule::name), count(Rule::statement)],
            [Rule::ALL.len(); 3]
        );
    }
}
