//! Simulated hosts for the examples without a runtime: an engine with one queue pair, a port, and a region.

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;

use softroce::engine::{
    Config, Engine, InitAttr, Peer, QpAttr, QpCap, QpInit, QpType, RtrAttr, RtsAttr,
};
use softroce::ids::{CqId, Mtu, PdId, Qpn};
use softroce::mem::{Access, HostMemory, Memory, Region};
use softroce::net::AddressVector;
use softroce::port::Control;
use softroce::port::sim::{Network, SimPort};
use softroce::psn::Psn;
use softroce::time::{AckTimeout, Instant, RnrTimer};
use softroce::transport::work::Sge;

pub(crate) struct Host {
    pub(crate) ip: IpAddr,
    pub(crate) engine: Engine,
    pub(crate) port: SimPort,
    pub(crate) region: Arc<Region>,
    pub(crate) qpn: Qpn,
}

impl Host {
    pub(crate) fn new(network: &Network, ip: [u8; 4]) -> Result<Self, Box<dyn Error>> {
        // Protection domains and completion queues are plain numbers in the engine.
        let (pd, cq) = (PdId(1), CqId(1));
        let ip = IpAddr::from(ip);
        // Seeds of memory keys and queue pair numbers. Programs with real peers use random seeds.
        let memory = Arc::new(Memory::new([1; 32]));
        let mut engine = Engine::new(Config::new(ip), Arc::clone(&memory), [2; 32]);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = memory.register(pd, HostMemory::alloc(64 << 10)?, None, access)?;
        let qp = QpInit {
            qp_type: QpType::Rc,
            pd,
            send_cq: Some(cq),
            recv_cq: Some(cq),
            cap: QpCap::default(),
            sq_sig_all: false,
            srq: None,
            send_ops: None,
            xrcd: None,
        };
        let qpn = engine.create_qp(Instant::ZERO, qp)?;
        Ok(Self { ip, engine, port: network.host(ip), region, qpn })
    }

    /// Takes the queue pair from RESET to RTS. Real peers exchange this information over another channel.
    pub(crate) fn connect(&mut self, peer: &Self) -> Result<(), Box<dyn Error>> {
        let (first, av) = (Psn::new(0), AddressVector::to(peer.ip.into()));
        let peer = Peer { av, dest_qpn: peer.qpn, rq_psn: first, path_mtu: Mtu::Mtu1024 };
        let steps: [QpAttr; 3] = [
            InitAttr::Connected { access: Access::REMOTE_WRITE }.into(),
            RtrAttr::Rc { peer, max_dest_rd_atomic: 1, min_rnr_timer: RnrTimer::default() }.into(),
            RtsAttr::Rc {
                sq_psn: first,
                // 4.096 µs × 2^8 is about a millisecond.
                timeout: AckTimeout::new(8).unwrap_or_default(),
                retry_cnt: 7,
                rnr_retry: 7,
                max_rd_atomic: 1,
            }
            .into(),
        ];
        for step in &steps {
            // The engine proposes a UDP source port, and the port decides.
            let agree = |from, wanted| self.port.source_port(from, wanted);
            self.engine.modify_qp(Instant::ZERO, self.qpn, step, agree)?;
        }
        Ok(())
    }

    /// Returns a scatter/gather element for the first bytes of the region.
    pub(crate) fn sge(&self, length: u32) -> Sge {
        Sge { addr: self.region.addr(), length, lkey: self.region.lkey() }
    }
}
