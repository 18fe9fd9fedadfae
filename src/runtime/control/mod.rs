//! The control socket of a device: other programs of the user read its counters and capture its packets.
//!
//! Each device listens at an abstract Unix socket. The name belongs to the network namespace, as the device's address
//! does: `softroce/ADDRESS/control/PID.NUMBER`. The kernel frees the name when the process ends, in whatever way.
//! Either side accepts only a peer with its own user. A program with privileges of its own, and one that does not
//! permit tracing (`PR_SET_DUMPABLE`), has no control socket.
//!
//! The device's thread accepts connections; while no client is connected, the socket needs no thread and no time. Each
//! connection has a thread. The client sends a line ([`Request`]), and the device replies with a line of JSON:
//!
//! ```text
//! ──▶ softroce 1 status
//! ◀── {"version":1,"device":"softroce0","ip":"127.0.0.1",…,"listeners":[…],"qps":[{"qp":17,"type":"RC",…}]}
//! ──▶ softroce 1 capture snap_len=128 qp=17
//! ◀── {"version":1,"device":"softroce0",…}
//! ◀── records: a RecordHeader and the packet, which begins with the IP header
//! ```
//!
//! A refused request gets `{"version":1,"error":"…"}`. A connection takes any number of `status`; `capture` is the last
//! request, and its records end with one that [`RecordHeader::is_end`] when the device is closed. A capture never delays
//! the device: packets that find the buffer full are counted and dropped.

mod announce;
mod buffer;
mod json;
mod name;
mod record;
mod request;
mod server;
mod status;

pub use announce::{NewDevice, NewDevices};
pub use name::{Client, ConnectError, SocketName, sockets};
pub use record::{RecordError, RecordHeader};
pub use request::{CaptureFilter, Request, RequestError};

pub(crate) use server::{About, ControlServer};
