//! The owner of a socket that keeps a port from binding its address.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process;

use crate::net::ROCE_PORT;

/// Owner of the socket at UDP port 4791 of an address.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SocketOwner {
    /// The kernel's own RoCEv2, the module `rdma_rxe`.
    RdmaRxe,
    /// This process.
    ThisProcess,
    /// Another process.
    Process {
        /// Its process ID.
        pid: u32,
        /// Its name, from `/proc/PID/comm`: up to 15 characters.
        name: String,
    },
    /// A process of this user with descriptors that we may not read.
    User(u32),
    /// Unknown: the kernel reports no more.
    Unknown,
}

impl fmt::Display for SocketOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RdmaRxe => f.write_str("the kernel module rdma_rxe"),
            Self::ThisProcess => f.write_str("this process"),
            Self::Process { pid, name } => write!(f, "process {pid} ({name})"),
            Self::User(uid) => write!(f, "a process of user {uid}"),
            Self::Unknown => f.write_str("another socket"),
        }
    }
}

/// Returns the address and owner of each socket of this network namespace that is bound to the RoCEv2 port.
pub fn socket_owners() -> Vec<(IpAddr, SocketOwner)> {
    let rows = rows();
    rows.iter().map(|row| (row.local.ip(), owner(std::slice::from_ref(row)))).collect()
}

/// Finds the owner of the socket that prevents a bind to `ip`.
pub(in crate::port) fn find(ip: IpAddr) -> SocketOwner {
    let rows: Vec<_> = rows().into_iter().filter(|row| row.prevents_bind(ip)).collect();
    owner(&rows)
}

/// Number of reads of the tables. The kernel returns them page by page and finds the next page by counting rows, so it
/// skips a row if the socket of an earlier row was closed in between.
const TABLE_READS: usize = 8;

/// Returns the sockets bound to the RoCEv2 port.
fn rows() -> Vec<Row> {
    rows_seen(|table| fs::read_to_string(table).ok())
}

/// Returns the rows for the RoCEv2 port that appear in at least one of [`TABLE_READS`] reads of the tables.
fn rows_seen(mut read: impl FnMut(&str) -> Option<String>) -> Vec<Row> {
    let mut rows: Vec<_> = (0..TABLE_READS)
        .flat_map(|_| ["/proc/net/udp", "/proc/net/udp6"])
        .filter_map(&mut read)
        .flat_map(|table| table.lines().filter_map(Row::parse).collect::<Vec<_>>())
        .filter(|row| row.local.port() == ROCE_PORT)
        .collect();
    rows.sort_by_key(|row| (row.inode, row.local));
    rows.dedup();
    rows
}

/// Returns the owner of one of these sockets.
fn owner(rows: &[Row]) -> SocketOwner {
    if let Some(owner) = rows.iter().find_map(|row| process_with(row.inode)) {
        return owner;
    }
    // A kernel socket looks like any other in the table, but no process has it open.
    let wildcard = rows.iter().any(|row| row.local.ip().is_unspecified());
    if wildcard && Path::new("/sys/module/rdma_rxe").exists() {
        return SocketOwner::RdmaRxe;
    }
    rows.first().map_or(SocketOwner::Unknown, |row| SocketOwner::User(row.uid))
}

/// A row of `/proc/net/udp` or `/proc/net/udp6`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Row {
    local: SocketAddr,
    uid: u32,
    inode: u64,
}

impl Row {
    /// Parses a line; `None` for the heading.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (ip, port) = words.nth(1)?.split_once(':')?;
        let local = SocketAddr::new(hex_ip(ip)?, u16::from_str_radix(port, 16).ok()?);
        // rem_address, st, queues, tm->when, retrnsmt
        let uid = words.nth(5)?.parse().ok()?;
        let inode = words.nth(1)?.parse().ok()?;
        Some(Self { local, uid, inode })
    }

    /// Returns whether this socket prevents another from binding the RoCEv2 port of `ip`.
    fn prevents_bind(&self, ip: IpAddr) -> bool {
        let own = self.local.ip();
        let any = match own {
            IpAddr::V4(_) => own.is_unspecified() && ip.is_ipv4(),
            IpAddr::V6(_) => own.is_unspecified(),
        };
        self.local.port() == ROCE_PORT && (own.to_canonical() == ip || any)
    }
}

/// Parses an address as the kernel prints it: words in the machine's byte order.
fn hex_ip(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let digits = text.get(at * 8..at * 8 + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let bytes: Vec<u8> = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into())
        }
        _ => None,
    }
}

fn process_with(inode: u64) -> Option<SocketOwner> {
    let socket = format!("socket:[{inode}]");
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(descriptors) = fs::read_dir(entry.path().join("fd")) else { continue };
        let mut targets = descriptors.flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
        if targets.any(|target| target == Path::new(&socket)) {
            return Some(describe(pid));
        }
    }
    None
}

fn describe(pid: u32) -> SocketOwner {
    if pid == process::id() {
        return SocketOwner::ThisProcess;
    }
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    SocketOwner::Process { pid, name: name.trim_end().to_owned() }
}

#[cfg(all(test, target_endian = "little"))]
mod tests {
    use super::*;

    const HEADING: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when \
                           retrnsmt   uid  timeout inode ref pointer drops";
    const V4: &str = " 4479: 0200007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 \
                      00000000  1000        0 31042 2 0000000000000000 0";
    const RXE6: &str = " 4479: 00000000000000000000000000000000:12B7 \
                        00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 \
                        00000000     0        0 977 2 0000000000000000 0";
    const V6: &str = "    1: 000080FE00000000FF005450B6AD1DFE:12B7 \
                      00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 \
                      00000000     0        0 5 2 0000000000000000 0";

    #[test]
    fn the_tables_of_the_kernel_are_understood() {
        let row = |local: &str, uid, inode| Row { local: local.parse().unwrap(), uid, inode };
        assert_eq!(Row::parse(HEADING), None);
        assert_eq!(Row::parse(V4), Some(row("127.0.0.2:4791", 1000, 31042)));
        assert_eq!(Row::parse(RXE6), Some(row("[::]:4791", 0, 977)));
        assert_eq!(Row::parse(V6), Some(row("[fe80::5054:ff:fe1d:adb6]:4791", 0, 5)));
    }

    #[test]
    fn a_row_that_is_left_out_now_and_then_is_seen_once() {
        let mut time = 0;
        let rows = rows_seen(|table| {
            time += 1;
            table
                .ends_with("udp6")
                .then(|| [HEADING, if time % 3 == 0 { V6 } else { RXE6 }].join("\n"))
        });
        assert_eq!(rows, [V6, RXE6].map(|line| Row::parse(line).unwrap()));
    }

    #[test]
    fn a_wildcard_excludes_every_address_of_its_families() {
        let prevents_bind =
            |line, ip: &str| Row::parse(line).unwrap().prevents_bind(ip.parse().unwrap());
        assert!(prevents_bind(V4, "127.0.0.2"));
        assert!(!prevents_bind(V4, "127.0.0.1"));
        assert!(prevents_bind(RXE6, "127.0.0.1") && prevents_bind(RXE6, "::1"));
        let any4 = V4.replace("0200007F", "00000000");
        assert!(prevents_bind(&any4, "10.0.0.1") && !prevents_bind(&any4, "::1"));
        assert!(!prevents_bind(&V4.replace("12B7", "12B8"), "127.0.0.2"));
    }
}
