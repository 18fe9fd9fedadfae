//! Checks of this machine: owner of the port, interfaces, buffers, offloads.

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
pub(super) struct LocalAddress {
    ip: IpAddr,
    interface: String,
    is_up: bool,
}

/// Addresses of this machine to check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    /// The address to use.
    One(IpAddr),
    /// Addresses of the loopback interface, of which the first free one is used.
    Loopback,
    /// Every address that a peer may name.
    All,
}

/// Checks this machine; the address in `config` is ignored.
pub(super) fn examine(
    config: &PortConfig,
    scope: Scope,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let all = local_addresses()?;
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
    if scope == Scope::All && wanted.iter().all(|local| local.ip.is_ipv4()) {
        let text = "no interface has an IPv6 address: programs that use GIDs of IPv6 find none";
        findings.add(Finding::note("ipv6", text))?;
    }
    findings.add(kernel_rdma())?;
    let survey =
        |local: &LocalAddress| UdpPort::survey(&PortConfig { ip: local.ip, ..config.clone() });
    for local in &wanted {
        findings.add(interface(local, &survey(local)?))?;
    }
    // These are the same for every address.
    if let Some(local) = wanted.first() {
        let info = survey(local)?;
        findings.add(receive_buffer(config.receive_buffer, &info))?;
        findings.add(offloads(&info))?;
    }
    Ok(())
}

/// Returns the addresses of this machine that need no interface name.
fn local_addresses() -> anyhow::Result<Vec<LocalAddress>> {
    let entries = getifaddrs().context("the list of interfaces")?;
    let local = |entry: nix::ifaddrs::InterfaceAddress| {
        let address = entry.address?;
        let ip: IpAddr = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
            (Some(v4), _) => v4.ip().into(),
            (_, Some(v6)) if !v6.ip().is_unicast_link_local() => v6.ip().into(),
            _ => return None,
        };
        let is_up = entry.flags.contains(InterfaceFlags::IFF_UP);
        Some(LocalAddress { ip, interface: entry.interface_name, is_up })
    };
    Ok(entries.filter_map(local).collect())
}

/// Returns the interface of `ip`. The loopback interface has all of 127.0.0.0/8.
fn find(all: &[LocalAddress], ip: IpAddr) -> Option<LocalAddress> {
    let exact = all.iter().find(|local| local.ip == ip);
    let loopback = || all.iter().find(|local| ip.is_loopback() && local.ip.is_loopback());
    exact.or_else(loopback).map(|local| LocalAddress { ip, ..local.clone() })
}

/// Checks whether the port is free. A loopback address that the user has not named may be in use: the next one is
/// taken.
fn port(local: &LocalAddress, scope: Scope) -> Finding {
    const CHECK: &str = "port";
    let ip = local.ip;
    let finding = match UdpPort::open(&PortConfig::new(ip)) {
        Ok(_) => Finding::ok(CHECK, format!("UDP port 4791 of {ip} is free")),
        Err(OpenError::InUse { owner, .. }) => {
            let text = format!("UDP port 4791 of {ip} is held by {owner}");
            let finding =
                match ip.is_loopback() && scope != Scope::One(ip) && !every_address_is_held() {
                    true => Finding::note(CHECK, text)
                        .advice("no action: a device without --ip takes another address"),
                    false => Finding::problem(CHECK, text).advice(advice_for(&owner)),
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

fn advice_for(owner: &SocketOwner) -> &'static str {
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

/// Reports the RDMA devices of the kernel.
fn kernel_rdma() -> Finding {
    const CHECK: &str = "kernel";
    let names = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
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

/// Reports the MTU of an interface.
fn interface(local: &LocalAddress, info: &PortInfo) -> Finding {
    const CHECK: &str = "interface";
    let LocalAddress { ip, interface, is_up } = local;
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

/// Reports the receive buffer, and the window that peers derive from it.
fn receive_buffer(asked: Option<usize>, info: &PortInfo) -> Finding {
    const CHECK: &str = "receive-buffer";
    let has = info.receive_buffer;
    let (window, default_window) =
        (window::usable(has as u64), window::usable(window::DEFAULT_RECEIVE_BUFFER));
    let wanted = asked.unwrap_or(PortConfig::RECEIVE_BUFFER);
    let limit = limit("rmem_max");
    let text = format!(
        "the receive buffer is {has} bytes: peers that know it have {window} in flight, others \
         {default_window}"
    );
    let finding = if has >= wanted {
        Finding::ok(CHECK, text)
    } else {
        let text = format!("{text}; {wanted} bytes were asked for");
        // The kernel doubles the requested size.
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
        .fact("window", window)
        .fact("default_window", default_window)
        .fact("rmem_max", limit)
}

/// Returns a limit of `net.core`, if the sandbox shows it.
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
