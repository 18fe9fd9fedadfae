//! Opcodes, and the properties of packets that they determine.
//!
//! The opcode is the first byte of the packet. Its upper three bits select the transport service, the lower five the
//! operation and the position of the packet in its message (IBTA vol 1, §9.2.1):
//!
//! ```text
//!    7   6   5 │ 4   3   2   1   0
//!   transport  │ operation, position, immediate data or not
//! ```
//!
//! The table at the end of this file is the only source; all else is derived from it at compile time. A receiver
//! looks up [`OpcodeInfo`] once per packet and then needs no further comparison of opcodes.

use std::fmt;

use super::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Cnp, Deth, FlushEth, Ieth, ImmDt, RdEth, Reth, XrcEth,
};

/// A transport service: the upper three bits of the opcode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// Reliable connection: acknowledged and in order, between two queue pairs.
    Rc,
    /// Unreliable connection: as RC, without acknowledgements.
    Uc,
    /// Reliable datagram, which no adapter implements.
    Rd,
    /// Unreliable datagram: single packets to any queue pair.
    Ud,
    /// Congestion notification, which belongs to no transport service.
    Cnp,
    /// Extended reliable connection: RC with a shared receive queue selected by each packet.
    Xrc,
}

impl Transport {
    /// Returns the name in the specification, for example `RC`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Rd => "RD",
            Self::Ud => "UD",
            Self::Cnp => "CNP",
            Self::Xrc => "XRC",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Operation that a packet belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Message for a receive request of the responder.
    Send,
    /// Data for the memory of the responder.
    Write,
    /// Request for data of the responder's memory.
    ReadRequest,
    /// Data that a READ has requested; also the empty response to FLUSH and ATOMIC WRITE.
    ReadResponse,
    /// ACK, NAK or RNR NAK, depending on the AETH.
    Acknowledge,
    /// Response to an atomic, with the original value.
    AtomicAcknowledge,
    /// Atomic compare and swap.
    CompareSwap,
    /// Atomic fetch and add.
    FetchAdd,
    /// Resynchronization of a reliable datagram channel.
    Resync,
    /// Makes earlier writes visible or persistent.
    Flush,
    /// Atomic write of eight bytes.
    AtomicWrite,
    /// Congestion notification to a sender.
    Cnp,
}

impl Operation {
    /// Returns whether the packet goes from requester to responder. A CNP is neither request nor response.
    pub const fn is_request(self) -> bool {
        match self {
            Self::Send
            | Self::Write
            | Self::ReadRequest
            | Self::CompareSwap
            | Self::FetchAdd
            | Self::Resync
            | Self::Flush
            | Self::AtomicWrite => true,
            Self::ReadResponse | Self::Acknowledge | Self::AtomicAcknowledge | Self::Cnp => false,
        }
    }
}

/// Position of a packet in its message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Position {
    /// First of several packets. The payload has the size of the path MTU.
    First,
    /// Neither first nor last. The payload has the size of the path MTU.
    Middle,
    /// Last of several packets, with a payload of at least 1 byte.
    Last,
    /// Only packet of a message, with a payload of 0 bytes or more.
    Only,
}

impl Position {
    /// Returns the position of a packet that starts its message or not, and ends it or not.
    pub const fn new(is_start: bool, is_end: bool) -> Self {
        match (is_start, is_end) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, false) => Self::Middle,
            (false, true) => Self::Last,
        }
    }

    /// Returns whether a message starts with this packet.
    pub const fn is_start(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Returns whether a message ends with this packet.
    pub const fn is_end(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// Information that a packet carries beside its operation and its place in the message: the end of an opcode's name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Suffix {
    /// None.
    #[default]
    None,
    /// `IMM`: immediate data.
    Imm,
    /// `INV`: a key to invalidate.
    Inv,
}

/// An extension header between BTH and payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Header {
    /// [`RdEth`].
    Rdeth,
    /// [`Deth`].
    Deth,
    /// [`XrcEth`].
    Xrceth,
    /// [`FlushEth`].
    Feth,
    /// [`Reth`].
    Reth,
    /// [`AtomicEth`].
    Atomic,
    /// [`Aeth`].
    Aeth,
    /// [`AtomicAckEth`].
    AtomicAck,
    /// [`ImmDt`].
    Imm,
    /// [`Ieth`].
    Ieth,
    /// [`Cnp`]: the reserved bytes after the BTH of a CNP.
    Cnp,
}

impl Header {
    /// Returns the length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no header is empty")]
    pub const fn len(self) -> usize {
        match self {
            Self::Rdeth => RdEth::LEN,
            Self::Deth => Deth::LEN,
            Self::Xrceth => XrcEth::LEN,
            Self::Feth => FlushEth::LEN,
            Self::Reth => Reth::LEN,
            Self::Atomic => AtomicEth::LEN,
            Self::Aeth => Aeth::LEN,
            Self::AtomicAck => AtomicAckEth::LEN,
            Self::Imm => ImmDt::LEN,
            Self::Ieth => Ieth::LEN,
            Self::Cnp => Cnp::LEN,
        }
    }

    /// Returns the name in the specification, for example `AtomicETH`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rdeth => "RDETH",
            Self::Deth => "DETH",
            Self::Xrceth => "XRCETH",
            Self::Feth => "FETH",
            Self::Reth => "RETH",
            Self::Atomic => "AtomicETH",
            Self::Aeth => "AETH",
            Self::AtomicAck => "AtomicAckETH",
            Self::Imm => "ImmDt",
            Self::Ieth => "IETH",
            Self::Cnp => "CNP",
        }
    }
}

/// Offsets of the headers of an opcode, in bytes from the start of the BTH; `None` for absent headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Extension headers in wire order.
    pub headers: &'static [Header],
    /// Offset of the payload: the length of the BTH and all `headers`.
    pub payload: u8,
    /// Offset of the [`RdEth`].
    pub rdeth: Option<u8>,
    /// Offset of the [`Deth`].
    pub deth: Option<u8>,
    /// Offset of the [`XrcEth`].
    pub xrceth: Option<u8>,
    /// Offset of the [`FlushEth`].
    pub feth: Option<u8>,
    /// Offset of the [`Reth`].
    pub reth: Option<u8>,
    /// Offset of the [`AtomicEth`].
    pub atomic_eth: Option<u8>,
    /// Offset of the [`Aeth`].
    pub aeth: Option<u8>,
    /// Offset of the [`AtomicAckEth`].
    pub atomic_ack_eth: Option<u8>,
    /// Offset of the [`ImmDt`].
    pub imm: Option<u8>,
    /// Offset of the [`Ieth`].
    pub ieth: Option<u8>,
    /// Offset of the reserved bytes of a [`Cnp`].
    pub cnp: Option<u8>,
}

impl Layout {
    /// Returns the layout of a packet with these headers after its BTH.
    const fn new(headers: &'static [Header]) -> Self {
        let mut layout = Self {
            headers,
            payload: 0,
            rdeth: None,
            deth: None,
            xrceth: None,
            feth: None,
            reth: None,
            atomic_eth: None,
            aeth: None,
            atomic_ack_eth: None,
            imm: None,
            ieth: None,
            cnp: None,
        };
        let mut at = Bth::LEN;
        let mut i = 0;
        while i < headers.len() {
            let offset = Some(Self::small(at));
            match headers[i] {
                Header::Rdeth => layout.rdeth = offset,
                Header::Deth => layout.deth = offset,
                Header::Xrceth => layout.xrceth = offset,
                Header::Feth => layout.feth = offset,
                Header::Reth => layout.reth = offset,
                Header::Atomic => layout.atomic_eth = offset,
                Header::Aeth => layout.aeth = offset,
                Header::AtomicAck => layout.atomic_ack_eth = offset,
                Header::Imm => layout.imm = offset,
                Header::Ieth => layout.ieth = offset,
                Header::Cnp => layout.cnp = offset,
            }
            at += headers[i].len();
            i += 1;
        }
        layout.payload = Self::small(at);
        layout
    }

    /// Converts an offset at compile time, where an offset above 255 is an error.
    #[expect(clippy::cast_possible_truncation, reason = "asserted, at compile time")]
    const fn small(at: usize) -> u8 {
        assert!(at <= 0xff);
        at as u8
    }
}

/// Properties of an opcode as bits, so that a receiver need not compare operations and positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpcodeFlags(u16);

impl OpcodeFlags {
    /// An [`Opcode`] has this byte.
    const ASSIGNED: Self = Self(1 << 0);
    /// The packet goes from requester to responder. A CNP is neither request nor response.
    pub const REQUEST: Self = Self(1 << 1);
    /// First packet of a message: FIRST or ONLY.
    pub const START: Self = Self(1 << 2);
    /// Last packet of a message: LAST or ONLY.
    pub const END: Self = Self(1 << 3);
    /// MIDDLE.
    pub const MIDDLE: Self = Self(1 << 4);
    /// Packet of a SEND or WRITE: its response is an acknowledgement, and the responder may buffer it out of order.
    pub const MESSAGE: Self = Self(1 << 5);
    /// Packet of a WRITE.
    pub const WRITE: Self = Self(1 << 6);
    /// The packet has immediate data.
    pub const IMM: Self = Self(1 << 7);
    /// The packet has a key to invalidate.
    pub const INVALIDATE: Self = Self(1 << 8);
    /// The packet has a [`Reth`].
    pub const RETH: Self = Self(1 << 9);
    /// The BTHs of successive packets may differ in the PSN only, and acknowledgements are their only responses:
    /// MIDDLEs, and RC messages of one packet without extension headers.
    pub const REPEATS: Self = Self(1 << 10);

    /// Returns whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    const fn with(self, other: Self, is_set: bool) -> Self {
        if is_set { Self(self.0 | other.0) } else { self }
    }
}

/// State of a sequence of requests: between messages or within one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Sequence {
    /// Between messages.
    #[default]
    Idle,
    /// After the FIRST of a SEND and before its LAST.
    InSend,
    /// After the FIRST of a WRITE and before its LAST.
    InWrite,
}

/// All properties of an opcode.
///
/// A receiver looks it up once per packet: [`Datagram::info`](super::Datagram::info).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(align(64))]
pub struct OpcodeInfo {
    /// The opcode.
    pub opcode: Opcode,
    /// Transport service.
    pub transport: Transport,
    /// Operation.
    pub operation: Operation,
    /// Position in the message.
    pub position: Position,
    /// Immediate data, or a key to invalidate.
    pub suffix: Suffix,
    /// Properties of operation, position and headers as bits.
    pub flags: OpcodeFlags,
    /// State of the sequence of requests before this packet. Responses and CNPs belong to no sequence.
    pub before: Sequence,
    /// State of the sequence after this packet.
    pub after: Sequence,
    /// Offsets of the extension headers and the payload.
    pub layout: Layout,
}

impl OpcodeInfo {
    const fn new(
        opcode: Opcode,
        (transport, operation, position): (Transport, Operation, Position),
        headers: &'static [Header],
    ) -> Self {
        use OpcodeFlags as F;
        let layout = Layout::new(headers);
        let is_write = matches!(operation, Operation::Write);
        let is_message = is_write || matches!(operation, Operation::Send);
        let is_middle = matches!(position, Position::Middle);
        let repeats = is_middle
            || matches!(opcode, Opcode::RcSendOnly | Opcode::RcSendOnlyImm | Opcode::RcWriteOnly);
        let suffix = match (layout.imm, layout.ieth) {
            (Some(_), _) => Suffix::Imm,
            (None, Some(_)) => Suffix::Inv,
            (None, None) => Suffix::None,
        };
        let flags = F::ASSIGNED
            .with(F::REQUEST, operation.is_request())
            .with(F::START, position.is_start())
            .with(F::END, position.is_end())
            .with(F::MIDDLE, is_middle)
            .with(F::MESSAGE, is_message)
            .with(F::WRITE, is_write)
            .with(F::IMM, layout.imm.is_some())
            .with(F::INVALIDATE, layout.ieth.is_some())
            .with(F::RETH, layout.reth.is_some())
            .with(F::REPEATS, repeats);
        let open = if is_write { Sequence::InWrite } else { Sequence::InSend };
        let before = if position.is_start() { Sequence::Idle } else { open };
        let after = if position.is_end() { Sequence::Idle } else { open };
        Self { opcode, transport, operation, position, suffix, flags, before, after, layout }
    }

    /// Entry of an unassigned byte. No [`Opcode`] has it.
    const UNASSIGNED: Self = {
        let cnp = (Transport::Cnp, Operation::Cnp, Position::Only);
        Self { flags: OpcodeFlags(0), ..Self::new(Opcode::Cnp, cnp, &[]) }
    };

    /// Returns whether all of these flags are set.
    #[inline]
    pub const fn has(&self, flags: OpcodeFlags) -> bool {
        self.flags.contains(flags)
    }

    /// Returns whether the packet goes from requester to responder. A CNP is neither request nor response.
    #[inline]
    pub const fn is_request(&self) -> bool {
        self.has(OpcodeFlags::REQUEST)
    }

    /// Returns the length in bytes of the BTH and the extension headers.
    #[inline]
    pub const fn header_len(&self) -> usize {
        self.layout.payload as usize
    }
}

/// Generates [`Opcode`] and its methods from the table below.
macro_rules! opcodes {
    ($($transport:ident $prefix:literal {$(
        $byte:literal $opcode:ident $name:literal $operation:ident $position:ident
        [$($header:ident)*],
    )*})*) => {
        /// Opcode: the first byte of the BTH.
        ///
        /// Unassigned bytes have no variant.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Opcode {$($(
            #[doc = concat!("`", $prefix, " ", $name, "`")]
            $opcode = $byte,
        )*)*}

        impl Opcode {
            /// Every opcode, in ascending order.
            pub const ALL: &'static [Self] = &[$($(Self::$opcode,)*)*];

            /// Returns the name without the transport, for example `WRITE_LAST_IMM`.
            pub const fn name(self) -> &'static str {
                match self {
                    $($(Self::$opcode => $name,)*)*
                }
            }
        }

        /// Properties by opcode byte.
        static OPCODES: [OpcodeInfo; 256] = {
            let mut infos = [OpcodeInfo::UNASSIGNED; 256];
            $($(infos[$byte] = OpcodeInfo::new(
                Opcode::$opcode,
                (Transport::$transport, Operation::$operation, Position::$position),
                &[$(Header::$header),*],
            );)*)*
            infos
        };
    };
}

/// Place of an opcode in [`BY_PARTS`].
const fn part_index(
    transport: Transport,
    operation: Operation,
    position: Position,
    suffix: Suffix,
) -> usize {
    let message = transport as usize * (Operation::Cnp as usize + 1) + operation as usize;
    let packet = message * (Position::Only as usize + 1) + position as usize;
    packet * (Suffix::Inv as usize + 1) + suffix as usize
}

/// By transport, operation, position and suffix.
static BY_PARTS: [Option<Opcode>;
    part_index(Transport::Xrc, Operation::Cnp, Position::Only, Suffix::Inv) + 1] = {
    let mut table = [None; _];
    let mut i = 0;
    while i < Opcode::ALL.len() {
        let OpcodeInfo { opcode, transport, operation, position, suffix, .. } =
            *Opcode::ALL[i].info();
        table[part_index(transport, operation, position, suffix)] = Some(opcode);
        i += 1;
    }
    table
};

impl Opcode {
    /// Returns the opcode with this byte, or `None` when the byte is not assigned.
    #[inline]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        let info = &OPCODES[byte as usize];
        if info.has(OpcodeFlags::ASSIGNED) { Some(info.opcode) } else { None }
    }

    /// Returns all properties of the opcode.
    #[inline]
    pub const fn info(self) -> &'static OpcodeInfo {
        &OPCODES[self as usize]
    }

    /// Returns the transport service.
    pub const fn transport(self) -> Transport {
        self.info().transport
    }

    /// Returns the operation.
    pub const fn operation(self) -> Operation {
        self.info().operation
    }

    /// Returns the position in the message.
    pub const fn position(self) -> Position {
        self.info().position
    }

    /// Returns the byte on the wire.
    pub const fn byte(self) -> u8 {
        self as u8
    }

    /// Returns the opcode with this transport, operation, position and suffix: the inverse of [`info`](Self::info).
    /// `None` if none is assigned.
    #[inline]
    pub const fn find(
        transport: Transport,
        operation: Operation,
        position: Position,
        suffix: Suffix,
    ) -> Option<Self> {
        BY_PARTS[part_index(transport, operation, position, suffix)]
    }

    /// Returns whether the packet goes from requester to responder. A CNP is neither request nor response.
    pub const fn is_request(self) -> bool {
        self.info().is_request()
    }

    /// Returns whether the packet has immediate data.
    pub const fn has_imm(self) -> bool {
        self.info().has(OpcodeFlags::IMM)
    }

    /// Returns whether the packet has a key to invalidate.
    pub const fn has_invalidate(self) -> bool {
        self.info().has(OpcodeFlags::INVALIDATE)
    }

    /// Returns the offsets of the extension headers and the payload.
    pub const fn layout(self) -> &'static Layout {
        &self.info().layout
    }

    /// Returns the length in bytes of the BTH and the extension headers.
    pub const fn header_len(self) -> usize {
        self.info().header_len()
    }
}

impl fmt::Display for Opcode {
    /// Formats transport and name, for example `RC SEND_ONLY`; for a congestion notification, only `CNP`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transport() {
            Transport::Cnp => f.write_str(self.name()),
            transport => write!(f, "{transport} {}", self.name()),
        }
    }
}

// Byte, variant, name, operation, position, extension headers in wire order. The bytes of UC, RD, UD and XRC are
// those of RC plus 0x20, 0x40, 0x60 and 0xa0.
opcodes! {
    Rc "RC" {
        0x00 RcSendFirst          "SEND_FIRST"           Send              First  [],
        0x01 RcSendMiddle         "SEND_MIDDLE"          Send              Middle [],
        0x02 RcSendLast           "SEND_LAST"            Send              Last   [],
        0x03 RcSendLastImm        "SEND_LAST_IMM"        Send              Last   [Imm],
        0x04 RcSendOnly           "SEND_ONLY"            Send              Only   [],
        0x05 RcSendOnlyImm        "SEND_ONLY_IMM"        Send              Only   [Imm],
        0x06 RcWriteFirst         "WRITE_FIRST"          Write             First  [Reth],
        0x07 RcWriteMiddle        "WRITE_MIDDLE"         Write             Middle [],
        0x08 RcWriteLast          "WRITE_LAST"           Write             Last   [],
        0x09 RcWriteLastImm       "WRITE_LAST_IMM"       Write             Last   [Imm],
        0x0a RcWriteOnly          "WRITE_ONLY"           Write             Only   [Reth],
        0x0b RcWriteOnlyImm       "WRITE_ONLY_IMM"       Write             Only   [Reth Imm],
        0x0c RcReadRequest        "READ_REQUEST"         ReadRequest       Only   [Reth],
        0x0d RcReadResponseFirst  "READ_RESPONSE_FIRST"  ReadResponse      First  [Aeth],
        0x0e RcReadResponseMiddle "READ_RESPONSE_MIDDLE" ReadResponse      Middle [],
        0x0f RcReadResponseLast   "READ_RESPONSE_LAST"   ReadResponse      Last   [Aeth],
        0x10 RcReadResponseOnly   "READ_RESPONSE_ONLY"   ReadResponse      Only   [Aeth],
        0x11 RcAcknowledge        "ACKNOWLEDGE"          Acknowledge       Only   [Aeth],
        0x12 RcAtomicAcknowledge  "ATOMIC_ACKNOWLEDGE"   AtomicAcknowledge Only   [Aeth AtomicAck],
        0x13 RcCompareSwap        "COMPARE_SWAP"         CompareSwap       Only   [Atomic],
        0x14 RcFetchAdd           "FETCH_ADD"            FetchAdd          Only   [Atomic],
        0x16 RcSendLastInv        "SEND_LAST_INV"        Send              Last   [Ieth],
        0x17 RcSendOnlyInv        "SEND_ONLY_INV"        Send              Only   [Ieth],
        0x1c RcFlush              "FLUSH"                Flush             Only   [Feth Reth],
        0x1d RcAtomicWrite        "ATOMIC_WRITE"         AtomicWrite       Only   [Reth],
    }
    Uc "UC" {
        0x20 UcSendFirst          "SEND_FIRST"           Send              First  [],
        0x21 UcSendMiddle         "SEND_MIDDLE"          Send              Middle [],
        0x22 UcSendLast           "SEND_LAST"            Send              Last   [],
        0x23 UcSendLastImm        "SEND_LAST_IMM"        Send              Last   [Imm],
        0x24 UcSendOnly           "SEND_ONLY"            Send              Only   [],
        0x25 UcSendOnlyImm        "SEND_ONLY_IMM"        Send              Only   [Imm],
        0x26 UcWriteFirst         "WRITE_FIRST"          Write             First  [Reth],
        0x27 UcWriteMiddle        "WRITE_MIDDLE"         Write             Middle [],
        0x28 UcWriteLast          "WRITE_LAST"           Write             Last   [],
        0x29 UcWriteLastImm       "WRITE_LAST_IMM"       Write             Last   [Imm],
        0x2a UcWriteOnly          "WRITE_ONLY"           Write             Only   [Reth],
        0x2b UcWriteOnlyImm       "WRITE_ONLY_IMM"       Write             Only   [Reth Imm],
    }
    Rd "RD" {
        0x40 RdSendFirst          "SEND_FIRST"           Send              First  [Rdeth Deth],
        0x41 RdSendMiddle         "SEND_MIDDLE"          Send              Middle [Rdeth Deth],
        0x42 RdSendLast           "SEND_LAST"            Send              Last   [Rdeth Deth],
        0x43 RdSendLastImm        "SEND_LAST_IMM"        Send              Last   [Rdeth Deth Imm],
        0x44 RdSendOnly           "SEND_ONLY"            Send              Only   [Rdeth Deth],
        0x45 RdSendOnlyImm        "SEND_ONLY_IMM"        Send              Only   [Rdeth Deth Imm],
        0x46 RdWriteFirst         "WRITE_FIRST"          Write             First  [Rdeth Deth Reth],
        0x47 RdWriteMiddle        "WRITE_MIDDLE"         Write             Middle [Rdeth Deth],
        0x48 RdWriteLast          "WRITE_LAST"           Write             Last   [Rdeth Deth],
        0x49 RdWriteLastImm       "WRITE_LAST_IMM"       Write             Last   [Rdeth Deth Imm],
        0x4a RdWriteOnly          "WRITE_ONLY"           Write             Only   [Rdeth Deth Reth],
        0x4b RdWriteOnlyImm       "WRITE_ONLY_IMM"       Write             Only   [Rdeth Deth Reth Imm],
        0x4c RdReadRequest        "READ_REQUEST"         ReadRequest       Only   [Rdeth Deth Reth],
        0x4d RdReadResponseFirst  "READ_RESPONSE_FIRST"  ReadResponse      First  [Rdeth Aeth],
        0x4e RdReadResponseMiddle "READ_RESPONSE_MIDDLE" ReadResponse      Middle [Rdeth],
        0x4f RdReadResponseLast   "READ_RESPONSE_LAST"   ReadResponse      Last   [Rdeth Aeth],
        0x50 RdReadResponseOnly   "READ_RESPONSE_ONLY"   ReadResponse      Only   [Rdeth Aeth],
        0x51 RdAcknowledge        "ACKNOWLEDGE"          Acknowledge       Only   [Rdeth Aeth],
        0x52 RdAtomicAcknowledge  "ATOMIC_ACKNOWLEDGE"   AtomicAcknowledge Only   [Rdeth Aeth AtomicAck],
        0x53 RdCompareSwap        "COMPARE_SWAP"         CompareSwap       Only   [Rdeth Deth Atomic],
        0x54 RdFetchAdd           "FETCH_ADD"            FetchAdd          Only   [Rdeth Deth Atomic],
        0x55 RdResync             "RESYNC"               Resync            Only   [Rdeth Deth],
        0x5c RdFlush              "FLUSH"                Flush             Only   [Rdeth Deth Feth Reth],
    }
    Ud "UD" {
        0x64 UdSendOnly           "SEND_ONLY"            Send              Only   [Deth],
        0x65 UdSendOnlyImm        "SEND_ONLY_IMM"        Send              Only   [Deth Imm],
    }
    Cnp "CNP" {
        0x81 Cnp                  "CNP"                  Cnp               Only   [Cnp],
    }
    Xrc "XRC" {
        0xa0 XrcSendFirst          "SEND_FIRST"           Send              First  [Xrceth],
        0xa1 XrcSendMiddle         "SEND_MIDDLE"          Send              Middle [Xrceth],
        0xa2 XrcSendLast           "SEND_LAST"            Send              Last   [Xrceth],
        0xa3 XrcSendLastImm        "SEND_LAST_IMM"        Send              Last   [Xrceth Imm],
        0xa4 XrcSendOnly           "SEND_ONLY"            Send              Only   [Xrceth],
        0xa5 XrcSendOnlyImm        "SEND_ONLY_IMM"        Send              Only   [Xrceth Imm],
        0xa6 XrcWriteFirst         "WRITE_FIRST"          Write             First  [Xrceth Reth],
        0xa7 XrcWriteMiddle        "WRITE_MIDDLE"         Write             Middle [Xrceth],
        0xa8 XrcWriteLast          "WRITE_LAST"           Write             Last   [Xrceth],
        0xa9 XrcWriteLastImm       "WRITE_LAST_IMM"       Write             Last   [Xrceth Imm],
        0xaa XrcWriteOnly          "WRITE_ONLY"           Write             Only   [Xrceth Reth],
        0xab XrcWriteOnlyImm       "WRITE_ONLY_IMM"       Write             Only   [Xrceth Reth Imm],
        0xac XrcReadRequest        "READ_REQUEST"         ReadRequest       Only   [Xrceth Reth],
        0xad XrcReadResponseFirst  "READ_RESPONSE_FIRST"  ReadResponse      First  [Aeth],
        0xae XrcReadResponseMiddle "READ_RESPONSE_MIDDLE" ReadResponse      Middle [],
        0xaf XrcReadResponseLast   "READ_RESPONSE_LAST"   ReadResponse      Last   [Aeth],
        0xb0 XrcReadResponseOnly   "READ_RESPONSE_ONLY"   ReadResponse      Only   [Aeth],
        0xb1 XrcAcknowledge        "ACKNOWLEDGE"          Acknowledge       Only   [Aeth],
        0xb2 XrcAtomicAcknowledge  "ATOMIC_ACKNOWLEDGE"   AtomicAcknowledge Only   [Aeth AtomicAck],
        0xb3 XrcCompareSwap        "COMPARE_SWAP"         CompareSwap       Only   [Xrceth Atomic],
        0xb4 XrcFetchAdd           "FETCH_ADD"            FetchAdd          Only   [Xrceth Atomic],
        0xb6 XrcSendLastInv        "SEND_LAST_INV"        Send              Last   [Xrceth Ieth],
        0xb7 XrcSendOnlyInv        "SEND_ONLY_INV"        Send              Only   [Xrceth Ieth],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each header follows those before it, and the payload follows the last.
    #[test]
    fn layout_contains_the_offset_of_each_header() {
        for opcode in Opcode::ALL {
            let headers = opcode.layout().headers;
            let layout = Layout::new(headers);
            assert_eq!(layout, *opcode.layout(), "the compiler has come to the same");
            let mut at = Bth::LEN;
            for header in headers {
                let place = match header {
                    Header::Rdeth => layout.rdeth,
                    Header::Deth => layout.deth,
                    Header::Xrceth => layout.xrceth,
                    Header::Feth => layout.feth,
                    Header::Reth => layout.reth,
                    Header::Atomic => layout.atomic_eth,
                    Header::Aeth => layout.aeth,
                    Header::AtomicAck => layout.atomic_ack_eth,
                    Header::Imm => layout.imm,
                    Header::Ieth => layout.ieth,
                    Header::Cnp => layout.cnp,
                };
                assert_eq!(place.map(usize::from), Some(at), "{header:?} of {opcode}");
                at += header.len();
            }
            assert_eq!(opcode.header_len(), at, "{opcode}");
        }
    }

    #[test]
    fn bytes_and_opcodes_map_one_to_one() {
        let assigned: Vec<_> = (0..=255).filter_map(Opcode::from_byte).collect();
        assert_eq!(assigned, Opcode::ALL);
        for &opcode in Opcode::ALL {
            assert_eq!(Opcode::from_byte(opcode.byte()), Some(opcode));
        }
        assert_eq!(Opcode::ALL.len(), 25 + 12 + 23 + 2 + 1 + 23);
    }

    #[test]
    fn upper_three_bits_select_the_transport() {
        for opcode in Opcode::ALL {
            let expected = match opcode.byte() >> 5 {
                0 => Transport::Rc,
                1 => Transport::Uc,
                2 => Transport::Rd,
                3 => Transport::Ud,
                4 => Transport::Cnp,
                _ => Transport::Xrc,
            };
            assert_eq!(opcode.transport(), expected, "{opcode}");
        }
    }

    #[test]
    fn transports_differ_from_rc_by_their_first_headers() {
        for opcode in Opcode::ALL.iter().filter(|o| o.transport() != Transport::Cnp) {
            let Some(rc) = Opcode::from_byte(opcode.byte() & 0x1f) else {
                assert_eq!(*opcode, Opcode::RdResync);
                continue;
            };
            let same = |f: fn(Opcode) -> &'static str| assert_eq!(f(*opcode), f(rc), "{opcode}");
            same(Opcode::name);
            assert_eq!(opcode.operation(), rc.operation(), "{opcode}");
            assert_eq!(opcode.position(), rc.position(), "{opcode}");
            let front: &[Header] = match (opcode.transport(), opcode.is_request()) {
                (Transport::Rd, true) => &[Header::Rdeth, Header::Deth],
                (Transport::Rd, false) => &[Header::Rdeth],
                (Transport::Ud, _) => &[Header::Deth],
                (Transport::Xrc, true) => &[Header::Xrceth],
                _ => &[],
            };
            assert_eq!(opcode.layout().headers, [front, rc.layout().headers].concat(), "{opcode}");
        }
    }

    /// Each opcode is found by its parts, and no other combination of parts has one.
    #[test]
    fn opcodes_and_their_parts_map_one_to_one() {
        use Operation as O;
        use Position as P;
        use Transport as T;
        let operations = [
            (O::Send, "SEND"),
            (O::Write, "WRITE"),
            (O::ReadRequest, "READ_REQUEST"),
            (O::ReadResponse, "READ_RESPONSE"),
            (O::Acknowledge, "ACKNOWLEDGE"),
            (O::AtomicAcknowledge, "ATOMIC_ACKNOWLEDGE"),
            (O::CompareSwap, "COMPARE_SWAP"),
            (O::FetchAdd, "FETCH_ADD"),
            (O::Resync, "RESYNC"),
            (O::Flush, "FLUSH"),
            (O::AtomicWrite, "ATOMIC_WRITE"),
            (O::Cnp, "CNP"),
        ];
        let positions =
            [(P::First, "_FIRST"), (P::Middle, "_MIDDLE"), (P::Last, "_LAST"), (P::Only, "_ONLY")];
        let suffixes = [(Suffix::None, ""), (Suffix::Imm, "_IMM"), (Suffix::Inv, "_INV")];
        let mut found = Vec::new();
        for transport in [T::Rc, T::Uc, T::Rd, T::Ud, T::Cnp, T::Xrc] {
            for (operation, stem) in operations {
                for (position, place) in positions {
                    for (suffix, end) in suffixes {
                        let name = format!("{stem}{place}{end}");
                        let opcode = Opcode::find(transport, operation, position, suffix);
                        let named = Opcode::ALL.iter().copied().find(|opcode| {
                            let is_only = position == P::Only && opcode.name() == stem;
                            opcode.transport() == transport
                                && (opcode.name() == name || is_only && suffix == Suffix::None)
                        });
                        assert_eq!(opcode, named, "{transport} {name}");
                        found.extend(opcode);
                    }
                }
            }
        }
        found.sort_by_key(|opcode| opcode.byte());
        assert_eq!(found, Opcode::ALL);
    }

    #[test]
    fn names_match_operation_position_and_headers() {
        for opcode in Opcode::ALL {
            let name = opcode.name();
            let has = |part: &str| name.split('_').any(|p| p == part);
            assert_eq!(opcode.has_imm(), has("IMM"), "{opcode}");
            assert_eq!(opcode.has_invalidate(), has("INV"), "{opcode}");
            assert_eq!(opcode.position() == Position::First, has("FIRST"), "{opcode}");
            assert_eq!(opcode.position() == Position::Middle, has("MIDDLE"), "{opcode}");
            assert_eq!(opcode.position() == Position::Last, has("LAST"), "{opcode}");
            assert_eq!(opcode.operation() == Operation::Send, has("SEND"), "{opcode}");
        }
    }

    #[test]
    fn flags_match_the_name() {
        use OpcodeFlags as F;
        for opcode in Opcode::ALL {
            let (info, name) = (opcode.info(), opcode.name());
            let has = |part: &str| name.split('_').any(|p| p == part);
            let is_write = has("WRITE") && !has("ATOMIC");
            let is_answer = has("RESPONSE") || has("ACKNOWLEDGE") || has("CNP");
            let expected = [
                (F::REQUEST, !is_answer),
                (F::START, !has("MIDDLE") && !has("LAST")),
                (F::END, !has("FIRST") && !has("MIDDLE")),
                (F::MIDDLE, has("MIDDLE")),
                (F::MESSAGE, has("SEND") || is_write),
                (F::WRITE, is_write),
                (F::IMM, has("IMM")),
                (F::INVALIDATE, has("INV")),
                (F::RETH, info.layout.headers.contains(&Header::Reth)),
            ];
            for (flag, is_set) in expected {
                assert_eq!(info.has(flag), is_set, "{flag:?} of {opcode}");
            }
            assert_eq!(info.opcode, *opcode);
            assert_eq!(info.header_len(), usize::from(info.layout.payload));
        }
        let repeats = |o: &&Opcode| o.info().has(F::REPEATS) && !o.info().has(F::MIDDLE);
        let messages: Vec<_> = Opcode::ALL.iter().filter(repeats).copied().collect();
        assert_eq!(messages, [Opcode::RcSendOnly, Opcode::RcSendOnlyImm, Opcode::RcWriteOnly]);
    }

    /// PKT-19, PKT-20
    #[test]
    fn reth_is_before_immediate_data_and_after_feth() {
        let layout = Opcode::RcWriteOnlyImm.layout();
        assert_eq!((layout.reth, layout.imm, layout.payload), (Some(12), Some(28), 32));
        let layout = Opcode::RcFlush.layout();
        assert_eq!((layout.feth, layout.reth, layout.payload), (Some(12), Some(16), 32));
        let layout = Opcode::UdSendOnlyImm.layout();
        assert_eq!((layout.deth, layout.imm, layout.payload), (Some(12), Some(20), 24));
    }

    #[test]
    fn display_has_transport_and_name() {
        assert_eq!(Opcode::RcSendOnly.to_string(), "RC SEND_ONLY");
        assert_eq!(Opcode::XrcWriteLastImm.to_string(), "XRC WRITE_LAST_IMM");
        assert_eq!(Opcode::Cnp.to_string(), "CNP");
    }
}
