//! Operations for which a queue pair is created.

use std::fmt;

use bitflags::bitflags;

use crate::engine::attr::{QpType, list};
use crate::transport::work::SendOp;

bitflags! {
    /// Operations of a send queue, with the values of verbs.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    #[doc(alias = "ibv_qp_create_send_ops_flags")]
    pub struct SendOps: u64 {
        /// [`SendOp::Write`].
        #[doc(alias = "IBV_QP_EX_WITH_RDMA_WRITE")]
        const RDMA_WRITE = 1;
        /// [`SendOp::WriteImm`].
        #[doc(alias = "IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM")]
        const RDMA_WRITE_WITH_IMM = 1 << 1;
        /// [`SendOp::Send`].
        #[doc(alias = "IBV_QP_EX_WITH_SEND")]
        const SEND = 1 << 2;
        /// [`SendOp::SendImm`].
        #[doc(alias = "IBV_QP_EX_WITH_SEND_WITH_IMM")]
        const SEND_WITH_IMM = 1 << 3;
        /// [`SendOp::Read`].
        #[doc(alias = "IBV_QP_EX_WITH_RDMA_READ")]
        const RDMA_READ = 1 << 4;
        /// [`SendOp::CompareSwap`].
        #[doc(alias = "IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP")]
        const ATOMIC_CMP_AND_SWP = 1 << 5;
        /// [`SendOp::FetchAdd`].
        #[doc(alias = "IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD")]
        const ATOMIC_FETCH_AND_ADD = 1 << 6;
        /// [`SendOp::LocalInv`].
        #[doc(alias = "IBV_QP_EX_WITH_LOCAL_INV")]
        const LOCAL_INV = 1 << 7;
        /// [`SendOp::BindMw`].
        #[doc(alias = "IBV_QP_EX_WITH_BIND_MW")]
        const BIND_MW = 1 << 8;
        /// [`SendOp::SendInv`]. UC does not have it: no packet of UC carries a key to invalidate.
        #[doc(alias = "IBV_QP_EX_WITH_SEND_WITH_INV")]
        const SEND_WITH_INV = 1 << 9;
        /// TCP segmentation offload: Ethernet only.
        #[doc(alias = "IBV_QP_EX_WITH_TSO")]
        const TSO = 1 << 10;
        /// [`SendOp::Flush`].
        #[doc(alias = "IBV_QP_EX_WITH_FLUSH")]
        const FLUSH = 1 << 11;
        /// [`SendOp::AtomicWrite`].
        #[doc(alias = "IBV_QP_EX_WITH_ATOMIC_WRITE")]
        const ATOMIC_WRITE = 1 << 12;
    }
}

impl SendOps {
    /// Returns all operations of a service.
    pub const fn of(qp_type: QpType) -> Self {
        let sends = Self::SEND.union(Self::SEND_WITH_IMM);
        let writes = Self::RDMA_WRITE.union(Self::RDMA_WRITE_WITH_IMM);
        let windows = Self::LOCAL_INV.union(Self::BIND_MW);
        let atomics = Self::ATOMIC_CMP_AND_SWP.union(Self::ATOMIC_FETCH_AND_ADD);
        let placement = Self::FLUSH.union(Self::ATOMIC_WRITE);
        let answered = Self::RDMA_READ.union(atomics).union(placement);
        let connected = sends.union(writes).union(windows);
        match qp_type {
            QpType::Rc => connected.union(Self::SEND_WITH_INV).union(answered),
            // XRC has no opcodes for FLUSH and ATOMIC WRITE.
            QpType::XrcIni => {
                connected.union(Self::SEND_WITH_INV).union(answered.difference(placement))
            }
            QpType::XrcTgt => Self::empty(),
            QpType::Uc => connected,
            QpType::Ud => sends,
        }
    }
}

impl From<&SendOp> for SendOps {
    /// Returns the flag of an operation.
    fn from(op: &SendOp) -> Self {
        match op {
            SendOp::Send => Self::SEND,
            SendOp::SendImm { .. } => Self::SEND_WITH_IMM,
            SendOp::SendInv { .. } => Self::SEND_WITH_INV,
            SendOp::Write { .. } => Self::RDMA_WRITE,
            SendOp::WriteImm { .. } => Self::RDMA_WRITE_WITH_IMM,
            SendOp::Read { .. } => Self::RDMA_READ,
            SendOp::CompareSwap { .. } => Self::ATOMIC_CMP_AND_SWP,
            SendOp::FetchAdd { .. } => Self::ATOMIC_FETCH_AND_ADD,
            SendOp::BindMw { .. } => Self::BIND_MW,
            SendOp::LocalInv { .. } => Self::LOCAL_INV,
            SendOp::Flush { .. } => Self::FLUSH,
            SendOp::AtomicWrite { .. } => Self::ATOMIC_WRITE,
        }
    }
}

impl fmt::Display for SendOps {
    /// Writes the names, separated by commas: `SEND, RDMA_READ`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, self.iter_names().map(|(name, _)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Lkey, MwId, Rkey};
    use crate::mem::{Access, BindInfo};
    use crate::transport::work::{FlushPlacement, FlushTarget, RemoteAddr};
    use crate::wire::{Opcode, Operation, Position, Suffix};

    #[test]
    fn flags_have_the_values_of_verbs() {
        assert_eq!(SendOps::all().bits(), 0x1fff);
        assert_eq!(SendOps::RDMA_READ.bits(), 16);
        assert_eq!(SendOps::ATOMIC_WRITE.bits(), 4096);
        assert_eq!((SendOps::RDMA_READ | SendOps::SEND).to_string(), "SEND, RDMA_READ");
    }

    /// Returns one request of each operation.
    fn operations() -> [SendOp; 12] {
        let (to, at) =
            (RemoteAddr { addr: 0, rkey: Rkey(0) }, RemoteAddr { addr: 0, rkey: Rkey(0) });
        let info = BindInfo { lkey: Lkey(0), addr: 0, length: 0, access: Access::empty() };
        let target = FlushTarget::Region { rkey: Rkey(0) };
        [
            SendOp::Send,
            SendOp::SendImm { imm: 0 },
            SendOp::SendInv { rkey: Rkey(0) },
            SendOp::Write { to },
            SendOp::WriteImm { to, imm: 0 },
            SendOp::Read { from: at },
            SendOp::CompareSwap { at, expect: 0, swap: 0 },
            SendOp::FetchAdd { at, add: 0 },
            SendOp::BindMw { window: MwId(0), rkey: Rkey(0), to: info },
            SendOp::LocalInv { rkey: Rkey(0) },
            SendOp::Flush { target, placement: FlushPlacement::PERSISTENCE },
            SendOp::AtomicWrite { to },
        ]
    }

    #[test]
    fn each_operation_of_a_service_has_its_opcodes() {
        use Position::{First, Last, Middle, Only};
        for qp_type in QpType::ALL.into_iter().filter(|qp_type| qp_type.has_send_queue()) {
            let transport = qp_type.transport();
            let packets = operations().into_iter().filter_map(|op| Some((op, op.parts()?)));
            for (op, (operation, suffix)) in packets {
                let find = |position, suffix| Opcode::find(transport, operation, position, suffix);
                let has = SendOps::of(qp_type).contains(SendOps::from(&op));
                assert_eq!(
                    find(Only, suffix).is_some(),
                    has || qp_type == QpType::XrcTgt,
                    "{op:?}"
                );
                let is_message = matches!(operation, Operation::Send | Operation::Write);
                if has && is_message && qp_type != QpType::Ud {
                    let parts = [(First, Suffix::None), (Middle, Suffix::None), (Last, suffix)];
                    assert!(parts.into_iter().all(|(at, with)| find(at, with).is_some()), "{op:?}");
                }
            }
        }
    }

    #[test]
    fn services_differ_in_what_they_have() {
        let lacks = |qp_type| SendOps::all().difference(SendOps::of(qp_type)).to_string();
        assert_eq!(lacks(QpType::Rc), "TSO");
        assert_eq!(
            lacks(QpType::Uc),
            "RDMA_READ, ATOMIC_CMP_AND_SWP, ATOMIC_FETCH_AND_ADD, SEND_WITH_INV, TSO, FLUSH, \
             ATOMIC_WRITE"
        );
        assert_eq!(SendOps::of(QpType::Ud), SendOps::SEND | SendOps::SEND_WITH_IMM);
    }
}
