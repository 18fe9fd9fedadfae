//! Losses that a retransmission repairs: what was lost, which side noticed, and how long it took.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use softroce::wire::Transport;
use softroce::wire::text::PacketLine;

use crate::flow::{Cause, SeenPacket, SequenceEvent};
use crate::merge::{Fate, Sighting};

/// The loss of a packet, as its retransmission shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loss {
    /// The packet as text: `SEND_MIDDLE psn=7`.
    pub what: String,
    /// Packet of the capture that was lost behind the point of capture; `None` if it was lost before.
    pub original: Option<u64>,
    /// Fate of that packet between two captures, if both ends were captured.
    pub fate: Option<Fate>,
    /// Host that noticed the loss.
    pub noticed_by: IpAddr,
    /// Sign of the loss.
    pub notice: Notice,
    /// Time from the lost packet to the sign, if the capture has both.
    pub noticed_after: Option<Duration>,
    /// Time from the lost packet, or from the sign if the capture lacks that packet, to the retransmission.
    pub repaired_after: Option<Duration>,
}

/// Sign of a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A NAK.
    Nak {
        /// Packet with the NAK.
        packet: u64,
    },
    /// An answer to a later request.
    LaterAnswer {
        /// Packet with the answer.
        packet: u64,
    },
    /// The ACK timer expired.
    Timer,
}

impl Loss {
    /// Returns the loss that the first packet of a row of retransmissions repairs. An RNR NAK is no loss, and a retransmission without a captured
    /// cause may be a copy made by the network.
    pub(super) fn of(
        event: &SequenceEvent,
        seen: &SeenPacket<'_>,
        times: &NewestPackets<Duration>,
        sightings: &NewestPackets<Sighting>,
    ) -> Option<Self> {
        let SequenceEvent::Retransmitted {
            original, cause, acknowledged, begins_row: true, ..
        } = *event
        else {
            return None;
        };
        // UC does not retransmit.
        if seen.datagram.bth.opcode.transport() == Transport::Uc {
            return None;
        }
        let original_time = original.and_then(|packet| times.of(packet));
        let (notice, noticed_by, noticed_at, noticed_after) = match cause {
            Cause::Nak { packet } => {
                (Notice::Nak { packet }, seen.destination, times.of(packet), None)
            }
            Cause::Implied { packet } => {
                (Notice::LaterAnswer { packet }, seen.source, times.of(packet), None)
            }
            Cause::Timeout { waited } => (Notice::Timer, seen.source, None, Some(waited)),
            Cause::Rnr { .. } | Cause::Unknown => return None,
        };
        let line = PacketLine(seen.datagram);
        let answer_is_lost = acknowledged || matches!(cause, Cause::Implied { .. });
        Some(Self {
            what: match cause {
                _ if answer_is_lost => format!("the answer to {line}"),
                Cause::Timeout { .. } => format!("{line} or its answer"),
                _ => line.to_string(),
            },
            original,
            fate: original.and_then(|packet| sightings.of(packet)).map(|of| of.fate),
            noticed_by,
            notice,
            noticed_after: noticed_after.or_else(|| between(original_time, noticed_at)),
            repaired_after: between(original_time.or(noticed_at), seen.time),
        })
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, original, fate, noticed_by, notice, noticed_after, repaired_after } = self;
        write!(f, "lost: {what}")?;
        match original {
            Some(packet) if fate.is_some_and(|fate| fate != Fate::Unknown) => {
                write!(f, ": packet {packet} {}", fate.map_or("", place))?;
            }
            Some(packet) => write!(f, ", behind the point of capture after packet {packet}")?,
            None => f.write_str(", before the point of capture")?,
        }
        write!(f, "; noticed by {noticed_by} ")?;
        match notice {
            Notice::Nak { packet } => write!(f, "with the NAK in packet {packet}")?,
            Notice::LaterAnswer { packet } => write!(f, "at the later answer in packet {packet}")?,
            Notice::Timer => f.write_str("when its ACK timer expired")?,
        }
        if let Some(after) = noticed_after {
            write!(f, " after {after:?}")?;
        }
        if let Some(after) = repaired_after {
            let since = if original.is_some() { "the loss" } else { "the notice" };
            write!(f, "; retransmitted here {after:?} after {since}")?;
        }
        Ok(())
    }
}

/// Returns the place of a loss, after the number of the packet.
pub(super) const fn place(fate: Fate) -> &'static str {
    match fate {
        Fate::Lost => "was lost on the way",
        Fate::Damaged => "was damaged on the way",
        Fate::Arrived | Fate::MissedAtSender | Fate::Duplicated => {
            "arrived at the receiver's capture"
        }
        Fate::Unknown => "was lost behind the point of capture",
    }
}

/// A fact of each of the newest packets, by their numbers.
#[derive(Debug)]
pub(super) struct NewestPackets<T> {
    newest: Vec<(u64, Option<T>)>,
}

/// Number of packets with a recorded fact.
const MAX_NEWEST: u64 = 1 << 14;

impl<T> Default for NewestPackets<T> {
    fn default() -> Self {
        Self { newest: Vec::new() }
    }
}

impl<T: Copy> NewestPackets<T> {
    pub(super) fn push(&mut self, packet: u64, fact: Option<T>) {
        if fact.is_none() {
            return;
        }
        let at = usize::try_from(packet % MAX_NEWEST).unwrap_or_default();
        if self.newest.len() <= at {
            self.newest.resize(at + 1, (0, None));
        }
        self.newest[at] = (packet, fact);
    }

    /// Returns the fact of a packet that is not too old.
    pub(super) fn of(&self, packet: u64) -> Option<T> {
        let at = usize::try_from(packet % MAX_NEWEST).ok()?;
        self.newest.get(at).filter(|(number, _)| *number == packet)?.1
    }
}

fn between(then: Option<Duration>, now: Option<Duration>) -> Option<Duration> {
    now?.checked_sub(then?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_newest_packets_are_known() {
        let mut times = NewestPackets::default();
        let time = |packet| Duration::from_micros(packet);
        for packet in 1..=MAX_NEWEST + 5 {
            times.push(packet, (packet != 9).then(|| time(packet)));
        }
        assert_eq!((times.of(5), times.of(9), times.of(MAX_NEWEST + 6)), (None, None, None));
        for packet in [6, 10, MAX_NEWEST + 5] {
            assert_eq!(times.of(packet), Some(time(packet)));
        }
    }
}
