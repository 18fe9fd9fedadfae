//! Whole packets: the UDP payload from the BTH to the ICRC.

use crate::psn::Psn;

use super::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, FlushEth, Ieth, ImmDt, Layout, Opcode, OpcodeInfo,
    ParseError, RdEth, Reth, XrcEth,
};

/// Length in bytes of the ICRC at the end of every datagram.
pub const ICRC_LEN: usize = 4;

/// Returns the number of padding bytes after a payload of `len` bytes, 0 to 3 (IBTA vol 1, §9.2.4).
pub const fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// Returns the length of a datagram with this opcode and a payload of `payload` bytes.
pub const fn datagram_len(opcode: Opcode, payload: usize) -> usize {
    opcode.header_len() + payload + padding(payload) + ICRC_LEN
}

/// A parsed datagram: its BTH, its payload, and access to its extension headers.
///
/// The parser has checked all lengths, but not the ICRC, which covers the IP header: see
/// [`Flow::check`](super::icrc::Flow::check).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// Base transport header.
    pub bth: Bth,
    /// Properties of its opcode.
    pub info: &'static OpcodeInfo,
    /// Payload without padding; only its captured part if a capture has truncated the packet.
    pub payload: &'a [u8],
    /// Length of the payload on the wire, in bytes.
    pub payload_len: usize,
    /// Received ICRC: the last four bytes, little-endian. `None` if a capture has truncated it.
    pub icrc: Option<u32>,
    /// BTH and extension headers.
    headers: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Parses a UDP payload.
    ///
    /// # Errors
    ///
    /// The first of these that applies:
    ///
    /// 1. [`ParseError::Truncated`] in BTH or ICRC: fewer than 16 bytes;
    /// 2. [`ParseError::TransportVersion`];
    /// 3. [`ParseError::UnassignedOpcode`];
    /// 4. [`ParseError::Truncated`]: fewer bytes than the opcode's headers, the padding announced by the BTH, and the
    ///    ICRC.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (head, after) = split::<{ Bth::LEN }>(bytes, "BTH")?;
        let Some((_, icrc)) = after.split_last_chunk::<ICRC_LEN>() else {
            return Err(truncated("ICRC", ICRC_LEN, after.len()));
        };
        let found = Bth::version(head);
        if found != 0 {
            return Err(ParseError::TransportVersion { found });
        }
        let bth = Bth::parse(head)?;
        let info = bth.opcode.info();
        let (headers, payload) = match bounds(&bth, info, bytes.len()) {
            Some((start, end)) => (&bytes[..start], &bytes[start..end]),
            None => return Err(shortfall(&bth, bytes.len())),
        };
        let icrc = Some(u32::from_le_bytes(*icrc));
        Ok(Self { bth, info, payload, payload_len: payload.len(), icrc, headers })
    }

    /// Parses a UDP payload of `len` bytes, of which a capture may have kept only the first ones.
    ///
    /// # Errors
    ///
    /// The errors of [`parse`](Self::parse), and [`ParseError::Truncated`] when a header is truncated. The payload
    /// may be truncated.
    pub fn parse_cut(bytes: &'a [u8], len: usize) -> Result<Self, ParseError> {
        if let Some(whole) = bytes.get(..len) {
            return Self::parse(whole);
        }
        let (head, _) = split::<{ Bth::LEN }>(bytes, "BTH")?;
        let found = Bth::version(head);
        if found != 0 {
            return Err(ParseError::TransportVersion { found });
        }
        let bth = Bth::parse(head)?;
        let info = bth.opcode.info();
        let Some((start, end)) = bounds(&bth, info, len) else {
            return Err(shortfall(&bth, len));
        };
        let Some((headers, payload)) = bytes.split_at_checked(start) else {
            // These bytes contain no ICRC.
            return Err(shortfall(&bth, bytes.len() + ICRC_LEN));
        };
        let payload = &payload[..payload.len().min(end - start)];
        Ok(Self { bth, info, payload, payload_len: end - start, icrc: None, headers })
    }

    /// Returns the datagram `bytes`, which has the same length and the same BTH except for the PSN.
    pub(crate) fn with<'b>(&self, psn: Psn, bytes: &'b [u8]) -> Option<Datagram<'b>> {
        let (headers, rest) = bytes.split_at_checked(self.headers.len())?;
        let (payload, rest) = rest.split_at_checked(self.payload_len)?;
        let icrc = u32::from_le_bytes(*rest.last_chunk()?);
        let bth = Bth { psn, ..self.bth };
        let (info, payload_len) = (self.info, payload.len());
        Some(Datagram { bth, info, payload, payload_len, icrc: Some(icrc), headers })
    }

    /// Returns the bytes of the extension header at `offset`.
    fn header<const N: usize>(&self, offset: Option<u8>) -> Option<&'a [u8; N]> {
        self.headers.get(usize::from(offset?)..)?.first_chunk()
    }
}

/// A datagram to send, written in place.
///
/// The constructor writes the BTH, zeros for the extension headers, and the padding. The caller writes the extension
/// headers and the payload in any order, and then the ICRC with [`Flow::seal`](super::icrc::Flow::seal). Writing a
/// header that the opcode does not have is an error of the caller: it has no effect, and debug builds panic.
#[derive(Debug)]
pub struct Builder<'a> {
    layout: &'static Layout,
    headers: &'a mut [u8],
    payload: &'a mut [u8],
}

impl<'a> Builder<'a> {
    /// Starts a datagram in `bytes`, which must have the length [`datagram_len`]. The payload is the space between
    /// the headers and the `bth.pad` bytes of padding before the ICRC.
    ///
    /// # Errors
    ///
    /// [`ParseError::Truncated`] when headers, padding and ICRC do not fit; nothing is written.
    pub fn new(bth: &Bth, bytes: &'a mut [u8]) -> Result<Self, ParseError> {
        let len = bytes.len();
        let info = bth.opcode.info();
        let Some((start, end)) = bounds(bth, info, len) else {
            return Err(shortfall(bth, len));
        };
        let (headers, rest) = bytes.split_at_mut(start);
        let (payload, rest) = rest.split_at_mut(end - start);
        let padding = &mut rest[..usize::from(bth.pad & 3)];
        let Some((head, extensions)) = headers.split_first_chunk_mut() else {
            return Err(truncated("BTH", Bth::LEN, len));
        };
        bth.write(head);
        // Most datagrams have neither, and an empty `fill` would be a call.
        for zeros in [padding, extensions] {
            if !zeros.is_empty() {
                zeros.fill(0);
            }
        }
        Ok(Self { layout: &info.layout, headers, payload })
    }

    /// Returns the payload. The caller must overwrite every byte: it contains earlier data.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.payload
    }

    /// Returns the bytes of the extension header at `offset`.
    fn header<const N: usize>(&mut self, offset: Option<u8>) -> Option<&mut [u8; N]> {
        debug_assert!(offset.is_some(), "the opcode has no such header");
        self.headers.get_mut(usize::from(offset?)..)?.first_chunk_mut()
    }
}

/// Generates the getters of [`Datagram`] and the setters of [`Builder`].
macro_rules! extensions {
    ($($(#[$doc:meta])* $name:ident: $header:ident,)*) => {
        impl Datagram<'_> {$(
            $(#[$doc])*
            ///
            /// `None` when the opcode has no such header.
            pub fn $name(&self) -> Option<$header> {
                self.header(self.info.layout.$name).map($header::parse)
            }
        )*}

        impl Builder<'_> {$(
            $(#[$doc])*
            pub fn $name(&mut self, header: &$header) -> &mut Self {
                if let Some(bytes) = self.header(self.layout.$name) {
                    header.write(bytes);
                }
                self
            }
        )*}
    };
}

extensions! {
    /// Memory of the responder for a WRITE, READ, FLUSH or ATOMIC WRITE.
    reth: Reth,
    /// Acknowledgement in a response.
    aeth: Aeth,
    /// Operands of an atomic.
    atomic_eth: AtomicEth,
    /// Original value in the response to an atomic.
    atomic_ack_eth: AtomicAckEth,
    /// Source queue pair and queue key of a UD or RD request.
    deth: Deth,
    /// Immediate data.
    imm: ImmDt,
    /// Key to invalidate.
    ieth: Ieth,
    /// Shared receive queue of an XRC request.
    xrceth: XrcEth,
    /// Placement type and selectivity level of a FLUSH.
    feth: FlushEth,
    /// End-to-end context of an RD packet.
    rdeth: RdEth,
}

/// Returns start and end of the payload in a datagram of `len` bytes, or `None` when headers, padding and ICRC exceed
/// it.
fn bounds(bth: &Bth, info: &OpcodeInfo, len: usize) -> Option<(usize, usize)> {
    let start = info.header_len();
    let end = len.checked_sub(usize::from(bth.pad & 3) + ICRC_LEN)?;
    (start <= end).then_some((start, end))
}

/// Returns the error for a datagram of `len` bytes that is too short for its headers. The last four bytes count as
/// the ICRC, and the error names the first part that lacks bytes before them.
#[cold]
fn shortfall(bth: &Bth, len: usize) -> ParseError {
    let Some(mut have) = len.checked_sub(ICRC_LEN) else {
        return truncated("ICRC", ICRC_LEN, len);
    };
    let headers = bth.opcode.layout().headers.iter().map(|header| (header.name(), header.len()));
    for (part, need) in [("BTH", Bth::LEN)].into_iter().chain(headers) {
        if have < need {
            return truncated(part, need, have);
        }
        have -= need;
    }
    truncated("padding", usize::from(bth.pad & 3), have)
}

/// Returns the error for a truncated part.
pub(super) const fn truncated(part: &'static str, need: usize, have: usize) -> ParseError {
    ParseError::Truncated { part, need, have }
}

/// Returns the first `N` bytes and the rest.
///
/// # Errors
///
/// [`ParseError::Truncated`] for `part`.
pub(super) fn split<'a, const N: usize>(
    bytes: &'a [u8],
    part: &'static str,
) -> Result<(&'a [u8; N], &'a [u8]), ParseError> {
    bytes.split_first_chunk().ok_or(truncated(part, N, bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Rkey;

    fn bth(opcode: Opcode, payload: usize) -> Bth {
        let pad = u8::try_from(padding(payload)).unwrap();
        Bth { opcode, pad, ..Bth::default() }
    }

    #[test]
    fn truncated_packet_keeps_its_headers_and_payload_length() {
        let bth = Bth { opcode: Opcode::RcWriteOnly, pad: 3, ..Bth::default() };
        let mut bytes = vec![0xaa; datagram_len(bth.opcode, 5)];
        let len = bytes.len();
        let reth = Reth { addr: 1, length: 5, ..Reth::default() };
        Builder::new(&bth, &mut bytes).unwrap().reth(&reth);
        let cut = |have: usize| Datagram::parse_cut(&bytes[..have], len);
        assert_eq!(cut(len), Datagram::parse(&bytes));
        for have in 28..len {
            let datagram = cut(have).unwrap();
            assert_eq!((datagram.bth, datagram.reth()), (bth, Some(reth)));
            assert_eq!((datagram.payload.len(), datagram.payload_len), ((have - 28).min(5), 5));
            assert_eq!(datagram.icrc, None);
        }
        let error = |have| cut(have).unwrap_err().to_string();
        assert_eq!(error(27), "truncated in RETH: need 16 bytes, have 15");
        assert_eq!(error(11), "truncated in BTH: need 12 bytes, have 11");
        // The packet was too short before it was truncated.
        let short = Datagram::parse_cut(&bytes[..29], 31).unwrap_err().to_string();
        assert_eq!(short, "truncated in RETH: need 16 bytes, have 15");
    }

    #[test]
    fn padding_completes_four_bytes() {
        let pads: Vec<_> = (0..9).map(padding).collect();
        assert_eq!(pads, [0, 3, 2, 1, 0, 3, 2, 1, 0]);
    }

    #[test]
    fn built_packet_parses_to_the_same_fields() {
        let bth = bth(Opcode::RcWriteOnlyImm, 3);
        let reth = Reth { addr: 0x1000, rkey: Rkey(0x100), length: 3 };
        let mut bytes = vec![0xaa; datagram_len(bth.opcode, 3)];
        let mut builder = Builder::new(&bth, &mut bytes).unwrap();
        builder.imm(&ImmDt(7)).reth(&reth).payload_mut().copy_from_slice(b"abc");
        assert_eq!(bytes.len(), 12 + 16 + 4 + 3 + 1 + 4);
        assert_eq!(bytes[35], 0, "padding is zero");

        let datagram = Datagram::parse(&bytes).unwrap();
        assert_eq!((datagram.bth, datagram.payload), (bth, &b"abc"[..]));
        assert_eq!((datagram.reth(), datagram.imm()), (Some(reth), Some(ImmDt(7))));
        assert_eq!((datagram.aeth(), datagram.deth()), (None, None));
        assert_eq!(datagram.icrc, Some(0xaaaa_aaaa));
    }

    #[test]
    fn truncation_error_names_the_part() {
        let bth = bth(Opcode::RcWriteOnlyImm, 1);
        let mut whole = vec![0; datagram_len(bth.opcode, 1)];
        Builder::new(&bth, &mut whole).unwrap();
        let error = |len: usize| Datagram::parse(&whole[..len]).unwrap_err().to_string();
        assert_eq!(error(0), "truncated in BTH: need 12 bytes, have 0");
        assert_eq!(error(11), "truncated in BTH: need 12 bytes, have 11");
        assert_eq!(error(15), "truncated in ICRC: need 4 bytes, have 3");
        assert_eq!(error(12 + 9 + 4), "truncated in RETH: need 16 bytes, have 9");
        assert_eq!(error(12 + 16 + 3 + 4), "truncated in ImmDt: need 4 bytes, have 3");
        assert_eq!(error(12 + 20 + 2 + 4), "truncated in padding: need 3 bytes, have 2");
        assert!(Datagram::parse(&whole[..12 + 20 + 3 + 4]).unwrap().payload.is_empty());
    }

    #[test]
    fn version_is_checked_before_opcode_and_both_before_length() {
        let mut bytes = [0; 16];
        bytes[0] = 0xff;
        bytes[1] = 0x01;
        let error = Datagram::parse(&bytes).unwrap_err();
        assert_eq!(error.to_string(), "transport version 1, expected 0");
        bytes[1] = 0;
        let error = Datagram::parse(&bytes).unwrap_err();
        assert_eq!(error, ParseError::UnassignedOpcode { byte: 0xff });
        bytes[0] = Opcode::RcWriteOnly.byte();
        let error = Datagram::parse(&bytes).unwrap_err();
        assert_eq!(error, truncated("RETH", 16, 0));
    }

    #[test]
    fn builder_refuses_too_few_bytes() {
        let bth = bth(Opcode::RcWriteOnlyImm, 1);
        let mut bytes = [0xaa; 30];
        assert_eq!(Builder::new(&bth, &mut bytes).unwrap_err(), truncated("RETH", 16, 14));
        assert_eq!(bytes, [0xaa; 30]);
        assert_eq!(Builder::new(&bth, &mut []).unwrap_err(), truncated("ICRC", 4, 0));
    }
}
