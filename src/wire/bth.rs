//! The base transport header (BTH): the first twelve bytes of every packet.
//!
//! ```text
//!      ┌───────────────────────────────┬───┬───┬───────┬───────┬───────────────┐
//!   0  │ opcode 8                      │ S │ M │ pad 2 │ TVer 4│ P_Key 16      │
//!      ├───┬───┬───────────────────────┼───┴───┴───────┴───────┴───────────────┤
//!   4  │ F │ B │ reserved 6            │ destination queue pair 24             │
//!      ├───┼───┴───────────────────────┼───────────────────────────────────────┤
//!   8  │ A │ reserved 7                │ packet sequence number 24             │
//!      └───┴───────────────────────────┴───────────────────────────────────────┘
//! ```
//!
//! Numbers are bits, most significant bit first, and multi-byte fields are big-endian.
//!
//! The ICRC covers the header with ones in place of byte 4. Reserved bits are sent as zero and ignored on receipt
//! (IBTA vol 1, §9.2).

use crate::ids::{PKey, Qpn};
use crate::psn::Psn;
use crate::sys::ALIGNED_HEADER;

use super::{Opcode, ParseError};

/// The base transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bth {
    /// Transport, operation, and extension headers of the packet.
    pub opcode: Opcode,
    /// Solicited event bit (SE): the completion at the receiver triggers a channel armed for solicited completions.
    /// It applies to the end of a SEND, and of a WRITE with immediate data.
    pub solicited: bool,
    /// Migration request bit (MigReq): the connection uses the path it has migrated to. Adapters send 1, rxe sends 0,
    /// and receivers ignore it.
    pub migreq: bool,
    /// Number of padding bytes between payload and ICRC, 0 to 3.
    pub pad: u8,
    /// Transport header version, 4 bits, always 0.
    pub tver: u8,
    /// Partition key.
    pub pkey: PKey,
    /// FECN bit: the packet met congestion. RoCEv2 uses the ECN bits of the IP header instead.
    pub fecn: bool,
    /// BECN bit: a packet of the receiver met congestion. Only CNPs set it.
    pub becn: bool,
    /// Destination queue pair.
    pub dest_qp: Qpn,
    /// AckReq bit: the responder must acknowledge. In requests of RC, RD and XRC only.
    pub ack_req: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

/// Buffers are aligned for payloads behind a BTH.
const _: () = assert!(ALIGNED_HEADER == Bth::LEN);

impl Bth {
    /// Length in bytes.
    pub const LEN: usize = 12;

    const SOLICITED: u8 = 0x80;
    const MIGREQ: u8 = 0x40;
    const FECN: u8 = 0x80;
    const BECN: u8 = 0x40;
    const ACK_REQ: u8 = 0x80;

    /// Parses the header, with any transport version: [`Datagram::parse`](super::Datagram::parse) checks the version.
    ///
    /// # Errors
    ///
    /// [`ParseError::UnassignedOpcode`].
    pub const fn parse(bytes: &[u8; Self::LEN]) -> Result<Self, ParseError> {
        let [opcode, flags, pkey0, pkey1, ecn, _, _, _, ack, psn0, psn1, psn2] = *bytes;
        let Some(opcode) = Opcode::from_byte(opcode) else {
            return Err(ParseError::UnassignedOpcode { byte: opcode });
        };
        Ok(Self {
            opcode,
            solicited: flags & Self::SOLICITED != 0,
            migreq: flags & Self::MIGREQ != 0,
            pad: flags >> 4 & 3,
            tver: Self::version(bytes),
            pkey: PKey(u16::from_be_bytes([pkey0, pkey1])),
            fecn: ecn & Self::FECN != 0,
            becn: ecn & Self::BECN != 0,
            dest_qp: Self::destination(bytes),
            ack_req: ack & Self::ACK_REQ != 0,
            psn: Psn::new(u32::from_be_bytes([ack, psn0, psn1, psn2])),
        })
    }

    /// Returns the transport version, which receivers check before the opcode.
    pub const fn version(bytes: &[u8; Self::LEN]) -> u8 {
        bytes[1] & 0x0f
    }

    /// Returns the destination queue pair, by which shards select their packets: the last three bytes of the second word.
    pub const fn destination(bytes: &[u8; Self::LEN]) -> Qpn {
        let [_, _, _, _, ecn, qp0, qp1, qp2, ..] = *bytes;
        Qpn::new(u32::from_be_bytes([ecn, qp0, qp1, qp2]))
    }

    /// Writes the PSN only.
    pub(crate) fn write_psn(bytes: &mut [u8; Self::LEN], psn: Psn) {
        let [_, psn0, psn1, psn2] = psn.value().to_be_bytes();
        [bytes[9], bytes[10], bytes[11]] = [psn0, psn1, psn2];
    }

    /// Writes the header, with the bits of `pad` and `tver` that fit.
    pub const fn write(&self, bytes: &mut [u8; Self::LEN]) {
        let flags = flag(self.solicited, Self::SOLICITED)
            | flag(self.migreq, Self::MIGREQ)
            | (self.pad & 3) << 4
            | self.tver & 0x0f;
        let ecn = flag(self.fecn, Self::FECN) | flag(self.becn, Self::BECN);
        let ack = flag(self.ack_req, Self::ACK_REQ);
        let [pkey0, pkey1] = self.pkey.0.to_be_bytes();
        // Words, because the compiler stores each with one instruction.
        let [opcode, flags, pkey0, pkey1] =
            u32::from_be_bytes([self.opcode.byte(), flags, pkey0, pkey1]).to_be_bytes();
        let [ecn, qp0, qp1, qp2] = ((ecn as u32) << 24 | self.dest_qp.value()).to_be_bytes();
        let [ack, psn0, psn1, psn2] = ((ack as u32) << 24 | self.psn.value()).to_be_bytes();
        *bytes = [opcode, flags, pkey0, pkey1, ecn, qp0, qp1, qp2, ack, psn0, psn1, psn2];
    }
}

impl Default for Bth {
    /// Returns `RC SEND_ONLY` for queue pair 0 with PSN 0 in the default partition. Only MigReq is set, as in packets
    /// of adapters.
    fn default() -> Self {
        Self {
            opcode: Opcode::RcSendOnly,
            solicited: false,
            migreq: true,
            pad: 0,
            tver: 0,
            pkey: PKey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp: Qpn::new(0),
            ack_req: false,
            psn: Psn::new(0),
        }
    }
}

const fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; Bth::LEN] = [0x04, 0xf0, 0xff, 0xff, 0, 0, 0, 0x12, 0x80, 0, 0, 1];

    #[test]
    fn golden() {
        let bth = Bth {
            opcode: Opcode::RcSendOnly,
            solicited: true,
            migreq: true,
            pad: 3,
            tver: 0,
            pkey: PKey(0xffff),
            fecn: false,
            becn: false,
            dest_qp: Qpn::new(0x12),
            ack_req: true,
            psn: Psn::new(1),
        };
        assert_eq!(Bth::parse(&BYTES), Ok(bth));
        let mut bytes = [0xaa; Bth::LEN];
        bth.write(&mut bytes);
        assert_eq!(bytes, BYTES);
    }

    #[test]
    fn reserved_bits_are_ignored_and_sent_as_zero() {
        let mut noisy = BYTES;
        noisy[4] |= 0x3f;
        noisy[8] |= 0x7f;
        let bth = Bth::parse(&noisy).unwrap();
        assert_eq!(Ok(bth), Bth::parse(&BYTES));
        bth.write(&mut noisy);
        assert_eq!(noisy, BYTES);
    }

    #[test]
    fn unassigned_opcode_is_reported() {
        let mut bytes = BYTES;
        bytes[0] = 0xff;
        let error = Bth::parse(&bytes).unwrap_err();
        assert_eq!(error.to_string(), "opcode 0xff is not assigned");
    }
}
