//! The rules, each with the statement it holds traffic against.

use std::fmt;

macro_rules! rules {
    ($($rule:ident $id:literal $statement:literal,)*) => {
        /// A rule of RoCEv2, by the id it has in the project's list of conformance statements.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Rule {$(
            #[doc = $statement]
            $rule,
        )*}

        impl Rule {
            /// Every rule.
            pub const ALL: &'static [Self] = &[$(Self::$rule,)*];

            /// Its id: `PKT-16`.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$rule => $id,)* }
            }

            /// What it says.
            pub const fn statement(self) -> &'static str {
                match self { $(Self::$rule => $statement,)* }
            }
        }
    };
}

rules! {
    Pkt01 "PKT-01" "the UDP source port is one of 0xC000 to 0xFFFF",
    Pkt03 "PKT-03" "an IPv4 header has no options, DF set, and is no fragment's",
    Pkt07 "PKT-07" "a datagram has room for headers, padding and ICRC, and payload only where its opcode has it",
    Pkt08 "PKT-08" "the transport version is 0",
    Pkt09 "PKT-09" "the opcode is assigned",
    Pkt10 "PKT-10" "no packet goes to queue pair 0, and none of RC or UC to 1 or 0xFFFFFF",
    Pkt11 "PKT-11" "all packets of a connection are of its transport",
    Pkt12 "PKT-12" "a P_Key names a partition, one and the same in all packets of a connection",
    Pkt15 "PKT-15" "reserved bits, FECN and BECN are 0, MigReq is 1",
    Pkt16 "PKT-16" "padding fills four bytes and is zero",
    Pkt18 "PKT-18" "FIRST and MIDDLE carry exactly the path MTU, which both sides share",
    Crc01 "CRC-01" "the ICRC is computed as annex A17 says",
    Crc08 "CRC-08" "the ICRC holds",
    Req01 "REQ-01" "PSNs of consecutive requests follow one another",
    Req03 "REQ-03" "the request after a READ comes after the PSNs of its answer",
    Req06 "REQ-06" "AckReq is set in requests of RC and XRC only",
    Req07 "REQ-07" "a message's end that is sent again asks to be acknowledged",
    Req12 "REQ-12" "what comes after a READ or atomic is not acknowledged before its answer",
    Req14 "REQ-14" "READ responses come in the order of their PSNs",
    Req16 "REQ-16" "a READ that is resumed names the rest of its memory",
    Req17 "REQ-17" "READ responses have the position and length that their PSN demands",
    Req18 "REQ-18" "a NAK for a missing packet makes the requester go back to it",
    Req19 "REQ-19" "what is sent again is what was sent",
    Req21 "REQ-21" "a NAK other than for a missing packet ends the connection",
    Req22 "REQ-22" "the NAK code is assigned",
    Req23 "REQ-23" "an RNR NAK puts off its request for the time that it names",
    Req28 "REQ-28" "what is not answered in time is sent again",
    Req31 "REQ-31" "no more READs and atomics are outstanding than the responder takes",
    Req39 "REQ-39" "the AETH of a READ response or atomic acknowledgement is an ACK",
    Req40 "REQ-40" "FLUSH and ATOMIC WRITE are answered by an empty READ response",
    Req41 "REQ-41" "the solicited event bit is set at the end of SENDs and of WRITEs with immediate",
    Rsp02 "RSP-02" "a gap is answered by one NAK, with the PSN that is missing",
    Rsp04 "RSP-04" "a repeated SEND or WRITE is acknowledged with the newest PSN",
    Rsp05 "RSP-05" "a READ is answered once for each time it is asked",
    Rsp08 "RSP-08" "a repeated atomic is answered with the first result",
    Rsp11 "RSP-11" "an AETH is an ACK, a NAK or an RNR NAK, and the credits of an ACK are kept to",
    Rsp12 "RSP-12" "what is acknowledged was sent",
    Rsp14 "RSP-14" "the MSN counts completed messages",
    Rsp15 "RSP-15" "MIDDLE and LAST follow a FIRST",
    Rsp16 "RSP-16" "nothing comes between FIRST and LAST of a message",
    Rsp17 "RSP-17" "all packets of a message are of one operation",
    Rsp19 "RSP-19" "LAST carries at least one byte, and no packet more than the path MTU",
    Rsp20 "RSP-20" "the packets of a WRITE sum to its RETH length",
    Rsp21 "RSP-21" "a RETH length is at most 2^31",
    Rsp23 "RSP-23" "an RNR NAK answers a request that takes a receive request",
    Rsp25 "RSP-25" "after an RNR NAK later requests are dropped in silence",
    Rsp26 "RSP-26" "a NAK about memory answers a request that names memory",
    Rsp28 "RSP-28" "address and length stay within 64 bits",
    Rsp31 "RSP-31" "the address of an atomic is a multiple of 8",
    Rsp32 "RSP-32" "an ATOMIC WRITE has 8 bytes, and a multiple of 8 as its address",
    Rsp40 "RSP-40" "answers come in the order of their requests",
    Rsp42 "RSP-42" "nothing is answered after a NAK that ends the connection",
    Uc02 "UC-02" "PSNs of a UC stream follow one another, or the message is lost",
    Ud10 "UD-10" "a datagram to a multicast address goes to queue pair 0xFFFFFF",
    Ud11 "UD-11" "a datagram to queue pair 1 has Q_Key 0x80010000",
    Cm01 "CM-01" "a datagram to queue pair 1 is a MAD of 256 bytes",
    Cm07 "CM-07" "a REP announces no more READs and atomics at once than its REQ takes",
    Cm08 "CM-08" "an answer of a connection manager has the transaction of its question",
    Cc01 "CC-01" "a CNP has BECN set, PSN 0, no other flag, and 16 zero bytes",
}

impl Rule {
    /// Whether a sender that breaks it does so in every packet, so that once is enough to tell.
    pub(super) const fn is_habit(self) -> bool {
        matches!(self, Self::Pkt01 | Self::Pkt15 | Self::Req06 | Self::Rsp11 | Self::Ud10)
    }

    /// Whether it speaks of how long packets are.
    pub(super) const fn is_of_length(self) -> bool {
        matches!(
            self,
            Self::Pkt07
                | Self::Pkt16
                | Self::Pkt18
                | Self::Req17
                | Self::Req40
                | Self::Rsp19
                | Self::Rsp20
                | Self::Rsp32
                | Self::Cm01
                | Self::Cc01
        )
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}
