//! Counters of an engine: one row for each queue pair.
//!
//! An event is counted once, in the row of its queue pair, without a lookup or shared memory. The
//! device's counters are the sum of all rows, plus one row for packets without a queue pair and for
//! destroyed queue pairs.

use std::ops::AddAssign;

use crate::counter::{Counter, counters};
use crate::net::RxMeta;
use crate::sys::prefetch;
use crate::transport::work::{WcOpcode, WcStatus};
use crate::wire::NakCode;

counters! {
    named "";
    /// Counters of a queue pair or an engine since its creation. A queue pair that returns to RESET keeps
    /// its counts.
    pub struct Counters {
        rx_packets: "Packets received, dropped ones included; one to a multicast group counts for each member.", rxe "rcvd_pkts";
        rx_bytes: "Bytes of UDP payload received, dropped packets included.";
        tx_packets: "Packets built to be sent.", rxe "sent_pkts";
        tx_bytes: "Bytes of UDP payload built to be sent.";
        sends_completed: "SEND requests that have succeeded, signaled or not.", rxe "rdma_sends";
        writes_completed: "WRITE requests that have succeeded, signaled or not.";
        reads_completed: "READ requests that have succeeded, signaled or not.";
        atomics_completed: "Atomic requests that have succeeded, signaled or not, ATOMIC WRITE included.";
        flushes_completed: "FLUSH requests that have succeeded, signaled or not.";
        receives_completed: "Receive requests that a message has completed.", rxe "rdma_recvs";
        rx_write_requests: "WRITE messages of peers executed.", mlx5 "rx_write_requests";
        rx_read_requests: "READ requests of peers executed, duplicates excluded.", mlx5 "rx_read_requests";
        rx_atomic_requests: "Atomic requests of peers executed, ATOMIC WRITE included.", mlx5 "rx_atomic_requests";
        rx_flush_requests: "FLUSH requests of peers executed.";
        retransmitted: "Request packets retransmitted.";
        retries: "Recoveries that a timeout or a sequence NAK, explicit or implied, has started.", rxe "completer_retry_err";
        timeouts: "Expirations of the ACK timer: no packet was acknowledged within the ACK timeout.", mlx5 "local_ack_timeout_err";
        sequence_naks: "Sequence NAKs received: the peer misses a packet.", rxe "rcvd_seq_err", mlx5 "packet_seq_err";
        implied_naks: "Implied NAKs: a response to a READ, atomic or FLUSH was missing, and was requested again.", mlx5 "implied_nak_seq_err";
        rnr_naks_received: "RNR NAKs received: the peer had no receive request.", rxe "rcvd_rnr_err", mlx5 "rnr_nak_retry_err";
        rnr_naks_sent: "RNR NAKs sent: there was no receive request here.", rxe "send_rnr_err", mlx5 "out_of_buffer";
        duplicate_requests: "Request packets received once more after their execution.", rxe "duplicate_request", mlx5 "duplicate_request";
        out_of_sequence: "PSN gaps in the peer's requests; over RC each causes one NAK.", rxe "out_of_seq_request", mlx5 "out_of_sequence";
        kept_ahead: "Packets buffered until an earlier request or response arrives.";
        window_waits: "Times that requests waited for room in a receive buffer, as far as its use is known.";
        retries_exceeded: "Send requests that failed because the peer never acknowledged them.", rxe "retry_exceeded_err";
        rnr_retries_exceeded: "Send requests that failed because the peer never had a receive request.", rxe "retry_rnr_exceeded_err";
        remote_access_errors: "Send requests that the peer refused for a key, a range or a permission.", mlx5 "req_remote_access_errors";
        remote_invalid_requests: "Send requests that the peer refused as invalid.", mlx5 "req_remote_invalid_request";
        remote_operation_errors: "Send requests that the peer failed to execute.";
        send_errors: "Send requests that failed for any reason but a flush, those above included.", mlx5 "req_cqe_error";
        sends_flushed: "Send requests that ended unexecuted because the queue pair had failed.", mlx5 "req_cqe_flush_error";
        receive_length_errors: "Receive requests that were too short for the message.", mlx5 "resp_local_length_error";
        receive_errors: "Receive requests that failed for any reason but a flush, those too short included.", mlx5 "resp_cqe_error";
        receives_flushed: "Receive requests that ended unused because the queue pair had failed.", mlx5 "resp_cqe_flush_error";
        access_naks_sent: "Requests of peers refused for a key, a range or a permission.", mlx5 "resp_remote_access_errors";
        invalid_naks_sent: "Requests of peers refused as invalid.";
        operation_naks_sent: "Requests of peers that this device failed to execute.";
        recovered_ids: "Packets with an IPv4 identification recovered from the ICRC.";
        bursts_given_up: "Times that a connection stopped sending bursts, because only packets sent singly arrived: a device on the path segments bursts and assigns other identifications than the ICRC covers.";
        transmit_errors: "Bursts that the port failed to send.", rxe "send_err";
        ecn_marked: "Packets received with the ECN mark CE (congestion experienced).", mlx5 "np_ecn_marked_roce_packets";
        cnps_received: "Congestion notification packets received; they do not limit the rate.", mlx5 "rp_cnp_ignored";
        mads_received: "Management datagrams of the connection manager received by queue pair 1.";
        mads_sent: "Management datagrams sent by queue pair 1.";
        mads_unsent: "Management datagrams not sent because the queue of queue pair 1 was full.";
        ..drops: Drops
    }
}

impl Counters {
    /// Returns the number of packets dropped for this reason.
    pub const fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.0[reason as usize]
    }

    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.drops.0[reason as usize] += 1;
    }

    /// Counts a received packet.
    pub(crate) fn arrived(&mut self, meta: &RxMeta, len: usize) {
        self.rx_packets += 1;
        self.rx_bytes += len as u64;
        self.ecn_marked += u64::from(meta.traffic_class & 3 == 3);
    }

    /// Counts a completed send request.
    pub(crate) fn sent(&mut self, opcode: WcOpcode, status: WcStatus) {
        match (status, opcode) {
            (WcStatus::Success, WcOpcode::Send) => self.sends_completed += 1,
            (WcStatus::Success, WcOpcode::RdmaWrite) => self.writes_completed += 1,
            (WcStatus::Success, WcOpcode::RdmaRead) => self.reads_completed += 1,
            (
                WcStatus::Success,
                WcOpcode::CompSwap | WcOpcode::FetchAdd | WcOpcode::AtomicWrite,
            ) => self.atomics_completed += 1,
            (WcStatus::Success, WcOpcode::Flush) => self.flushes_completed += 1,
            // Local operations have no counter.
            (WcStatus::Success, _) => {}
            (WcStatus::WrFlushErr, _) => self.sends_flushed += 1,
            (status, _) => {
                self.send_errors += 1;
                match status {
                    WcStatus::RetryExcErr => self.retries_exceeded += 1,
                    WcStatus::RnrRetryExcErr => self.rnr_retries_exceeded += 1,
                    WcStatus::RemAccessErr => self.remote_access_errors += 1,
                    WcStatus::RemInvReqErr => self.remote_invalid_requests += 1,
                    WcStatus::RemOpErr => self.remote_operation_errors += 1,
                    _ => {}
                }
            }
        }
    }

    /// Counts a terminal NAK in response to a request of the peer.
    pub(crate) fn refused(&mut self, nak: NakCode) {
        match nak {
            NakCode::RemoteAccess => self.access_naks_sent += 1,
            NakCode::RemoteOperational => self.operation_naks_sent += 1,
            _ => self.invalid_naks_sent += 1,
        }
    }

    /// Counts a completed receive request.
    pub(crate) fn received(&mut self, status: WcStatus) {
        match status {
            WcStatus::Success => self.receives_completed += 1,
            WcStatus::WrFlushErr => self.receives_flushed += 1,
            status => {
                self.receive_errors += 1;
                self.receive_length_errors += u64::from(status == WcStatus::LocLenErr);
            }
        }
    }
}

/// Generates [`DropReason`] from a table of reasons, counter names and help texts.
macro_rules! drop_reasons {
    ($($reason:ident $name:literal $help:literal;)*) => {
        /// Reason for which a received packet was dropped. Every drop is counted under one of
        /// these.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum DropReason {
            $(#[doc = $help] $reason,)*
        }

        impl DropReason {
            /// Every reason, in order.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$reason),*];

            /// Returns the name of its counter: `drop_bad_icrc`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$reason => $name,)*
                }
            }

            /// Returns its help text.
            pub const fn help(self) -> &'static str {
                match self {
                    $(Self::$reason => concat!("Packets dropped: ", $help),)*
                }
            }
        }
    };
}

drop_reasons! {
    Malformed "drop_malformed" "the bytes are no packet.";
    TransportVersion "drop_transport_version" "the transport version is not 0.";
    UnassignedOpcode "drop_unassigned_opcode" "the opcode is not assigned.";
    UnknownQp "drop_unknown_qp" "there is no such queue pair.";
    WrongTransport "drop_wrong_transport" "the opcode belongs to another transport than the queue pair's, or to the half that an XRC queue pair does not have.";
    QpState "drop_qp_state" "the queue pair accepts no such packet in its state.";
    WrongAddress "drop_wrong_address" "its source or destination address is not that of the connection.";
    PKeyMismatch "drop_pkey_mismatch" "the partition keys do not match.";
    BadIcrc "drop_bad_icrc" "the ICRC is wrong.";
    OutOfSequence "drop_out_of_sequence" "a request is ahead of the expected PSN, after the NAK for that gap; over UC the rest of a message with a missing packet.";
    StaleDuplicate "drop_stale_duplicate" "the response to a duplicate request is no longer in the replay cache; over UC any duplicate.";
    Ghost "drop_ghost_response" "a response belongs to no outstanding request.";
    ResponseAhead "drop_response_ahead" "earlier READ responses are missing, and it is not buffered.";
    NoReceive "drop_no_receive" "over UC and UD there is no receive request for the message.";
    Refused "drop_refused" "over UC and UD the message is not allowed, or does not fit.";
    QKeyMismatch "drop_qkey_mismatch" "over UD the queue key is not the queue pair's.";
    MadLength "drop_mad_length" "a packet to queue pair 1 does not have the 256 bytes of a management datagram.";
    MadUnsupported "drop_mad_unsupported" "queue pair 1 supports neither the class nor the method of the management datagram; a request was answered with that status.";
    MadQueueFull "drop_mad_queue_full" "too many management datagrams wait for the connection manager.";
    NoMember "drop_no_member" "no queue pair of this device is attached to its multicast group.";
}

impl DropReason {
    /// Returns equivalent counters of other drivers.
    const fn also(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::NoReceive => &[("mlx5", "out_of_buffer")],
            Self::OutOfSequence => &[("mlx5", "out_of_sequence")],
            Self::BadIcrc => &[("mlx5", "rx_icrc_encapsulated")],
            _ => &[],
        }
    }
}

/// Packets dropped, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drops([u64; DropReason::ALL.len()]);

impl Drops {
    /// Returns the counter of every reason.
    pub fn iter(&self) -> impl Iterator<Item = Counter> + use<> {
        DropReason::ALL.into_iter().zip(self.0).map(|(reason, value)| Counter {
            name: reason.name(),
            help: reason.help(),
            also: reason.also(),
            value,
        })
    }
}

impl AddAssign<&Self> for Drops {
    fn add_assign(&mut self, other: &Self) {
        for (mine, its) in self.0.iter_mut().zip(other.0) {
            *mine += its;
        }
    }
}

/// The counter rows of an engine's queue pairs, indexed by slot.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    rows: Vec<Counters>,
    /// Row for packets without a queue pair and for destroyed queue pairs.
    rest: Counters,
}

impl Tally {
    /// Prepares the row of a new queue pair, which starts at zero.
    pub(crate) fn begin(&mut self, slot: usize) {
        if self.rows.len() <= slot {
            self.rows.resize(slot + 1, Counters::default());
        }
    }

    /// Adds the row of a destroyed queue pair to the rest. Returns the row.
    pub(crate) fn end(&mut self, slot: usize) -> Counters {
        let counted = self.rows.get_mut(slot).map(std::mem::take).unwrap_or_default();
        self.rest += &counted;
        counted
    }

    /// Returns the row of the queue pair in `slot`, or the row for packets without one.
    pub(crate) fn row(&mut self, slot: Option<usize>) -> &mut Counters {
        slot.and_then(|slot| self.rows.get_mut(slot)).unwrap_or(&mut self.rest)
    }

    /// Prefetches a row.
    pub(crate) fn prefetch(&self, slot: usize) {
        if let Some(row) = self.rows.get(slot) {
            prefetch(row);
        }
    }

    /// Returns the counters of the queue pair in `slot`.
    pub(crate) fn of(&self, slot: usize) -> Counters {
        self.rows.get(slot).copied().unwrap_or_default()
    }

    /// Returns the sum of all rows.
    pub(crate) fn sum(&self) -> Counters {
        self.rows.iter().fold(self.rest, |mut sum, row| {
            sum += row;
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_has_counted_what_its_queue_pairs_have_also_when_they_are_gone() {
        let mut tally = Tally::default();
        tally.begin(0);
        tally.begin(2);
        tally.row(None).rx_packets += 1;
        tally.row(Some(0)).rx_packets += 10;
        tally.row(Some(2)).rx_packets += 100;
        tally.row(Some(2)).drop(DropReason::BadIcrc);
        assert_eq!((tally.of(0).rx_packets, tally.of(2).rx_packets), (10, 100));
        let sum = tally.sum();
        assert_eq!((sum.rx_packets, sum.dropped(DropReason::BadIcrc)), (111, 1));
        assert_eq!(tally.end(2).rx_packets, 100);
        // The next queue pair in the slot starts at zero.
        tally.begin(2);
        assert_eq!((tally.of(2), tally.sum()), (Counters::default(), sum));
    }

    #[test]
    fn a_send_request_is_counted_by_how_it_ended() {
        let mut counters = Counters::default();
        let mut ended = |status, times: u64| {
            (0..times).for_each(|_| counters.sent(WcOpcode::RdmaWrite, status));
        };
        ended(WcStatus::Success, 2);
        ended(WcStatus::WrFlushErr, 3);
        ended(WcStatus::RetryExcErr, 1);
        ended(WcStatus::RnrRetryExcErr, 2);
        ended(WcStatus::RemAccessErr, 3);
        ended(WcStatus::RemInvReqErr, 4);
        ended(WcStatus::RemOpErr, 5);
        ended(WcStatus::LocProtErr, 6);
        let expected = Counters {
            writes_completed: 2,
            sends_flushed: 3,
            send_errors: 21,
            retries_exceeded: 1,
            rnr_retries_exceeded: 2,
            remote_access_errors: 3,
            remote_invalid_requests: 4,
            remote_operation_errors: 5,
            ..Counters::default()
        };
        assert_eq!(counters, expected);
    }

    #[test]
    fn a_receive_request_is_counted_by_how_it_ended() {
        let mut counters = Counters::default();
        counters.received(WcStatus::Success);
        for _ in 0..2 {
            counters.received(WcStatus::WrFlushErr);
        }
        for status in [WcStatus::LocLenErr, WcStatus::LocProtErr, WcStatus::RemAbortErr] {
            counters.received(status);
        }
        let Counters { receives_completed, receives_flushed, receive_errors, .. } = counters;
        assert_eq!((receives_completed, receives_flushed, receive_errors), (1, 2, 3));
        assert_eq!(counters.receive_length_errors, 1);
    }

    /// Names from the documentation of mlx5.
    #[test]
    fn three_reasons_are_known_to_mlx5_by_other_names() {
        let named: Vec<_> =
            Drops::default().iter().filter(|counter| !counter.also.is_empty()).collect();
        let names: Vec<_> = named.iter().map(|counter| (counter.name, counter.also)).collect();
        assert_eq!(
            names,
            [
                ("drop_bad_icrc", &[("mlx5", "rx_icrc_encapsulated")][..]),
                ("drop_out_of_sequence", &[("mlx5", "out_of_sequence")]),
                ("drop_no_receive", &[("mlx5", "out_of_buffer")]),
            ]
        );
    }

    #[test]
    fn no_two_counters_have_the_same_name_and_each_says_what_it_counts_in_a_sentence() {
        let mut names: Vec<_> = Counters::default().iter().map(|counter| counter.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        let odd = |help: &str| !help.ends_with('.') || help.contains('\n');
        assert!(!Counters::default().iter().any(|counter| odd(counter.help)));
    }
}
