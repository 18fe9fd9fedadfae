//! Packet formats.
//!
//! A RoCEv2 packet is an InfiniBand packet in a UDP datagram to port 4791. This crate calls the UDP payload a
//! *datagram*:
//!
//! ```text
//!  ┌──────────┬────────────┬─────┬─────┬───────────────┬─────────┬─────┬──────┐
//!  │ Ethernet │ IPv4 20 or │ UDP │ BTH │ extension     │ payload │ pad │ ICRC │
//!  │ 14 or 18 │ IPv6 40    │ 8   │ 12  │ headers, 0–40 │ 0–4096  │ 0–3 │ 4    │
//!  └──────────┴────────────┴─────┴─────┴───────────────┴─────────┴─────┴──────┘
//!  └─────────── encap ───────────┘└──────────── packet::Datagram ─────────────┘
//!             └───────────────── covered by the ICRC ──────────────────┘
//! ```
//!
//! * Every packet starts with the [`Bth`]. Its [`Opcode`] selects the transport service, the operation, the position
//!   of the packet in its message, and the extension headers ([`Layout`]).
//! * The payload is padded to a multiple of four bytes; the BTH contains the number of padding bytes.
//! * The *invariant CRC* ([`icrc`]) covers all parts that routers do not change, from the IP header to the padding.
//!   It is the only little-endian field.
//!
//! Every header is a plain struct with `parse` and `write` for arrays of its length. [`Datagram`] checks all lengths
//! when it is parsed, and then provides each header; [`Builder`] writes the headers in place. [`sequence`] defines
//! which opcode may follow which, [`text`] formats a packet as one line, [`cm`] parses messages of the connection
//! manager, and [`encap`] contains the parts of Ethernet, IP and UDP that captures need.
//!
//! ```
//! use softroce::ids::{PKey, Qpn};
//! use softroce::net::Ipv4Fields;
//! use softroce::psn::Psn;
//! use softroce::wire::icrc::{Flow, Verdict};
//! use softroce::wire::{Bth, Builder, Datagram, Opcode, packet};
//!
//! let bth = Bth {
//!     opcode: Opcode::RcSendOnly,
//!     pad: 3,
//!     ack_req: true,
//!     dest_qp: Qpn::new(0x12),
//!     psn: Psn::new(1),
//!     ..Bth::default()
//! };
//! let mut bytes = vec![0; packet::datagram_len(Opcode::RcSendOnly, 5)];
//! Builder::new(&bth, &mut bytes)?.payload_mut().copy_from_slice(b"hello");
//! let flow = Flow::new("10.0.0.1:49443".parse()?, "10.0.0.2:4791".parse()?);
//! flow.seal(0, &mut bytes);
//!
//! let datagram = Datagram::parse(&bytes)?;
//! assert_eq!((datagram.bth, datagram.payload), (bth, &b"hello"[..]));
//! let seen = Ipv4Fields { id: 0, dont_fragment: true };
//! assert_eq!(flow.check(Some(seen), 0, &bytes), Verdict::Good);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod aeth;
pub mod atomic;
pub mod bth;
pub mod cm;
pub mod cnp;
pub mod deth;
pub mod encap;
mod error;
pub mod feth;
pub mod icrc;
pub mod ieth;
pub mod imm;
pub mod mad;
pub mod opcode;
pub mod packet;
pub mod rdeth;
pub mod reth;
pub mod sequence;
pub mod text;
pub mod xrceth;

pub use aeth::{Aeth, NakCode, Syndrome};
pub use atomic::{AtomicAckEth, AtomicEth};
pub use bth::Bth;
pub use cnp::Cnp;
pub use deth::Deth;
pub use error::ParseError;
pub use feth::FlushEth;
pub use ieth::Ieth;
pub use imm::ImmDt;
pub use mad::Mad;
pub use opcode::{
    Header, Layout, Opcode, OpcodeFlags, OpcodeInfo, Operation, Position, Suffix, Transport,
};
pub use packet::{Builder, Datagram};
pub use rdeth::RdEth;
pub use reth::Reth;
pub use sequence::{Sequence, SequenceError};
pub use xrceth::XrcEth;
