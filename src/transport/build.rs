//! Building of packets in bursts.

use crate::ids::{PKey, Qpn, Srqn};
use crate::mem::Revoked;
use crate::net::Burst;
use crate::psn::Psn;
use crate::transport::connection::Connection;
use crate::transport::window::WindowId;
use crate::wire::icrc::{self, Flow};
use crate::wire::packet::{Builder, ICRC_LEN, datagram_len, padding};
use crate::wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, FlushEth, Ieth, ImmDt, Opcode, Reth, XrcEth,
};

/// Outcome of filling a burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// Nothing can be sent now.
    Idle,
    /// More can be sent, in the next burst.
    More,
    /// The window has no room; sending continues when it has this many bytes.
    Blocked(WindowId, u64),
}

/// Length in bytes from which a message that is sent alone begins with shorter bursts.
const LONG_MESSAGE: u32 = 48 << 10;

/// Number of bytes of such a message after which a burst may have any length.
const BEGINNING: u32 = 32 << 10;

/// Maximum length in bytes of a burst before: the same number of payload bytes, and headers.
const MAX_FIRST_BURST: usize = 33 << 10;

/// Whether a message of `length` bytes begins with shorter bursts, if nothing else is in flight. The peer processes a short
/// first burst while this side builds the next one, so that a message of 64 KiB arrives earlier.
pub(crate) const fn is_long(length: u32) -> bool {
    length >= LONG_MESSAGE
}

/// Limits the next burst of a [long](is_long) message, of which `sent` bytes were sent.
#[cold]
pub(crate) fn limit_first_bursts(out: &mut Burst, sent: u32) {
    if sent < BEGINNING {
        out.shorten(MAX_FIRST_BURST);
    }
}

/// Headers of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) opcode: Opcode,
    pub(crate) psn: Psn,
    pub(crate) ack_req: bool,
    pub(crate) solicited: bool,
    /// Shared receive queue number of an XRC request.
    pub(crate) srqn: Option<Srqn>,
    pub(crate) extension: Extension,
}

/// The extension headers after the BTH.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extension {
    None,
    Imm(ImmDt),
    Inv(Ieth),
    Reth(Reth),
    Flush(FlushEth, Reth, Coverage),
    RethImm(Reth, ImmDt),
    Atomic(AtomicEth),
    Aeth(Aeth),
    AtomicAck(Aeth, AtomicAckEth),
    Deth(Deth),
    DethImm(Deth, ImmDt),
}

/// Number of times that the ICRC covers the headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Coverage {
    Once,
    /// The format that kernel rxe expects for a FLUSH.
    Twice,
}

/// Destination of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct To<'a> {
    pub(crate) flow: &'a Flow,
    pub(crate) dest_qp: Qpn,
    pub(crate) pkey: PKey,
}

impl<'a> From<&'a Connection> for To<'a> {
    fn from(connection: &'a Connection) -> Self {
        let Connection { flows, dest_qpn, pkey, .. } = connection;
        Self { flow: &flows.to_peer, dest_qp: *dest_qpn, pkey: *pkey }
    }
}

/// Appends a packet to a burst that has room for it. `fill` writes the payload; if it fails, the
/// burst is unchanged.
pub(crate) fn push<'a>(
    out: &mut Burst,
    to: impl Into<To<'a>>,
    header: &Header,
    payload: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<(), Revoked>,
) -> Result<(), Revoked> {
    let to = to.into();
    let len = datagram_len(header.opcode, payload);
    let id = u16::try_from(out.len()).unwrap_or(u16::MAX);
    let bth = Bth {
        opcode: header.opcode,
        solicited: header.solicited,
        migreq: true,
        pad: u8::try_from(padding(payload)).unwrap_or_default(),
        tver: 0,
        pkey: to.pkey,
        fecn: false,
        becn: false,
        dest_qp: to.dest_qp,
        ack_req: header.ack_req,
        psn: header.psn,
    };
    let omits_icrc = out.omits_icrcs();
    let datagram = out.push(len);
    let written = match Builder::new(&bth, datagram) {
        Ok(mut builder) => {
            if let Some(srqn) = header.srqn {
                builder.xrceth(&XrcEth { srqn: srqn.value() });
            }
            header.extension.write(&mut builder);
            fill(builder.payload_mut())
        }
        Err(_) => Err(Revoked),
    };
    match (written, &header.extension) {
        (Ok(()), _) if omits_icrc => icrc::omit(datagram),
        (Ok(()), Extension::Flush(.., Coverage::Twice)) => to.flow.set_rxe_flush_icrc(id, datagram),
        (Ok(()), _) => to.flow.seal(id, datagram),
        (Err(_), _) => out.unpush(len),
    }
    written
}

/// Maximum header length of a packet that [`repeat`] copies: a WRITE over XRC.
const MOST_HEADERS: usize = Bth::LEN + XrcEth::LEN + Reth::LEN;

/// Appends up to `count` packets that copy the length and the headers of the last one, with PSNs
/// from `psn` on. The burst must have room for them, and the last packet must have no padding. For
/// each packet, `fill` receives its index, its extension headers, which it may change, and its
/// payload, which it must write. Returns the number of packets; it stops at the first one for which
/// `fill` fails.
pub(crate) fn repeat<'a>(
    out: &mut Burst,
    to: impl Into<To<'a>>,
    opcode: Opcode,
    psn: Psn,
    count: u32,
    mut fill: impl FnMut(u32, &mut [u8], &mut [u8]) -> bool,
) -> u32 {
    let (to, len, headers) = (to.into(), out.segment_len(), opcode.header_len());
    let omits_icrcs = out.omits_icrcs();
    let mut like = [0; MOST_HEADERS];
    let known = out.last().split_at_checked(headers).zip(like.split_at_mut_checked(headers));
    let Some(((before, _), (like, _))) = known else { return 0 };
    like.copy_from_slice(before);
    let Some(series) = to.flow.incremental(out.last()) else { return 0 };
    for index in 0..count {
        let id = u16::try_from(out.len()).unwrap_or(u16::MAX);
        if let Some(bth) = like.first_chunk_mut() {
            Bth::write_psn(bth, psn.plus(index));
        }
        let datagram = out.push(len);
        let (head, rest) = datagram.split_at_mut(headers);
        head.copy_from_slice(like);
        let payload = rest.len() - ICRC_LEN;
        if !fill(index, &mut head[Bth::LEN..], &mut rest[..payload]) {
            out.unpush(len);
            return index;
        }
        if omits_icrcs {
            icrc::omit(datagram);
        } else {
            series.seal(id, datagram);
        }
    }
    count
}

impl Extension {
    fn write(self, builder: &mut Builder<'_>) {
        match self {
            Self::None => builder,
            Self::Imm(imm) => builder.imm(&imm),
            Self::Inv(key) => builder.ieth(&key),
            Self::Reth(reth) => builder.reth(&reth),
            Self::Flush(feth, reth, _) => builder.feth(&feth).reth(&reth),
            Self::RethImm(reth, imm) => builder.reth(&reth).imm(&imm),
            Self::Atomic(atomic) => builder.atomic_eth(&atomic),
            Self::Aeth(aeth) => builder.aeth(&aeth),
            Self::AtomicAck(aeth, original) => builder.aeth(&aeth).atomic_ack_eth(&original),
            Self::Deth(deth) => builder.deth(&deth),
            Self::DethImm(deth, imm) => builder.deth(&deth).imm(&imm),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::net::{BurstToken, Path, ROCE_PORT};
    use crate::wire::icrc::Verdict;

    #[test]
    fn single_and_repeated_packets_omit_the_icrc_if_the_burst_does() {
        let [source, destination] = [1, 2].map(|n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)));
        let path =
            Path { source, destination, source_port: ROCE_PORT, traffic_class: 0, hop_limit: 64 };
        let flow = Flow::of_path(&path);
        let to = To { flow: &flow, dest_qp: Qpn::new(17), pkey: PKey::DEFAULT };
        let opcode = Opcode::RcSendMiddle;
        let psn = Psn::new(7);
        let header = Header {
            opcode,
            psn,
            ack_req: false,
            solicited: false,
            srqn: None,
            extension: Extension::None,
        };
        for omits_icrcs in [false, true] {
            let mut out = Burst::new().omitting_icrcs(omits_icrcs);
            out.reset(path, BurstToken(0));
            let fill = |payload: &mut [u8]| {
                payload.fill(5);
                Ok(())
            };
            push(&mut out, to, &header, 256, fill).unwrap();
            let repeated = repeat(&mut out, to, opcode, psn.next(), 3, |_, _, payload| {
                payload.fill(6);
                true
            });
            assert_eq!((repeated, out.len()), (3, 4));
            for (index, datagram) in (0..).zip(out.segments()) {
                assert_eq!(icrc::is_omitted(datagram), omits_icrcs);
                let is_good = flow.check(None, index, datagram) == Verdict::Good;
                assert_ne!(is_good, omits_icrcs);
            }
        }
    }
}
