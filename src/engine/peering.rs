//! Paths and peers from the attributes of a queue pair and of its requests.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::engine::attr::QpType;
use crate::engine::config::Config;
use crate::engine::post::PostError;
use crate::engine::qp::QueuePair;
use crate::engine::remote::RemoteInfo;
use crate::ids::Qpn;
use crate::net::{AddressVector, Path, ROCE_PORT, datagram_source_port, source_port};
use crate::time::Instant;
use crate::transport::connection::{Connection, Flows};
use crate::transport::ud::{Destination, Endpoint};
use crate::transport::window::Windows;
use crate::transport::work::UdTarget;

/// Returns the peer from the attributes of a queue pair; `None` while one is missing. `agree`
/// returns the UDP source port, the first time and when the source address changes. Datagrams may
/// use any source GID.
pub(super) fn remote(
    qp: &QueuePair,
    config: &Config,
    (windows, now): (&mut Windows, Instant),
    mut agree: impl FnMut(IpAddr, u16) -> u16,
) -> Option<RemoteInfo> {
    let pkey = *config.pkeys.get(usize::from(qp.cold.attr.pkey_index.unwrap_or_default()))?;
    if qp.qp_type == QpType::Ud {
        let source_ports = match &qp.remote {
            Some(RemoteInfo::Endpoint(before)) => before.source_ports.clone(),
            _ => {
                let wanted = datagram_source_port(qp.id.qpn);
                config.gids.iter().map(|gid| agree(gid.ip(), wanted)).collect()
            }
        };
        return Some(RemoteInfo::Endpoint(Box::new(Endpoint {
            id: qp.id,
            pkey,
            qkey: qp.cold.attr.qkey?,
            mtu: u32::try_from(config.active_mtu.bytes()).ok()?,
            source_ports,
        })));
    }
    let attr = &qp.cold.attr;
    let (av, dest_qpn, mtu) = (attr.av?, attr.dest_qpn?, attr.path_mtu?);
    let mtu = u32::try_from(mtu.bytes()).ok()?;
    let mut path = path(&av, config)?;
    path.source_port = match &qp.remote {
        Some(RemoteInfo::Connection(before)) if before.path.source == path.source => {
            before.path.source_port
        }
        _ => agree(path.source, source_port(av.flow_label, qp.id.qpn, dest_qpn)),
    };
    let window = match &qp.remote {
        Some(RemoteInfo::Connection(before)) if before.path.destination == path.destination => {
            before.window
        }
        before => {
            // The path changes only while no packet of the queue pair is in flight.
            if let Some(window) = before.as_ref().and_then(RemoteInfo::window) {
                windows.leave(window);
            }
            windows.join(path.destination, now)
        }
    };
    Some(RemoteInfo::Connection(Connection {
        id: qp.id,
        transport: qp.qp_type.transport(),
        dest_qpn,
        path,
        flows: Flows::new(&path),
        window,
        pkey,
        mtu,
        access: attr.access.unwrap_or_default(),
        min_rnr_timer: attr.min_rnr_timer.unwrap_or_default(),
        timeout: attr.timeout.unwrap_or_default(),
        retry_cnt: attr.retry_cnt.unwrap_or_default(),
        rnr_retry: attr.rnr_retry.unwrap_or_default(),
        max_rd_atomic: attr.max_rd_atomic.unwrap_or_default(),
        max_dest_rd_atomic: attr.max_dest_rd_atomic.unwrap_or_default(),
    }))
}

/// The UDP source ports of UD messages, by the index of their source GID and their flow label.
#[derive(Debug, Default)]
pub(super) struct FlowPorts(HashMap<(u8, u32), u16>);

impl FlowPorts {
    /// Returns the port of a source GID and a flow label, from `agree` the first time.
    pub(super) fn agree(&mut self, flow: (u8, u32), agree: impl FnOnce(u16) -> u16) {
        // The preferred port depends on the label only.
        let wanted = source_port(flow.1, Qpn::GSI, Qpn::GSI);
        self.0.entry(flow).or_insert_with(|| agree(wanted));
    }
}

/// Returns the destination of a UD message. Its source port is that of its flow, or else the one in `source_ports` for
/// its source GID.
pub(super) fn destination(
    to: &UdTarget,
    config: &Config,
    flows: &FlowPorts,
    source_ports: &[u16],
) -> Result<Destination, PostError> {
    let mut path = path(&to.av, config)
        .filter(|path| path.source.is_ipv4() == path.destination.is_ipv4())
        .ok_or(PostError::Address { gid: to.av.gid, index: to.av.sgid_index })?;
    let (index, label) = (to.av.sgid_index, to.av.flow_label);
    let of_flow = flows.0.get(&(index, label)).or_else(|| source_ports.get(usize::from(index)));
    path.source_port = of_flow.copied().unwrap_or(ROCE_PORT);
    // The queue pair number of a group is fixed, whatever the request specifies (IBTA vol 1,
    // §10.5).
    let qpn = if path.destination.is_multicast() { Qpn::MULTICAST } else { to.qpn };
    Ok(Destination { path, qpn, qkey: to.qkey })
}

/// Returns the path of an address vector, without its source port. `None` if the source GID does
/// not exist.
fn path(av: &AddressVector, config: &Config) -> Option<Path> {
    Some(Path {
        source: config.gids.get(usize::from(av.sgid_index))?.ip(),
        destination: av.gid.ip(),
        source_port: ROCE_PORT,
        traffic_class: av.traffic_class,
        hop_limit: av.hop_limit,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::engine::{InitAttr, Peer, QpAttr, QpInit, QpState, RtrAttr, RtsAttr};
    use crate::ids::{CqId, Mtu, PdId};
    use crate::mem::{Access, Memory};
    use crate::psn::Psn;

    fn peer(number: u32) -> Peer {
        let address = IpAddr::from((0x0a00_0000 + number).to_be_bytes());
        Peer {
            av: AddressVector::to(address.into()),
            dest_qpn: Qpn::new(0x12),
            rq_psn: Psn::new(5),
            path_mtu: Mtu::Mtu1024,
        }
    }

    #[test]
    fn queue_pairs_that_have_ended_leave_a_bounded_number_of_windows() {
        let ip = IpAddr::from([127, 0, 0, 1]);
        let mut engine = Engine::new(Config::new(ip), Memory::new([1; 32]).into(), [1; 32]);
        let init = QpInit {
            qp_type: QpType::Uc,
            pd: PdId(1),
            send_cq: Some(CqId(0)),
            recv_cq: Some(CqId(0)),
            cap: Default::default(),
            sq_sig_all: false,
            srq: None,
            send_ops: None,
            xrcd: None,
        };
        let now = Instant::ZERO;
        let mut most = 0;
        let reused = engine.create_qp(now, init).unwrap();
        for number in 0..3000 {
            let qpn = match number % 3 {
                0 => reused,
                _ => engine.create_qp(now, init).unwrap(),
            };
            let mut modify = |attr: QpAttr| {
                engine.modify_qp(now, qpn, &attr, |_, wanted| wanted).unwrap();
            };
            modify(InitAttr::Connected { access: Access::empty() }.into());
            modify(RtrAttr::Uc { peer: peer(2 * number) }.into());
            modify(RtsAttr::Unreliable { sq_psn: Psn::new(5) }.into());
            modify(QpAttr::to(QpState::Sqd));
            // To the same address, and to another one.
            for number in [2 * number, 2 * number + 1] {
                let av = Some(peer(number).av);
                modify(QpAttr { av, ..QpAttr::to(QpState::Sqd) });
            }
            match number % 3 {
                0 => modify(QpAttr::to(QpState::Reset)),
                _ => engine.destroy_qp(now, qpn),
            }
            most = most.max(engine.shared.windows.count());
        }
        assert!((1000..1100).contains(&most), "{most} windows");
    }
}
