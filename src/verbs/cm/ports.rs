//! Ports of this process.

use std::fs;
use std::ops::RangeInclusive;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use crate::cm::{Bind, BindError, BindId, DeviceNumber, PortRules, PortTable};
use crate::runtime::{Device, PerProcess, now, random_word};
use crate::sync::Mutex;
use crate::sys::has_net_bind_service;
use crate::time::Instant;
use crate::verbs::cm::Error;
use crate::verbs::cm::inner::lock;

/// A forked child has binds of its own.
static PORTS: PerProcess<Mutex<PortTable>> = PerProcess::new(|_| Mutex::default());

/// Time for which a program that binds many ports does not read the range again.
const RANGE_LIFETIME: Duration = Duration::from_secs(1);

/// The ports for binds that request any, as the system had them at a time.
#[derive(Clone, Debug)]
struct Range {
    ephemeral: RangeInclusive<u16>,
    at: Instant,
}

/// The range that was read last.
static RANGE: PerProcess<Mutex<Option<Range>>> = PerProcess::new(|_| Mutex::default());

/// Locks the binds of this process.
pub(super) fn ports() -> MutexGuard<'static, PortTable> {
    lock(PORTS.get())
}

/// Binds a port, and returns it.
pub(super) fn bind(bind: Bind) -> Result<(BindId, u16), Error> {
    if bind.address.port() == 0 {
        let os = |source| Error::Os { what: "random numbers", source };
        let random = random_word().map_err(os)?;
        let rules = PortRules { ephemeral: ephemeral(), ..PortRules::default() };
        return Ok(ports().bind(bind, &rules, random)?);
    }
    let rules = PortRules { first_unprivileged: first_unprivileged(), ..PortRules::default() };
    let mut bound = ports().bind(bind, &rules, 0);
    if let Err(BindError::Privileged { .. }) = bound
        && has_net_bind_service()
    {
        let rules = PortRules { first_unprivileged: 0, ..rules };
        bound = ports().bind(bind, &rules, 0);
    }
    Ok(bound?)
}

/// Returns the number of a device, which no other device has while a bind refers to it.
pub(super) fn number_of(device: &Arc<Device>) -> DeviceNumber {
    DeviceNumber(Arc::as_ptr(device).addr() as u64)
}

/// Reads a setting of the system; the empty text where it is hidden.
fn setting(name: &str) -> String {
    fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default()
}

/// Reads the first port that requires no privilege.
fn first_unprivileged() -> u16 {
    let first = setting("ip_unprivileged_port_start").trim().parse();
    first.unwrap_or(PortRules::default().first_unprivileged)
}

/// Returns the ports for binds that request any, as they were at most [`RANGE_LIFETIME`] ago.
fn ephemeral() -> RangeInclusive<u16> {
    let mut known = lock(RANGE.get());
    let at = now();
    let recent = known.take().filter(|range| at - range.at < RANGE_LIFETIME);
    let range = recent.unwrap_or_else(|| Range { ephemeral: read_ephemeral(), at });
    known.insert(range).ephemeral.clone()
}

fn read_ephemeral() -> RangeInclusive<u16> {
    let range = setting("ip_local_port_range");
    let mut range = range.split_ascii_whitespace().filter_map(|port| port.parse().ok());
    match (range.next(), range.next()) {
        (Some(first), Some(last)) if first <= last && first > 0 => first..=last,
        _ => PortRules::default().ephemeral,
    }
}
