//! Why a flow took as long as it took, in words.

use std::fmt;

use super::figures::{Missing, Retransmissions, Waits};
use super::flow::Flow;
use super::kind::{Kind, Line, Nak, Phase};
use super::quantity::{Count, Rate, Share, Size, Span};
use super::series::Distribution;
use super::stream::{Recovery, Stream, Traffic};

/// Something that a flow's time went into, or that explains it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reason {
    /// Which of the flow's streams it is of.
    pub stream: usize,
    /// The use of time, or the fact.
    pub what: ReasonKind,
    /// The time it took, in nanoseconds.
    pub time: u64,
    /// The same as a share of the stream's time.
    pub share: f64,
}

/// The content of a [`Reason`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ReasonKind {
    /// A NAK ended the connection.
    Refused {
        /// What it says.
        nak: Nak,
        /// When, in nanoseconds after the stream began.
        after: u64,
    },
    /// The last requests were never acknowledged.
    Unanswered {
        /// How many.
        requests: u64,
        /// Packets that were retransmitted after a timeout.
        again: u64,
    },
    /// Timers had to run out.
    Timeouts(Waits),
    /// RNR NAKs.
    NotReady(Waits),
    /// Packets were retransmitted.
    Retransmissions {
        /// Why.
        again: Retransmissions,
        /// Of so many in all.
        requests: u64,
    },
    /// Packets were lost.
    Lost(Missing),
    /// Answers were waited for.
    Waiting {
        /// Bytes in flight, the median.
        in_flight: u64,
        /// How long answers took, if that was measured and matters.
        round_trip: Option<RoundTrip>,
    },
    /// Nothing was under way.
    Idle,
    /// Requests or the data of READs followed one another without a wait.
    Busy,
    /// Routers or the peer told of congestion.
    Congested {
        /// Congestion notifications.
        cnps: u64,
        /// Packets marked.
        marked: u64,
    },
    /// Packets overtook each other, or came twice.
    Astray {
        /// Out of order.
        out_of_order: u64,
        /// Copies.
        duplicates: u64,
    },
    /// Requests never came to the point of capture.
    NeverCaptured {
        /// How many.
        requests: u64,
        /// The service does not retransmit.
        is_lost: bool,
    },
}

/// How long answers take, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoundTrip {
    /// One in twenty is as fast.
    pub fast: u64,
    /// The median.
    pub median: u64,
    /// One in ten is as slow.
    pub slow: u64,
    /// The mean.
    pub mean: u64,
}

/// Share of the time from which on a reason is listed.
const MIN_LISTED_SHARE: f64 = 0.01;

impl Flow {
    /// The causes of its duration and other remarkable facts, those that cost the most time first.
    pub fn reasons(&self) -> Vec<Reason> {
        let mut reasons = Vec::new();
        for (at, stream) in self.streams.iter().enumerate() {
            let duration = stream.duration();
            let parts = took(stream).into_iter().map(|(what, time)| {
                let share = if duration > 0 { time as f64 / duration as f64 } else { 0.0 };
                Reason { stream: at, what, time, share }
            });
            let worth = |reason: &Reason| reason.share >= MIN_LISTED_SHARE;
            reasons.extend(parts.filter(worth));
            reasons.extend(remarkable(stream).into_iter().map(|what| Reason {
                stream: at,
                what,
                time: 0,
                share: 0.0,
            }));
        }
        // The end of a connection goes before everything else.
        let ends = |reason: &Reason| {
            matches!(reason.what, ReasonKind::Refused { .. } | ReasonKind::Unanswered { .. })
        };
        reasons.sort_by_key(|reason| (!ends(reason), std::cmp::Reverse(reason.time)));
        reasons
    }
}

/// What its time went into.
fn took(stream: &Stream) -> Vec<(ReasonKind, u64)> {
    let waited = stream.spent(Phase::Waiting);
    let matters = waited > stream.duration() / 5;
    let round_trip = round_trips(stream).filter(|_| matters).map(|all| RoundTrip {
        fast: all.quantile(0.05),
        median: all.median(),
        slow: all.quantile(0.9),
        mean: all.mean(),
    });
    let waiting = ReasonKind::Waiting { in_flight: stream.in_flight.bytes.median(), round_trip };
    let again = ReasonKind::Retransmissions {
        again: stream.recovery.again,
        requests: stream.traffic.requests,
    };
    vec![
        (ReasonKind::Timeouts(stream.recovery.timeouts), stream.spent(Phase::Timeout)),
        (ReasonKind::NotReady(stream.recovery.rnr), stream.spent(Phase::Rnr)),
        (again, stream.spent(Phase::Repeating)),
        (waiting, waited),
        (ReasonKind::Idle, stream.spent(Phase::Idle)),
        (ReasonKind::Busy, stream.spent(Phase::Sending) + stream.spent(Phase::Receiving)),
    ]
}

/// The times from requests to acknowledgements, or where none was measured to the answers of READs or
/// atomics.
fn round_trips(stream: &Stream) -> Option<&Distribution> {
    if stream.in_flight.ack_rtt.count() > 0 {
        return Some(&stream.in_flight.ack_rtt);
    }
    let answered = |kind: &Kind| !matches!(kind, Kind::Send | Kind::Write);
    let answered = stream.operations.iter().filter(|(kind, _)| answered(kind));
    let most = answered.max_by_key(|(_, messages)| messages.latency.count());
    most.map(|(_, messages)| &messages.latency)
}

/// What takes no time by itself.
fn remarkable(stream: &Stream) -> Vec<ReasonKind> {
    let Recovery { refused, missing, again, unacknowledged, .. } = &stream.recovery;
    let Traffic { cnps, ecn_marked, out_of_order, duplicates, .. } = stream.traffic;
    let mut found = Vec::new();
    if let Some((nak, at)) = *refused {
        found.push(ReasonKind::Refused { nak, after: at.saturating_sub(stream.first) });
    } else if *unacknowledged > 0 && again.by_timeout > 0 && gave_up(stream) {
        let (requests, again) = (*unacknowledged, again.by_timeout);
        found.push(ReasonKind::Unanswered { requests, again });
    }
    let parts =
        stream.spent(Phase::Repeating) as f64 >= MIN_LISTED_SHARE * stream.duration() as f64;
    if !parts && again.total() > again.by_timeout + again.by_rnr {
        found
            .push(ReasonKind::Retransmissions { again: *again, requests: stream.traffic.requests });
    }
    if missing.lost_before + missing.lost_behind + missing.responses > 0 {
        found.push(ReasonKind::Lost(*missing));
    }
    if cnps + ecn_marked > 0 {
        found.push(ReasonKind::Congested { cnps, marked: ecn_marked });
    }
    if out_of_order + duplicates > 0 {
        found.push(ReasonKind::Astray { out_of_order, duplicates });
    }
    if missing.never() > 0 {
        let is_lost = !stream.is_reliable();
        found.push(ReasonKind::NeverCaptured { requests: missing.never(), is_lost });
    }
    found
}

/// Whether the last thing that a requester did was to send again.
fn gave_up(stream: &Stream) -> bool {
    let last = |line| stream.trace(line).cells().last().map(|cell| cell.at);
    last(Line::AgainTimeout) > last(Line::Acknowledged)
}

impl Reason {
    /// A few words: `timeouts 71 %`.
    pub fn brief(&self) -> String {
        let name = self.what.name();
        if self.time > 0 { format!("{name} {}", Share(self.share)) } else { name.to_owned() }
    }
}

impl ReasonKind {
    /// A word or two.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "refused",
            Self::Unanswered { .. } => "unanswered",
            Self::Timeouts(_) => "timeouts",
            Self::NotReady(_) => "receiver not ready",
            Self::Retransmissions { .. } => "retransmitting",
            Self::Lost(_) => "losses",
            Self::Waiting { .. } => "waiting for answers",
            Self::Idle => "nothing under way",
            Self::Busy => "busy",
            Self::Congested { .. } => "congestion",
            Self::Astray { .. } => "astray",
            Self::NeverCaptured { is_lost: true, .. } => "lost",
            Self::NeverCaptured { is_lost: false, .. } => "not captured",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.time > 0 {
            write!(f, "{} of the time ({}): ", Share(self.share), Span(self.time))?;
        }
        write!(f, "{}", self.what)
    }
}

impl fmt::Display for ReasonKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Refused { nak, after } => {
                write!(f, "ended by a NAK ({}) after {}", nak.name(), Span(after))
            }
            Self::Unanswered { requests, again } => write!(
                f,
                "ends without an answer: {requests} never acknowledged, {again} retransmitted after \
                 timeouts"
            ),
            Self::Timeouts(waits) => {
                let each = Span(waits.total.checked_div(waits.ended).unwrap_or_default());
                let timeouts = Count(waits.count, "timeout");
                write!(f, "{timeouts} of {each} on average: no NAK reported a loss")
            }
            Self::NotReady(waits) => {
                let each = Span(waits.total.checked_div(waits.ended).unwrap_or_default());
                write!(
                    f,
                    "the receiver was not ready {} and had the sender wait, {each} on average: it \
                     posts too few receive requests, or too late",
                    Count(waits.count, "time")
                )
            }
            Self::Retransmissions { again, requests } => sent_again(f, &again, requests),
            Self::Lost(missing) => lost(f, &missing),
            Self::Waiting { in_flight, round_trip } => waiting(f, in_flight, round_trip),
            Self::Idle => f.write_str(
                "nothing was under way: the program posted nothing, or waited for the other side",
            ),
            Self::Busy => {
                f.write_str("requests or data arrived without a pause: the sender sets the pace")
            }
            Self::Congested { cnps, marked } => write!(
                f,
                "congestion on the path: {marked} packets marked by routers (ECN), {cnps} \
                 notifications (CNP)"
            ),
            Self::Astray { out_of_order, duplicates } => {
                listed(f, &[(out_of_order, "out of order"), (duplicates, "doubled")])
            }
            Self::NeverCaptured { requests, is_lost: true } => {
                write!(f, "{requests} packets never arrived here and are not retransmitted")
            }
            Self::NeverCaptured { requests, is_lost: false } => write!(
                f,
                "the capture lacks {requests} packets that were not retransmitted: it is incomplete"
            ),
        }
    }
}

fn sent_again(f: &mut fmt::Formatter<'_>, again: &Retransmissions, requests: u64) -> fmt::Result {
    let total = again.total();
    let share = Share(total as f64 / requests.max(1) as f64);
    write!(f, "{} retransmitted ({share}", Count(total, "packet"))?;
    match again.bytes {
        0 => f.write_str(")")?,
        bytes => write!(f, ", {})", Size(bytes))?,
    }
    let causes = [
        (again.by_nak, "for a NAK"),
        (again.by_timeout, "after a timeout"),
        (again.by_rnr, "after an RNR NAK"),
        (again.implied, "for a later response"),
        (again.unexplained, "without a captured cause"),
        (again.spurious, "with an acknowledgement captured before"),
    ];
    let parts = causes.iter().filter(|(count, _)| *count > 0);
    for (at, (count, why)) in parts.enumerate() {
        write!(f, "{} {count} {why}", if at == 0 { ":" } else { "," })?;
    }
    Ok(())
}

fn lost(f: &mut fmt::Formatter<'_>, missing: &Missing) -> fmt::Result {
    listed(
        f,
        &[
            (missing.lost_before, "lost before the point of capture"),
            (missing.lost_behind, "lost behind the point of capture"),
            (missing.responses, "missing among answers to READs"),
        ],
    )
}

/// Packets of several sorts, but for sorts of which there is none.
fn listed(f: &mut fmt::Formatter<'_>, counts: &[(u64, &str)]) -> fmt::Result {
    let parts = counts.iter().filter(|(count, _)| *count > 0);
    for (at, (count, what)) in parts.enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        write!(f, "{comma}{} {what}", Count(*count, "packet"))?;
    }
    Ok(())
}

fn waiting(
    f: &mut fmt::Formatter<'_>,
    in_flight: u64,
    round_trip: Option<RoundTrip>,
) -> fmt::Result {
    f.write_str("waiting for answers")?;
    let Some(RoundTrip { fast, median, slow, mean }) = round_trip else { return Ok(()) };
    if mean / SPREAD_FACTOR > median {
        let (median, slow) = (Span(median), Span(slow));
        return write!(
            f,
            ": half of them took {median} or less, but one in ten {slow} or more: the other side or \
             the way stalls"
        );
    }
    let limit = Rate::of(in_flight, median).filter(|_| in_flight > 0);
    let Some(limit) = limit else { return Ok(()) };
    let in_flight = Size(in_flight);
    write!(f, ": {in_flight} in flight and {} round trip make {limit}", Span(median))?;
    if median / SPREAD_FACTOR > fast {
        let fast = Span(fast);
        write!(f, "; fast ones take {fast}, so packets queue up: the other side or the way is slow")
    } else {
        f.write_str("; with more in flight it would be faster")
    }
}

/// A time that is so many times another has another cause.
const SPREAD_FACTOR: u64 = 4;
