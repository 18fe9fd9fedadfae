//! Multicast groups: one socket for each, bound to the group.
//!
//! A socket that is bound to a unicast address receives no datagrams to a group. A socket that is bound to the group
//! joins it (IGMP, MLD) and leaves it when it is closed. Each process of a host that has joined receives a copy.

use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use socket2::Socket;

use super::{PortConfig, socket};
use crate::port::JoinError;
use crate::sys::{self, OwnDescriptor, Readiness};

/// Multicast groups that a port has joined.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Epoll instance of the sockets; present while there are any.
    readiness: Option<Readiness>,
    sockets: Vec<(u64, IpAddr, OwnDescriptor<Socket>)>,
    /// Next token for [`Readiness`].
    next: u64,
    /// Datagrams that closed sockets dropped for lack of space.
    drops: u64,
}

impl Groups {
    /// Joins a group on an interface. `config` is that of the port.
    pub(super) fn join(
        &mut self,
        config: &PortConfig,
        interface: u32,
        group: IpAddr,
    ) -> Result<(), JoinError> {
        if !group.is_multicast() || group.is_ipv4() != config.ip.is_ipv4() {
            return Err(JoinError::NotAGroup { group, ip: config.ip });
        }
        if self.sockets.iter().any(|(_, joined, _)| *joined == group) {
            return Ok(());
        }
        let os = |(what, source)| JoinError::Os { group, what, source };
        let socket = socket::group_receiver(config, interface, group).map_err(os)?;
        let socket = OwnDescriptor::new(socket);
        let epoll = |source| os(("epoll", source));
        let readiness = match self.readiness.take() {
            Some(readiness) => readiness,
            None => Readiness::new().map_err(epoll)?,
        };
        let added = readiness.add(socket.as_fd(), self.next);
        self.readiness = Some(readiness);
        added.map_err(epoll)?;
        self.sockets.push((self.next, group, socket));
        self.next += 1;
        Ok(())
    }

    /// Joins the groups on another interface, which has the port's address now. A group that cannot be joined there
    /// stays on the old one.
    pub(super) fn follow(&mut self, config: &PortConfig, interface: u32) {
        let Some(readiness) = &self.readiness else { return };
        for (token, group, socket) in &mut self.sockets {
            if let Ok(fresh) = socket::group_receiver(config, interface, *group)
                && readiness.add(fresh.as_fd(), *token).is_ok()
            {
                self.drops += of(socket);
                let old = mem::replace(socket, OwnDescriptor::new(fresh));
                forget(readiness, &old);
            }
        }
    }

    /// Leaves a group.
    pub(super) fn leave(&mut self, group: IpAddr) {
        let Some(at) = self.sockets.iter().position(|(_, joined, _)| *joined == group) else {
            return;
        };
        let (_, _, socket) = self.sockets.swap_remove(at);
        self.drops += of(&socket);
        if let Some(readiness) = &self.readiness {
            forget(readiness, &socket);
        }
        drop(socket);
        if self.sockets.is_empty() {
            self.readiness = None;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Returns the readable sockets and their groups.
    pub(super) fn readable(&self) -> io::Result<impl Iterator<Item = (IpAddr, BorrowedFd<'_>)>> {
        let tokens = self.readiness.as_ref().map(Readiness::readable).transpose()?;
        let find = |token| self.sockets.iter().find(|(of, ..)| *of == token);
        let found = tokens.unwrap_or_default().into_iter().filter_map(find);
        Ok(found.map(|(_, group, socket)| (*group, socket.as_fd())))
    }

    /// Returns a descriptor that is readable when one of the sockets is.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.readiness.as_ref().map(Readiness::as_fd)
    }

    /// Returns the number of datagrams dropped for lack of space.
    pub(super) fn drops(&self) -> u64 {
        self.drops + self.sockets.iter().map(|(_, _, socket)| of(socket)).sum::<u64>()
    }
}

/// Removes a socket from the epoll instance before it is closed. Closing it does not remove it if a forked process has
/// it too.
fn forget(readiness: &Readiness, socket: &Socket) {
    let _ = readiness.remove(socket.as_fd());
}

/// Returns the number of datagrams that a socket dropped for lack of space. Some sandboxes do not report it.
fn of(socket: &Socket) -> u64 {
    sys::drops(socket.as_fd()).unwrap_or(0).into()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::process;

    use super::super::tests::{burst, config, open, path, receive};
    use super::*;
    use crate::port::{Control, Datapath, wait_readable};
    use crate::time::Instant;

    /// Returns a group that no other run of the tests uses.
    fn group(number: u8) -> IpAddr {
        let [.., high, low] = process::id().to_be_bytes();
        Ipv4Addr::new(239, 192 | number, high, low).into()
    }

    #[test]
    fn each_port_that_has_joined_receives_once_and_others_do_not() {
        let group = group(1);
        let mut ports = [(); 3].map(|()| open(&config()));
        let [sender, group_receiver, _] = &mut ports;
        for port in [&mut *sender, &mut *group_receiver] {
            port.join(group).unwrap();
            port.join(group).unwrap();
        }
        let path = path(sender, group, 0xc000);
        let bursts = [burst(path, &[1040, 1040, 20]), burst(path, &[64])];
        assert_eq!(sender.transmit(Instant::ZERO, &bursts), Ok(2));
        for port in [&mut *sender, &mut *group_receiver] {
            let buffers = receive(port, 4);
            let lens: Vec<_> = buffers.iter().flat_map(|buffer| buffer.lens()).collect();
            assert_eq!(lens, [1040, 1040, 20, 64]);
            for buffer in buffers {
                assert_eq!(buffer.meta.source, (path.source, path.source_port).into());
                assert_eq!((buffer.meta.destination, buffer.meta.hop_limit), (group, 64));
            }
        }
        for port in &mut ports {
            assert_eq!(port.receive(Instant::ZERO, &mut |_| panic!("a buffer")).unwrap(), 0);
        }
        assert_eq!(ports[0].counters().rx_datagrams, 4);
    }

    #[test]
    fn a_group_that_is_left_is_heard_no_more() {
        let groups = [group(2), group(3)];
        let (mut sender, mut group_receiver) = (open(&config()), open(&config()));
        for group in groups {
            group_receiver.join(group).unwrap();
        }
        assert_eq!(group_receiver.descriptors().len(), 2, "however many groups there are");
        // A forked process would have it too.
        let _held = group_receiver.groups.sockets[0].2.try_clone().unwrap();
        group_receiver.leave(groups[0]);
        for group in groups {
            let path = path(&mut sender, group, 0xc000);
            assert_eq!(sender.transmit(Instant::ZERO, &[burst(path, &[64])]), Ok(1));
        }
        let buffers = receive(&mut group_receiver, 1);
        assert_eq!(buffers[0].meta.destination, groups[1]);
        assert!(!wait_readable(&group_receiver.descriptors(), Some(Default::default())).unwrap());
        group_receiver.leave(groups[1]);
        group_receiver.leave(groups[1]);
        assert_eq!(group_receiver.descriptors().len(), 1);
    }

    #[test]
    fn groups_that_have_followed_to_an_interface_are_heard_there_alone() {
        let group = group(5);
        let (mut sender, mut group_receiver) = (open(&config()), open(&config()));
        group_receiver.join(group).unwrap();
        // A forked process would have it too.
        let _held = group_receiver.groups.sockets[0].2.try_clone().unwrap();
        let (config, interface) = (group_receiver.config.clone(), group_receiver.info().interface);
        group_receiver.groups.follow(&config, interface);
        let path = path(&mut sender, group, 0xc000);
        assert_eq!(sender.transmit(Instant::ZERO, &[burst(path, &[64])]), Ok(1));
        assert_eq!(receive(&mut group_receiver, 1).len(), 1);
        assert!(!wait_readable(&group_receiver.descriptors(), Some(Default::default())).unwrap());
    }

    #[test]
    fn hop_limit_and_traffic_class_are_as_asked_for() {
        let group = group(4);
        let (mut sender, mut group_receiver) = (open(&config()), open(&config()));
        group_receiver.join(group).unwrap();
        let mut path = path(&mut sender, group, 0xc000);
        (path.hop_limit, path.traffic_class) = (1, 0x48);
        assert_eq!(sender.transmit(Instant::ZERO, &[burst(path, &[64])]), Ok(1));
        let meta = receive(&mut group_receiver, 1)[0].meta;
        assert_eq!((meta.hop_limit, meta.traffic_class), (1, 0x48));
    }

    #[test]
    fn join_refuses_addresses_that_are_no_group() {
        let mut port = open(&config());
        let ip = port.info().ip;
        for other in ["127.0.0.1", "ff15::1"] {
            let error = port.join(other.parse().unwrap()).unwrap_err().to_string();
            let rest = "it is no multicast group of the IP version of";
            assert_eq!(error, format!("cannot join {other}: {rest} {ip}"));
        }
    }
}
