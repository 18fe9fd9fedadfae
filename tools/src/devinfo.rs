//! `roce devinfo`: attributes of the device, in the format of `ibv_devinfo`.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::{Map, Value, json};
use softroce::verbs::{Counter, DeviceInfo, Gid, OdpCaps, OdpOps, QpType};
use softroce_cli::DevinfoArgs;

use crate::counters;
use crate::device;
use crate::output::{self, json_line};

/// Runs the command.
pub(crate) fn run(args: &DevinfoArgs) -> anyhow::Result<()> {
    if let Some(files) = &args.counters {
        return counted(files, args.json);
    }
    let opened = device::open(&args.device, None, false)?;
    let info = opened.context.device_info()?;
    opened.finish()?;
    let mut out = output::stdout();
    match (args.json, args.list) {
        (true, _) => json_line(&mut out, &as_json(&info))?,
        (false, true) => writeln!(out, "{}", info.name)?,
        (false, false) => print(&mut out, &info, args.verbose)?,
    }
    Ok(())
}

/// Prints the counters in files, or the meaning of every counter.
fn counted(files: &[PathBuf], json: bool) -> anyhow::Result<()> {
    let mut out = output::stdout();
    if files.is_empty() {
        return Ok(match json {
            true => json_line(&mut out, &counters::explained()),
            false => counters::explain(&mut out),
        }?);
    }
    for file in files {
        let columns = counters::read(file)?;
        if json {
            json_line(&mut out, &counters::as_json(&columns))?;
            continue;
        }
        for column in &columns {
            counters::print(&mut out, std::slice::from_ref(column))?;
        }
    }
    Ok(())
}

fn print(out: &mut impl Write, info: &DeviceInfo, verbose: bool) -> io::Result<()> {
    writeln!(out, "hca_id: {}", info.name)?;
    line(out, 1, "transport", "RoCEv2 over UDP")?;
    line(out, 1, "fw_ver", env!("CARGO_PKG_VERSION"))?;
    line(out, 1, "phys_port_cnt", 1)?;
    if verbose {
        line(out, 1, "qp_types", QpType::ALL.map(|qp_type| qp_type.to_string()).join(" "))?;
        for (name, value) in info.limits.iter() {
            line(out, 1, name, value)?;
        }
        line(out, 1, "mw_types", windows(info).join(", "))?;
        line(out, 1, "capabilities", capabilities(info).join(", "))?;
        line(out, 1, "atomic_cap", info.atomic_cap)?;
        line(out, 1, "null_mr", info.null_mr)?;
        line(out, 1, "odp", info.odp.supported)?;
        line(out, 1, "odp_implicit", info.odp.implicit)?;
        for (transport, operations) in on_demand(info) {
            line(out, 1, &format!("odp_{transport}"), operations.join(", "))?;
        }
    }
    line(out, 1, "port", 1)?;
    line(out, 2, "state", format!("{} ({})", info.port_state, info.port_state as u8))?;
    line(out, 2, "max_mtu", "4096 (5)")?;
    line(out, 2, "active_mtu", format!("{} ({})", info.active_mtu, info.active_mtu as u8))?;
    line(out, 2, "link_layer", "Ethernet")?;
    for (index, gid) in gids(info) {
        line(out, 2, &format!("GID[{index:3}]"), format!("{gid}, RoCE v2"))?;
    }
    for (index, pkey) in info.pkeys.iter().enumerate().filter(|_| verbose) {
        line(out, 2, &format!("PKEY[{index:3}]"), pkey)?;
    }
    if verbose {
        let port = &info.port;
        let mut ips: Vec<_> = gids(info).map(|(_, gid)| gid.ip().to_string()).collect();
        let mut seen = HashSet::new();
        ips.retain(|ip| seen.insert(ip.clone()));
        line(out, 2, "address", format!("{} UDP port 4791", ips.join(", ")))?;
        line(out, 2, "interface_mtu", port.link_mtu)?;
        line(out, 2, "receive_buffer", port.receive_buffer)?;
        line(out, 2, "window", info.window)?;
        line(out, 2, "shards", info.shards)?;
        line(out, 2, "udp_gso", port.gso)?;
        line(out, 2, "max_burst_segments", port.max_burst_segments)?;
        line(out, 2, "udp_gro", port.gro)?;
        line(out, 2, "sees_ip_header", port.sees_ip_header)?;
        writeln!(out, "\tcounters:")?;
        for counter in all_counters(info) {
            line(out, 2, counter.name, counter.value)?;
        }
    }
    Ok(())
}

fn line(
    out: &mut impl Write,
    depth: usize,
    name: &str,
    value: impl std::fmt::Display,
) -> io::Result<()> {
    let (indent, name) = ("\t".repeat(depth), format!("{name}:"));
    writeln!(out, "{indent}{name:<23} {value}")
}

/// Returns the used entries of the GID table, with their indices.
fn gids(info: &DeviceInfo) -> impl Iterator<Item = (usize, &Gid)> {
    info.gids.iter().enumerate().filter(|(_, gid)| **gid != Gid::EMPTY)
}

/// Returns the capabilities of the device under their names in `verbs.h`.
fn capabilities(info: &DeviceInfo) -> Vec<&'static str> {
    info.caps.iter_names().map(|(name, _)| name).collect()
}

/// Returns the operations on memory with on-demand paging, by transport service.
fn on_demand(info: &DeviceInfo) -> [(&'static str, Vec<&'static str>); 3] {
    let names = |ops: OdpOps| ops.iter_names().map(|(name, _)| name).collect();
    let OdpCaps { rc, uc, ud, .. } = info.odp;
    [("rc", names(rc)), ("uc", names(uc)), ("ud", names(ud))]
}

/// Returns the supported types of memory windows.
fn windows(info: &DeviceInfo) -> Vec<String> {
    info.mw_types.iter().map(ToString::to_string).collect()
}

fn all_counters(info: &DeviceInfo) -> impl Iterator<Item = Counter> {
    info.counters.iter().chain(info.port_counters.iter())
}

fn as_json(info: &DeviceInfo) -> Value {
    let object = |pairs: &mut dyn Iterator<Item = (&'static str, u64)>| {
        pairs.map(|(name, value)| (name.to_owned(), value.into())).collect::<Map<_, _>>()
    };
    json!({
        "name": info.name,
        "ip": info.ip,
        "gids": info.gids.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "pkeys": info.pkeys.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "qp_types": QpType::ALL.map(|qp_type| qp_type.to_string()),
        "active_mtu": info.active_mtu.bytes(),
        "interface_mtu": info.port.link_mtu,
        "receive_buffer": info.port.receive_buffer,
        "window": info.window,
        "shards": info.shards,
        "udp_gso": info.port.gso,
        "max_burst_segments": info.port.max_burst_segments,
        "udp_gro": info.port.gro,
        "sees_ip_header": info.port.sees_ip_header,
        "mw_types": windows(info),
        "capabilities": capabilities(info),
        "atomic_cap": info.atomic_cap.to_string(),
        "null_mr": info.null_mr,
        "odp": {
            "supported": info.odp.supported,
            "implicit": info.odp.implicit,
            "operations": on_demand(info).into_iter().collect::<BTreeMap<_, _>>(),
        },
        "limits": object(&mut info.limits.iter()),
        "counters": object(&mut all_counters(info).map(|counter| (counter.name, counter.value))),
    })
}
