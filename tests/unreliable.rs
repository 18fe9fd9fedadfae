//! What UC and UD may have in flight, when nobody acknowledges it.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

mod support;

use std::time::Duration;

use softroce::engine::QpType;
use softroce::ids::{Gid, Mtu};
use softroce::io::sim::HostConfig;
use softroce::net::AddressVector;
use softroce::transport::work::{SendOp, UdTarget};
use support::{Link, QKEY, World, full_access, request, sge};

const AREA: usize = 1 << 16;

fn link(qp_type: QpType) -> Link {
    Link { qp_type, ..Link::default() }
}

/// A counting receiver loses nothing although nobody acknowledges.
#[test]
fn uc_and_ud_do_not_overrun_a_default_socket_that_is_emptied_in_time() {
    for qp_type in [QpType::Uc, QpType::Ud] {
        let host = HostConfig { receive_buffer: 212_992, ..HostConfig::default() };
        let mut world = World::with(8, 2, host, |_| {});
        let link = Link { mtu: Mtu::Mtu4096, ..link(qp_type) };
        let qps = world.pair(&link);
        let here = world.nodes[0].region(AREA, 1 << 32, full_access());
        let there = world.nodes[1].region(AREA, 1 << 32, full_access());
        let av = AddressVector::to(Gid::from(world.nodes[1].ip));
        for wr_id in 0..128 {
            world.post_recv(1, qps[1], wr_id, &[sge(&there, 0, 4096 + 40)]);
            let mut send = request(wr_id, SendOp::Send, &[sge(&here, 0, 4096)]);
            send.to = Some(UdTarget { av, qpn: qps[1], qkey: QKEY });
            world.post_send(0, qps[0], send);
        }
        world.run(Duration::from_secs(1));
        assert_eq!(world.nodes[1].recvs.len(), 128, "{qp_type}");
    }
}
