//! The findings that follow from events.

use std::time::Duration;

use softroce::cm::RejectReason;
use softroce::wire::text::PacketLine;
use softroce::wire::{Aeth, Datagram, NakCode, Operation, SequenceError, Syndrome, Transport};

use super::found::{RawFinding, Role};
use super::{Rule, Severity};
use crate::flow::{
    Cause, CmEvent, Event, NakEvent, ReadResponse, RequestEvent, ResponseEvent, SequenceEvent,
};

/// Checks the syndrome of an AETH.
pub(super) fn syndrome(datagram: &Datagram<'_>, found: &mut Vec<RawFinding>) {
    let Some(Aeth { syndrome, .. }) = datagram.aeth() else { return };
    match syndrome {
        Syndrome::Reserved(byte) => {
            let seen = format!("syndrome 0x{byte:02x}");
            found.push(RawFinding::violation(Rule::Syndrome, seen, "an ACK, NAK or RNR NAK"));
        }
        Syndrome::Nak(NakCode::Reserved(code)) => {
            found.push(RawFinding::violation(Rule::NakCode, format!("NAK code {code}"), "0 to 3"));
        }
        Syndrome::Nak(NakCode::InvalidRdRequest) => {
            let seen = "NAK code 4, invalid RD request";
            found.push(RawFinding::violation(Rule::NakCode, seen, "0 to 3: this is no RD"));
        }
        _ => {}
    }
}

/// Returns the finding of an event.
pub(super) fn event(event: &Event, datagram: &Datagram<'_>) -> RawFinding {
    match event {
        Event::Sequence(event) => sequence_event(event, datagram),
        Event::Request(event) => request_event(event, datagram),
        Event::Nak(event) => nak_event(event, datagram),
        Event::Response(event) => response_event(event, datagram),
        Event::ReadResponse(event) => read_response(event, datagram),
        Event::Cm(event) => cm_event(event),
    }
}

/// Returns the finding of a retransmission or missing request.
fn sequence_event(event: &SequenceEvent, datagram: &Datagram<'_>) -> RawFinding {
    let unreliable = datagram.bth.opcode.transport() == Transport::Uc;
    match *event {
        SequenceEvent::Retransmitted { original, cause, acknowledged, .. } => {
            let first = match original {
                Some(packet) => format!("first in packet {packet}"),
                None => "not captured before".to_owned(),
            };
            let late = if acknowledged { "; it was acknowledged" } else { "" };
            let seen = format!("{} retransmitted, {first}{late}", line(datagram));
            retransmission(seen, cause, unreliable)
        }
        SequenceEvent::Hole { first, count } => {
            let rule = if unreliable { Rule::UcPsnGap } else { Rule::PsnGap };
            let seen = format!("{count} requests from psn={first} on were not captured");
            let expected = "lost on their way, or not captured";
            RawFinding::new(rule, Severity::Note, Role::Unknown, seen, expected)
        }
        SequenceEvent::TooEarly { rnr, waited, timer, certain } => {
            let seen = format!("{} after {waited:?}", line(datagram));
            let expected = format!("not within {timer:?} of the RNR NAK in packet {rnr}");
            if certain {
                RawFinding::violation(Rule::RnrRetransmission, seen, expected)
            } else {
                let why = format!("{expected}, unless the network has duplicated it");
                RawFinding::new(Rule::RnrRetransmission, Severity::Note, Role::Unknown, seen, why)
            }
        }
        SequenceEvent::Restarted { expected } => {
            let seen = format!("psn={}, far from psn={expected}", datagram.bth.psn);
            let why = "a new connection of a queue pair of this number";
            RawFinding::new(Rule::PsnGap, Severity::Note, Role::Unknown, seen, why)
        }
    }
}

fn retransmission(seen: String, cause: Cause, unreliable: bool) -> RawFinding {
    let (rule, role, why) = match cause {
        _ if unreliable => (
            Rule::UcPsnGap,
            Role::Network,
            "UC does not retransmit: the network has duplicated \
             or reordered it"
                .to_owned(),
        ),
        Cause::Nak { packet } => (
            Rule::FastRetransmission,
            Role::Network,
            format!("requested by the NAK in packet {packet}"),
        ),
        Cause::Rnr { packet } => (
            Rule::RnrRetransmission,
            Role::Receiver,
            format!("delayed by the RNR NAK in packet {packet}"),
        ),
        Cause::Implied { packet } => {
            let why = format!(
                "packet {packet} responds to a later request, and the response is incomplete"
            );
            (Rule::ImpliedNak, Role::Network, why)
        }
        Cause::Timeout { waited } => {
            (Rule::TimeoutRetransmission, Role::Network, format!("a timeout after {waited:?}"))
        }
        Cause::Unknown => {
            let why = "no cause was captured; the network may have duplicated or reordered it";
            (Rule::Retransmission, Role::Unknown, why.to_owned())
        }
    };
    RawFinding::new(rule, Severity::Note, role, seen, why)
}

fn sequence(error: &SequenceError) -> RawFinding {
    let (rule, expected) = match error {
        SequenceError::Unopened { .. } => (Rule::MessageNotOpened, "FIRST or ONLY".to_owned()),
        SequenceError::Unfinished { open, found } => {
            let of = if found.operation() == Operation::Send { "SEND" } else { "WRITE" };
            let rule = match found.position().is_start() {
                false if of != *open => Rule::MessageMixed,
                _ => Rule::MessageNotFinished,
            };
            (rule, format!("MIDDLE or LAST of the {open}"))
        }
        SequenceError::NotARequest { .. } => (Rule::MessageNotFinished, "a request".to_owned()),
    };
    RawFinding::violation(rule, error.to_string(), expected)
}

/// Returns the finding of an irregular request.
fn request_event(event: &RequestEvent, datagram: &Datagram<'_>) -> RawFinding {
    let (opcode, len) = (datagram.bth.opcode, datagram.payload_len);
    let message = || format!("{opcode} with {len} bytes");
    match *event {
        RequestEvent::Sequence(error) => sequence(&error),
        RequestEvent::InsideRead { first, count } => {
            let expected = format!(
                "psn={} or later: the READ at psn={first} takes {count}",
                first.plus(count)
            );
            RawFinding::violation(Rule::PsnInsideRead, line(datagram), expected)
        }
        RequestEvent::ResumedElsewhere { expected } => {
            let expected = format!(
                "va=0x{:x} rkey={} dmalen={}, the rest of the READ",
                expected.addr, expected.rkey, expected.length
            );
            RawFinding::violation(Rule::ReadResumed, line(datagram), expected)
        }
        RequestEvent::Differs { original, opcode, len } => {
            let expected = format!("packet {original} unchanged: {opcode} with {len} bytes");
            RawFinding::violation(Rule::Retransmission, line(datagram), expected)
        }
        RequestEvent::FlushWithoutAddress { original } => {
            let expected = format!("the address that packet {original} has");
            RawFinding::sender(
                Rule::Retransmission,
                Severity::Quirk,
                "FLUSH retransmitted with address 0",
                expected,
            )
        }
        RequestEvent::NotMtu { mtu: Some(mtu) } => {
            RawFinding::violation(Rule::MtuMismatch, message(), format!("{mtu}, the path MTU"))
        }
        RequestEvent::NotMtu { mtu: None } => {
            let expected = "a path MTU: 256, 512, 1024, 2048 or 4096";
            RawFinding::violation(Rule::MtuMismatch, message(), expected)
        }
        RequestEvent::LongerThanMtu { mtu } => {
            let expected = format!("at most {mtu}, the path MTU");
            RawFinding::violation(Rule::PayloadLength, message(), expected)
        }
        RequestEvent::OtherMtu { other } => {
            let expected = format!("{other}: both sides are to use one path MTU");
            let (rule, severity) = (Rule::MtuMismatch, Severity::Violation);
            RawFinding::new(rule, severity, Role::Unknown, message(), expected)
        }
        RequestEvent::WriteLength { announced, sent } => {
            let seen = format!("a WRITE of {sent} bytes");
            RawFinding::violation(
                Rule::WriteLength,
                seen,
                format!("{announced}, the length in its RETH"),
            )
        }
        // rxe ignores credits.
        RequestEvent::BeyondCredits { by } => {
            let seen = format!("{}, {by} messages beyond the credits given", line(datagram));
            RawFinding::sender(Rule::Syndrome, Severity::Quirk, seen, "one, to request credits")
        }
        RequestEvent::OtherTransport { before } => RawFinding::violation(
            Rule::TransportMismatch,
            line(datagram),
            format!("{before:?}, as before"),
        ),
        RequestEvent::OtherPartition { before } => {
            let seen = format!("P_Key 0x{:04x}", datagram.bth.pkey.0);
            RawFinding::violation(Rule::PKey, seen, format!("0x{:04x}, as before", before.0))
        }
        RequestEvent::AgainWithoutAckReq => RawFinding::violation(
            Rule::RetransmissionWithoutAckReq,
            format!("{} retransmitted", line(datagram)),
            "AckReq set",
        ),
    }
}

/// Returns the finding of a NAK or RNR NAK, or of a packet that contradicts one.
fn nak_event(event: &NakEvent, datagram: &Datagram<'_>) -> RawFinding {
    let seen = line(datagram);
    let of = |request: Option<(softroce::wire::Opcode, u64)>| match request {
        Some((opcode, packet)) => format!("{opcode} in packet {packet}"),
        None => "a request that was not captured".to_owned(),
    };
    match *event {
        NakEvent::SequenceNak { captured } => {
            let why = match captured {
                Some(packet) => format!("packet {packet} was lost behind the point of capture"),
                None => "the packet was lost before the point of capture".to_owned(),
            };
            RawFinding::new(Rule::SequenceNak, Severity::Note, Role::Network, seen, why)
        }
        NakEvent::SequenceNakAgain { first, certain: true } => {
            let expected = format!(
                "no second NAK: packet {first} reported the gap, and nothing was retransmitted since"
            );
            RawFinding::violation(Rule::SequenceNak, seen, expected)
        }
        NakEvent::SequenceNakAgain { first, certain: false } => {
            let why = format!(
                "packet {first} reported this gap: a duplicate NAK, or a retransmission that was not captured"
            );
            RawFinding::new(Rule::SequenceNak, Severity::Note, Role::Unknown, seen, why)
        }
        NakEvent::SequenceNakAfterRnr { rnr } => {
            let expected =
                format!("no NAK before the retransmission that the RNR NAK in packet {rnr} delays");
            RawFinding::sender(Rule::NakAfterRnr, Severity::Quirk, seen, expected)
        }
        NakEvent::NakOfAcknowledged { newest, certain: true } => {
            let expected = format!("psn={} or later", newest.next());
            RawFinding::violation(Rule::SequenceNak, seen, expected)
        }
        NakEvent::NakOfAcknowledged { newest, certain: false } => {
            let why = format!(
                "psn={newest} was acknowledged before: the network has reordered packets, \
                 or the responder takes it back"
            );
            RawFinding::new(Rule::SequenceNak, Severity::Note, Role::Unknown, seen, why)
        }
        NakEvent::RnrNak { request } => {
            RawFinding::note(Rule::RnrNak, seen, format!("no receive request for {}", of(request)))
        }
        NakEvent::RnrOfOther { request } => {
            let expected = format!("an answer: {request} takes no receive request here");
            RawFinding::violation(Rule::RnrNak, seen, expected)
        }
        NakEvent::Refused { request } => {
            let why = format!("{} is refused permanently", of(request));
            RawFinding::new(Rule::FatalNak, Severity::Note, Role::Receiver, seen, why)
        }
        NakEvent::AccessNakOfSend { request } => {
            let expected = format!("another NAK code: {request} names no memory");
            RawFinding::violation(Rule::AccessNak, seen, expected)
        }
        NakEvent::AfterRefusal { nak, refused, certain: true } => {
            let expected = format!("nothing: packet {nak} refused psn={refused} permanently");
            RawFinding::violation(Rule::ResponseAfterFatalNak, seen, expected)
        }
        NakEvent::AfterRefusal { nak, refused, certain: false } => {
            let why = format!(
                "packet {nak} refused psn={refused} permanently; later requests may belong to a new \
                 connection with the same numbers"
            );
            RawFinding::new(Rule::ResponseAfterFatalNak, Severity::Note, Role::Unknown, seen, why)
        }
    }
}

/// Returns the finding of an acknowledgement or response.
fn response_event(event: &ResponseEvent, datagram: &Datagram<'_>) -> RawFinding {
    let seen = line(datagram);
    match *event {
        ResponseEvent::Ahead { next } => {
            let why = format!(
                "psn={next} is the next that was not captured: requests are missing \
                 from the capture, or the responder answers what was not sent"
            );
            RawFinding::new(Rule::AckOfUnseen, Severity::Note, Role::Unknown, seen, why)
        }
        ResponseEvent::Older { newest, after_duplicate: true } => {
            let expected = format!("psn={newest}, the newest");
            RawFinding::sender(Rule::OldAck, Severity::Quirk, seen, expected)
        }
        ResponseEvent::Older { newest, after_duplicate: false } => {
            let why =
                format!("psn={newest} was acknowledged before: the network has reordered packets");
            RawFinding::new(Rule::OldAck, Severity::Note, Role::Network, seen, why)
        }
        ResponseEvent::Msn { low, high, may_count_more: true } => {
            let why = format!("{}, or the capture lacks requests", msn_range(low, high));
            RawFinding::new(Rule::Msn, Severity::Note, Role::Unknown, seen, why)
        }
        ResponseEvent::Msn { low, high, may_count_more: false } => {
            RawFinding::violation(Rule::Msn, seen, msn_range(low, high))
        }
        ResponseEvent::Unasked => {
            let why = "no captured request has this PSN: requests are missing from the capture, \
                       or the responder answers what was not sent";
            RawFinding::new(Rule::AckOfUnseen, Severity::Note, Role::Unknown, seen, why)
        }
        ResponseEvent::WrongAnswer { request } => {
            let (rule, expected) = match request.operation() {
                Operation::ReadRequest => (Rule::ImpliedNak, "READ responses"),
                Operation::CompareSwap | Operation::FetchAdd => (Rule::ImpliedNak, "ATOMIC_ACK"),
                Operation::Flush | Operation::AtomicWrite => {
                    (Rule::FlushResponse, "READ_RESPONSE_ONLY without payload")
                }
                _ => (Rule::ReadResponseShape, "ACK"),
            };
            RawFinding::violation(rule, format!("{seen} to {request}"), expected)
        }
        ResponseEvent::Unanswered { request, psn } => {
            let seen = format!("{seen}, and no whole answer to {request} psn={psn}");
            let why = "the answer was lost on its way, or not captured";
            RawFinding::new(Rule::ImpliedNak, Severity::Note, Role::Unknown, seen, why)
        }
        ResponseEvent::NotAnAck => {
            RawFinding::violation(Rule::ResponseNotAck, seen, "the syndrome of an ACK")
        }
        ResponseEvent::OtherConnection { before } => {
            let seen = format!("{seen}, which answers no request of queue pair {before}");
            let why = "a new connection of a queue pair of this number";
            RawFinding::new(Rule::AckOfUnseen, Severity::Note, Role::Unknown, seen, why)
        }
        ResponseEvent::Overtaken { by } => {
            let why = format!(
                "packet {by} responds to a later request: the responder sent it first, or the \
                 network has reordered packets"
            );
            RawFinding::new(Rule::ResponseOrder, Severity::Note, Role::Unknown, seen, why)
        }
        ResponseEvent::TooManyOutstanding { count, newest, limit } => {
            let seen = format!(
                "{count} READs and atomics without an answer, the newest in packet {newest}"
            );
            let expected =
                format!("{limit}, the limit that the responder announced at connection setup");
            let (rule, severity) = (Rule::OutstandingReads, Severity::Violation);
            RawFinding::new(rule, severity, Role::Receiver, seen, expected)
        }
        ResponseEvent::AtomicChanged { first, value } => {
            let expected = format!("value=0x{value:x} as in packet {first}");
            RawFinding::violation(Rule::DuplicateAtomic, seen, expected)
        }
    }
}

/// Returns the finding of a READ response.
fn read_response(event: &ReadResponse, datagram: &Datagram<'_>) -> RawFinding {
    let seen = line(datagram);
    match *event {
        ReadResponse::Position { expected } => {
            let expected = format!("READ_RESPONSE_{}", format!("{expected:?}").to_uppercase());
            RawFinding::violation(Rule::ReadResponseShape, seen, expected)
        }
        ReadResponse::Length { expected } => {
            let rule = if expected == 0 { Rule::FlushResponse } else { Rule::ReadResponseShape };
            RawFinding::violation(rule, seen, format!("len={expected}"))
        }
        ReadResponse::ResumedWithoutFirst => {
            let expected = "FIRST or ONLY where the READ was resumed";
            RawFinding::sender(Rule::ReadResponseShape, Severity::Quirk, seen, expected)
        }
        ReadResponse::Hole { first, count } => {
            let missing = format!("{count} READ responses from psn={first} on were not captured");
            let why = "lost on their way, or not captured";
            RawFinding::new(Rule::ReadResponseGap, Severity::Note, Role::Unknown, missing, why)
        }
        ReadResponse::Again => {
            let why = "no second request was captured; the network may have reordered packets";
            RawFinding::new(Rule::DuplicateReadResponse, Severity::Note, Role::Unknown, seen, why)
        }
        ReadResponse::Changed { first } => {
            let why = format!(
                "packet {first} has other data: the READ was executed again, and its memory had changed"
            );
            RawFinding::new(Rule::DuplicateReadResponse, Severity::Note, Role::Unknown, seen, why)
        }
    }
}

/// Returns the finding of a message of the connection managers.
fn cm_event(event: &CmEvent) -> RawFinding {
    match *event {
        CmEvent::Transaction { packet, expected, found } => {
            let expected = format!("0x{expected:x}, as in packet {packet}");
            RawFinding::violation(Rule::CmTransaction, format!("transaction 0x{found:x}"), expected)
        }
        CmEvent::Depth { packet, allowed, found } => {
            let expected = format!("at most {allowed}, which packet {packet} takes at once");
            RawFinding::violation(Rule::CmDepth, format!("initiator depth {found}"), expected)
        }
        CmEvent::Repeated { name, packet, after, is_equal: true } => {
            let seen = format!("{name} retransmitted {after:?} after packet {packet}");
            let why = "the message or its response was lost, or the response is late";
            RawFinding::new(Rule::CmRetransmission, Severity::Note, Role::Network, seen, why)
        }
        CmEvent::Repeated { name, packet, is_equal: false, .. } => {
            let seen = format!("{name} retransmitted with other contents");
            let expected = format!("the contents of packet {packet}");
            RawFinding::violation(Rule::CmRetransmission, seen, expected)
        }
        CmEvent::Rejected { packet, reason } => {
            let rule = match reason {
                RejectReason::INVALID_SERVICE_ID => Rule::CmNoListener,
                RejectReason::STALE_CONNECTION => Rule::CmStale,
                RejectReason::INVALID_MTU => Rule::CmMtu,
                _ => Rule::CmRejected,
            };
            RawFinding::note(rule, "REJ", format!("packet {packet} is rejected: {reason}"))
        }
        CmEvent::Delayed { packet, service_timeout } => {
            let within = Duration::from_nanos(4096) * (1 << service_timeout.min(31));
            let why = format!("packet {packet} is answered within {within:?}");
            RawFinding::note(Rule::CmDelayed, "MRA", why)
        }
        CmEvent::Unresolved { packet, status } => {
            let why = format!("packet {packet} is not answered by a queue pair: {status}");
            RawFinding::note(Rule::CmService, "SIDR_REP", why)
        }
        CmEvent::SecondReply { packet } => {
            let seen = "second REP with another communication ID";
            let expected = format!("that of packet {packet}");
            RawFinding::violation(Rule::CmSecondReply, seen, expected)
        }
        CmEvent::OtherQp { expected, found } => {
            let (seen, expected) = (format!("DREQ of queue pair {found}"), expected.to_string());
            RawFinding::violation(Rule::CmDisconnect, seen, expected)
        }
        CmEvent::OtherAddresses { source, destination } => {
            let seen = format!("REQ from {source} to {destination}");
            let why = "the IP header has other addresses: a NAT, or hosts with several addresses";
            RawFinding::new(Rule::CmAddresses, Severity::Note, Role::Unknown, seen, why)
        }
        CmEvent::IpHeader { version, ip_version } => {
            let seen = format!("addresses of version {version}, IP version {ip_version}");
            RawFinding::violation(Rule::CmAddresses, seen, "version 0, IP version 4 or 6")
        }
    }
}

fn msn_range(low: u32, high: u32) -> String {
    if low == high { format!("msn={low}") } else { format!("msn={low} to {high}") }
}

fn line(datagram: &Datagram<'_>) -> String {
    PacketLine(datagram).to_string()
}
