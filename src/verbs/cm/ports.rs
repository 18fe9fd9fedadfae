//! Ports of this process.

use std::fs;
use std::sync::{Arc, MutexGuard};

use crate::cm::{Bind, BindError, BindId, DeviceNumber, PortRules, PortTable};
use crate::runtime::{Device, PerProcess, random};
use crate::sync::Mutex;
use crate::sys::has_net_bind_service;
use crate::verbs::cm::Error;
use crate::verbs::cm::inner::lock;

/// A forked child has binds of its own.
static PORTS: PerProcess<Mutex<PortTable>> = PerProcess::new(|_| Mutex::default());

/// Locks the binds of this process.
pub(super) fn ports() -> MutexGuard<'static, PortTable> {
    lock(PORTS.get())
}

/// Binds a port, and returns it.
pub(super) fn bind(bind: Bind) -> Result<(BindId, u16), Error> {
    let os = |source| Error::Os { what: "random numbers", source };
    let random = u32::from_ne_bytes(random().map_err(os)?);
    let rules = rules();
    let mut bound = ports().bind(bind, &rules, random);
    if let Err(BindError::Privileged { .. }) = bound
        && has_net_bind_service()
    {
        let rules = PortRules { first_unprivileged: 0, ..rules };
        bound = ports().bind(bind, &rules, random);
    }
    Ok(bound?)
}

/// Returns the number of a device, which no other device has while a bind refers to it.
pub(super) fn number_of(device: &Arc<Device>) -> DeviceNumber {
    DeviceNumber(Arc::as_ptr(device).addr() as u64)
}

/// Reads the rules of the system. Where it hides them, those of Linux apply.
fn rules() -> PortRules {
    let default = PortRules::default();
    let read = |name| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
    let first = read("ip_unprivileged_port_start").trim().parse();
    let range = read("ip_local_port_range");
    let mut range = range.split_ascii_whitespace().filter_map(|port| port.parse().ok());
    let ephemeral = match (range.next(), range.next()) {
        (Some(first), Some(last)) if first <= last && first > 0 => first..=last,
        _ => default.ephemeral,
    };
    PortRules { first_unprivileged: first.unwrap_or(default.first_unprivileged), ephemeral }
}
