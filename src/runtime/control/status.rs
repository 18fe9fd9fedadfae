//! State and counters of a device as JSON.

use crate::cm::{PortSpace, ServiceId};
use crate::counter::Counter;
use crate::engine::QpActivity;
use crate::port::{Datapath, PortCounters};
use crate::runtime::clock;
use crate::runtime::device_error::DeviceError;
use crate::runtime::shards::Shards;
use crate::transport::outputs::Counters;

use super::json::Object;

/// Version of the JSON that a device sends.
const VERSION: u32 = 1;

/// Returns an object that begins with the version.
pub(super) fn versioned() -> Object {
    Object::new().raw("version", VERSION)
}

/// Returns the line that refuses a request.
pub(super) fn refusal(reason: &str) -> String {
    versioned().text("error", reason).end()
}

/// Adds what changes to the properties of a device: counters, other than those at 0, queue pairs, and listeners of the
/// connection manager.
pub(super) fn status(about: Object, shards: &Shards) -> Result<String, DeviceError> {
    let (mut protocol, mut port) = (Counters::default(), PortCounters::default());
    let (mut qps, mut listening, mut captures) = (Vec::new(), Vec::new(), 0);
    for shard in shards.iter() {
        shard.with(|core, _| {
            protocol += &core.engine.counters();
            port += &core.port.counters();
            qps.extend(core.engine.activity_by_qp());
            listening.extend(core.listening());
            captures = captures.max(core.port.attached());
        })?;
    }
    let counters = protocol.iter().chain(port.iter());
    Ok(about
        .raw("shards", shards.iter().len())
        .raw("captures", captures)
        .raw("time_ns", clock::now().as_nanos())
        .raw("counters", counted(counters))
        .list("listeners", listening.iter().filter_map(|service| listener(*service)))
        .list("qps", qps.iter().map(qp))
        .end())
}

fn listener(service: ServiceId) -> Option<String> {
    let (port_space, port) = PortSpace::of_service(service)?;
    Some(Object::new().text("port_space", port_space.name()).raw("port", port).end())
}

fn qp(activity: &QpActivity) -> String {
    let QpActivity {
        qpn, qp_type, state, peer, posted_sends, outstanding_packets, counters, ..
    } = activity;
    let mut object =
        Object::new().raw("qp", qpn.value()).text("type", qp_type).text("state", state);
    if let Some((ip, qpn)) = peer {
        object = object.text("peer", ip).raw("peer_qp", qpn.value());
    }
    object
        .raw("posted_sends", posted_sends)
        .raw("outstanding_packets", outstanding_packets)
        .raw("counters", counted(counters.iter()))
        .end()
}

/// Returns the counters that are not 0 as an object.
fn counted(counters: impl Iterator<Item = Counter>) -> String {
    let counted = counters.filter(|counter| counter.value != 0);
    counted.fold(Object::new(), |object, counter| object.raw(counter.name, counter.value)).end()
}
