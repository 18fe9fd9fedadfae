//! Multicast groups: the port joins the groups of the engine's queue pairs.

use crate::engine::McastError;
use crate::ids::{Gid, Qpn};
use crate::port::{Control, JoinError};
use crate::runtime::core::Core;

/// Error for a queue pair that cannot be attached to a group.
#[derive(Debug)]
pub(crate) enum AttachError {
    Engine(McastError),
    Port(JoinError),
}

impl Core {
    /// Attaches a queue pair to a group. For the first one the port joins the group.
    pub(crate) fn attach_mcast(&mut self, qpn: Qpn, gid: Gid) -> Result<(), AttachError> {
        if !self.engine.attach_mcast(qpn, gid).map_err(AttachError::Engine)? {
            return Ok(());
        }
        let joined = self.port.join(gid.ip());
        if joined.is_err() {
            // It was attached a line ago.
            let _ = self.detach_mcast(qpn, gid);
        }
        self.descriptors_changed = true;
        joined.map_err(AttachError::Port)
    }

    /// Detaches a queue pair from a group. After the last one the port leaves the group.
    pub(crate) fn detach_mcast(&mut self, qpn: Qpn, gid: Gid) -> Result<(), McastError> {
        self.engine.detach_mcast(qpn, gid)?;
        self.leave_groups();
        Ok(())
    }

    /// Leaves the groups without a queue pair.
    pub(super) fn leave_groups(&mut self) {
        while let Some(group) = self.engine.poll_left_group() {
            self.port.leave(group);
            self.descriptors_changed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::engine::{QpCap, QpInit, QpType};
    use crate::ids::PdId;
    use crate::runtime::AckPolicy;
    use crate::runtime::wire_of_tests::pair;
    use crate::time::Instant;

    #[test]
    fn attach_fails_if_the_port_has_no_groups() {
        let (mut end, _) = pair(AckPolicy::Lazy, 16);
        let init = QpInit {
            qp_type: QpType::Ud,
            pd: PdId(1),
            send_cq: Some(end.cq),
            recv_cq: Some(end.cq),
            cap: QpCap::default(),
            sq_sig_all: false,
            srq: None,
            send_ops: None,
            xrcd: None,
        };
        let qpn = end.core.create_qp(Instant::ZERO, init, &end.events).unwrap();
        let group = Gid::from(Ipv4Addr::new(239, 1, 2, 3));
        let refused = end.core.attach_mcast(qpn, group).unwrap_err();
        let AttachError::Port(error) = refused else { panic!("{refused:?}") };
        assert_eq!(error.to_string(), "cannot join group 239.1.2.3: this port has no multicast");
        assert_eq!(end.core.engine.mcast_groups(qpn), []);
        // It would be the first again.
        assert_eq!(end.core.engine.attach_mcast(qpn, group), Ok(true));
    }
}
