//! Connections in a capture: which packets belong together, and what each of them does there.
//!
//! A packet names only the queue pair it goes to. So what is known at first are *directions*, and a
//! connection is two of them:
//!
//! ```text
//!   A ──── to B, queue pair b: requests of A, answers to B ────▶ B
//!   A ◀─── to A, queue pair a: requests of B, answers to A ───── B
//! ```
//!
//! They are joined when one of them holds an answer to what the other asked ([`Joined`] says how sure
//! that is), or by the messages of the connection managers. From then on the tracker compares each packet
//! with those before it, and reports each remarkable fact as an [`Event`]. It does not judge:
//! [`check`](crate::check) makes findings of events.
//!
//! [`Limits`] bound the memory. Packets that the tracker has forgotten cause no events.
//!
//! | file | |
//! |---|---|
//! | `seen`, `event` | input and output: a packet, and the events that it causes |
//! | `record`, `read`, `message`, `history` | requests of one direction |
//! | `answers` | the responder's state, as its answers show it |
//! | `requests`, `responses` | what a request and an answer change in both |
//! | `directions`, `join`, `cm` | directions, and the pairs of them that are connections |
//! | `conversation` | messages of connection managers that belong together |
//! | `loopback` | the received copies of packets that a device sends to itself |
//! | `tracker` | all connections of a capture |

mod answers;
mod cm;
mod conversation;
mod directions;
mod event;
mod history;
mod join;
mod loopback;
mod message;
mod read;
mod record;
mod requests;
mod responses;
mod seen;
mod tracker;

pub(crate) use conversation::transport;
pub use conversation::{
    CmConversation, CmConversations, CmPlace, CmRelation, Outcome, Repeated, Steps, Subject,
};
pub use event::{
    Cause, CmEvent, Event, NakEvent, ReadResponse, RequestEvent, ResponseEvent, SequenceEvent,
};
pub(crate) use loopback::LoopbackFilter;
pub use seen::{Direction, Joined, SeenPacket};
pub use tracker::{Limits, Tracker};
