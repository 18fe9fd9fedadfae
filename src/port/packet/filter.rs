//! Filter of a packet socket: it accepts complete UDP datagrams to the RoCEv2 port of one address, to queue pairs of
//! one shard, that an engine may take.
//!
//! If a frame holds several packets, the first decides. A softroce sender fills a burst with packets for one shard, and
//! the kernel merges none, as no UDP socket here has GRO.

use std::net::IpAddr;

use socket2::SockFilter;

use crate::ids::Qpn;
use crate::net::ROCE_PORT;
use crate::port::shared::bpf::{
    AND, DEST_QP_OFFSET, DROP, JUMP_IF_EQUAL, LOAD_BYTE, LOAD_WORD, insn, program, require,
};
use crate::wire::encap::{ETHERNET_LEN, IPV4_LEN, IPV6_LEN, UDP, UDP_LEN};

const LOAD_HALF: u16 = 0x28;

/// Returns the program for datagrams to queue pairs of a shard at `ip`. `None` if an offset or a jump does not fit. The
/// socket is bound to the EtherType.
pub(super) fn to_shard(ip: IpAddr, shard: u8) -> Option<Vec<SockFilter>> {
    let at = |offset: usize| u32::try_from(ETHERNET_LEN + offset).ok();
    let udp = u32::from(UDP);
    let mut steps = Vec::new();
    let header_len = match ip {
        IpAddr::V4(ip) => {
            // No options, no fragment.
            steps.extend(equal(insn(LOAD_BYTE, at(0)?), 0x45));
            steps.extend([insn(LOAD_HALF, at(6)?), insn(AND, 0x3fff)]);
            steps.extend(require(0));
            steps.extend(equal(insn(LOAD_BYTE, at(9)?), udp));
            steps.extend(equal(insn(LOAD_WORD, at(16)?), u32::from(ip)));
            IPV4_LEN
        }
        IpAddr::V6(ip) => {
            steps.extend(equal(insn(LOAD_BYTE, at(6)?), udp));
            for (index, word) in ip.octets().as_chunks::<4>().0.iter().enumerate() {
                let load = insn(LOAD_WORD, at(24 + 4 * index)?);
                steps.extend(equal(load, u32::from_be_bytes(*word)));
            }
            IPV6_LEN
        }
    };
    steps.extend(equal(insn(LOAD_HALF, at(header_len + 2)?), u32::from(ROCE_PORT)));
    steps.extend(of_shard(at(header_len + UDP_LEN)? + DEST_QP_OFFSET, shard)?);
    steps.extend(program(at(header_len + UDP_LEN)?)?);
    Some(steps)
}

/// Drops datagrams to queue pairs of other shards. The general services interface belongs to shard 0.
fn of_shard(at: u32, shard: u8) -> Option<Vec<SockFilter>> {
    let mut steps = vec![insn(LOAD_WORD, at), insn(AND, 0xff_ffff)];
    let low = [insn(AND, u32::from(Qpn::SHARDS) - 1)].into_iter().chain(require(shard.into()));
    let low: Vec<_> = low.collect();
    let over = u8::try_from(low.len()).ok()?;
    let gsi = Qpn::GSI.value();
    if shard == 0 {
        steps.push(SockFilter::new(JUMP_IF_EQUAL, over, 0, gsi));
    } else {
        steps.extend([SockFilter::new(JUMP_IF_EQUAL, 0, 1, gsi), DROP]);
    }
    steps.extend(low);
    Some(steps)
}

/// Drops the frame unless the loaded value is `value`.
fn equal(load: SockFilter, value: u32) -> [SockFilter; 3] {
    let [jump, drop] = require(value);
    [load, jump, drop]
}
