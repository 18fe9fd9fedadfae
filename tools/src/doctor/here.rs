//! This machine: who holds the port, interfaces, buffers, offloads.

use std::fs;
use std::net::IpAddr;

use anyhow::Context as _;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use softroce::ids::Mtu;
use softroce::port::PortConfig;
use softroce::port::PortInfo;
use softroce::port::udp::{OpenError, SocketOwner, UdpPort, socket_owners};
use softroce::transport::window;

use super::finding::{Finding, Findings};

/// An address of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Local {
    ip: IpAddr,
    interface: String,
    is_up: bool,
}

/// Which addresses of this machine are of interest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    /// The one that is to be used.
    One(IpAddr),
    /// Those of the loopback interface: the first that is free is to be used.
    Loopback,
    /// Every one that a peer may name.
    All,
}

/// Looks at this machine. The address of `config` does not count.
pub(super) fn examine(
    config: &PortConfig,
    scope: Scope,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let all = locals()?;
    let wanted: Vec<_> = match scope {
        Scope::One(ip) => vec![
            find(&all, ip).with_context(|| format!("{ip} is not an address of this machine"))?,
        ],
        Scope::Loopback => all.into_iter().filter(|local| local.ip.is_loopback()).collect(),
        Scope::All => all.into_iter().filter(|local| local.is_up).collect(),
    };
    for local in &wanted {
        findings.add(port(local, scope))?;
    }
    findings.add(kernel_rdma())?;
    let survey = |local: &Local| UdpPort::survey(&PortConfig { ip: local.ip, ..config.clone() });
    for local in &wanted {
        findings.add(interface(local, &survey(local)?))?;
    }
    // The same for every address.
    if let Some(local) = wanted.first() {
        let info = survey(local)?;
        findings.add(receive_buffer(config.receive_buffer, &info))?;
        findings.add(offloads(&info))?;
    }
    Ok(())
}

/// The addresses of this machine that can be named without saying an interface.
fn locals() -> anyhow::Result<Vec<Local>> {
    let entries = getifaddrs().context("the list of interfaces")?;
    let local = |entry: nix::ifaddrs::InterfaceAddress| {
        let address = entry.address?;
        let ip: IpAddr = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
            (Some(v4), _) => v4.ip().into(),
            (_, Some(v6)) if !v6.ip().is_unicast_link_local() => v6.ip().into(),
            _ => return None,
        };
        let is_up = entry.flags.contains(InterfaceFlags::IFF_UP);
        Some(Local { ip, interface: entry.interface_name, is_up })
    };
    Ok(entries.filter_map(local).collect())
}

/// The interface of `ip`. Every address of 127.0.0.0/8 is one of the loopback interface.
fn find(all: &[Local], ip: IpAddr) -> Option<Local> {
    let exact = all.iter().find(|local| local.ip == ip);
    let loopback = || all.iter().find(|local| ip.is_loopback() && local.ip.is_loopback());
    exact.or_else(loopback).map(|local| Local { ip, ..local.clone() })
}

/// Whether the port can be had. Of a loopback address that nobody asked for it may be held: the next
/// one is taken.
fn port(local: &Local, scope: Scope) -> Finding {
    const CHECK: &str = "port";
    let ip = local.ip;
    let finding = match UdpPort::open(&PortConfig::new(ip)) {
        Ok(_) => Finding::ok(CHECK, format!("UDP port 4791 of {ip} is free")),
        Err(OpenError::InUse { owner, .. }) => {
            let text = format!("UDP port 4791 of {ip} is held by {owner}");
            let finding =
                match ip.is_loopback() && scope != Scope::One(ip) && !every_address_is_held() {
                    true => Finding::note(CHECK, text).advice(
                        "nothing to do: a device that is told no address takes another one",
                    ),
                    false => Finding::problem(CHECK, text).advice(way_out(&owner)),
                };
            let finding = finding.fact("owner", owner.to_string());
            match owner {
                SocketOwner::Process { pid, .. } => finding.fact("pid", pid),
                _ => finding,
            }
        }
        Err(e) => Finding::problem(CHECK, e.to_string()),
    };
    finding.fact("ip", ip.to_string())
}

fn every_address_is_held() -> bool {
    socket_owners().iter().any(|(ip, _)| ip.is_unspecified())
}

fn way_out(owner: &SocketOwner) -> &'static str {
    match owner {
        SocketOwner::RdmaRxe => {
            "remove its devices (rdma link show; rdma link delete NAME), or unload it: modprobe \
             -r rdma_rxe"
        }
        SocketOwner::ThisProcess | SocketOwner::Process { .. } => {
            "end it, or give another address with --ip: an address has one RoCE device"
        }
        _ => {
            "end it, or give another address with --ip; root sees which process it is: ss -ulpn \
             'sport = 4791'"
        }
    }
}

/// What the kernel has of RDMA itself.
fn kernel_rdma() -> Finding {
    const CHECK: &str = "kernel";
    let names = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    let devices = names("/sys/class/infiniband");
    let rxe = fs::exists("/sys/module/rdma_rxe").unwrap_or(false);
    let finding = match (rxe, devices.is_empty()) {
        (true, true) => {
            Finding::note(CHECK, "the kernel module rdma_rxe is loaded and has no device here")
                .advice(
                    "with its first device (rdma link add) it takes UDP port 4791 of every \
                     address",
                )
        }
        (true, false) => {
            let text =
                format!("rdma_rxe is loaded; RDMA devices of the kernel: {}", devices.join(", "));
            Finding::note(CHECK, text)
        }
        (false, false) => {
            let text = format!("RDMA devices of the kernel: {}", devices.join(", "));
            Finding::note(CHECK, text).advice(
                "an adapter may take RoCE packets of its interface before any socket sees them: \
                 use an address of another interface",
            )
        }
        (false, true) => {
            Finding::ok(CHECK, "the kernel has no RDMA device, and rdma_rxe is not loaded")
        }
    };
    finding.fact("rdma_rxe", rxe).fact("devices", devices)
}

/// What the interface carries.
fn interface(local: &Local, info: &PortInfo) -> Finding {
    const CHECK: &str = "interface";
    let Local { ip, interface, is_up } = local;
    let link = info.link_mtu;
    let needed = |mtu: Mtu| mtu.bytes() + Mtu::OVERHEAD;
    let active = Mtu::for_link(link);
    let text =
        |mtu| format!("{interface} ({ip}) has an MTU of {link}: RoCE packets of {mtu} bytes");
    let finding = match active {
        _ if !is_up => {
            let advice = format!("ip link set {interface} up");
            Finding::problem(CHECK, format!("{interface} ({ip}) is down")).advice(advice)
        }
        None => {
            let least = needed(Mtu::Mtu256);
            let text =
                format!("{interface} ({ip}) has an MTU of {link}: too small for any RoCE packet");
            Finding::problem(CHECK, text)
                .advice(format!("ip link set {interface} mtu {least}, or more"))
        }
        Some(Mtu::Mtu4096) => Finding::ok(CHECK, text(Mtu::Mtu4096)),
        Some(mtu) => {
            let most = needed(Mtu::Mtu4096);
            Finding::note(CHECK, text(mtu)).advice(format!(
                "for 4096, the most there is, both hosts and all between them need an MTU of \
                 {most}: ip link set {interface} mtu {most}"
            ))
        }
    };
    let finding = finding.fact("interface", interface.as_str()).fact("ip", ip.to_string());
    finding.fact("mtu", link).fact("roce_mtu", active.map(Mtu::bytes))
}

/// What fits into the receive buffer, and what peers make of it.
fn receive_buffer(asked: Option<usize>, info: &PortInfo) -> Finding {
    const CHECK: &str = "receive-buffer";
    let has = info.receive_buffer;
    let (told, untold) =
        (window::usable(has as u64), window::usable(window::DEFAULT_RECEIVE_BUFFER));
    let wanted = asked.unwrap_or(PortConfig::RECEIVE_BUFFER);
    let limit = limit("rmem_max");
    let text = format!(
        "the receive buffer is {has} bytes: peers that know it have {told} in flight, others \
         {untold}"
    );
    let finding = if has >= wanted {
        Finding::ok(CHECK, text)
    } else {
        let text = format!("{text}; {wanted} bytes were asked for");
        // The kernel doubles what a socket asks for.
        let enough = wanted.div_ceil(2);
        let advice = format!(
            "let programs have more: sysctl -w net.core.rmem_max={enough} (now {})",
            limit.map_or_else(|| String::from("unknown"), |limit| limit.to_string())
        );
        match asked {
            Some(_) => Finding::problem(CHECK, text).advice(advice),
            None => Finding::note(CHECK, text).advice(advice),
        }
    };
    finding
        .fact("receive_buffer", has)
        .fact("window", told)
        .fact("default_window", untold)
        .fact("rmem_max", limit)
}

/// A limit of `net.core`, where the sandbox shows it.
fn limit(name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?;
    text.trim().parse().ok()
}

fn offloads(info: &PortInfo) -> Finding {
    const CHECK: &str = "offloads";
    let finding = match (info.gso, info.gro) {
        (true, true) => Finding::ok(
            CHECK,
            "UDP GSO and GRO are available: one system call carries many packets",
        ),
        (gso, gro) => {
            let missing = match (gso, gro) {
                (false, false) => "GSO and GRO are",
                (false, true) => "GSO is",
                _ => "GRO is",
            };
            Finding::note(
                CHECK,
                format!("UDP {missing} not available: each packet costs a system call"),
            )
            .advice("Linux 5.0 or later has both; sandboxes such as gVisor have neither")
        }
    };
    finding.fact("gso", info.gso).fact("gro", info.gro)
}
