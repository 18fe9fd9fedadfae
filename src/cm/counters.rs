//! Counters of an agent.

use crate::counter::counters;

counters! {
    named "cm_";
    /// Counters of an agent since its creation.
    pub struct Counters {
        connects: "Connections and service look-ups begun here.";
        requests: "Requests of peers reported to a listener, REQ and SIDR_REQ.";
        established: "Connections established, on either side.";
        disconnected: "Connections ended by a DREQ, of either side.";
        unreachable: "Messages that the peer never answered.";
        rejects_sent: "REJ messages sent, and SIDR_REP messages with a status other than success.";
        rejects_received: "REJ messages received for an id, and SIDR_REP messages with a status other than success.";
        retransmitted: "Messages sent again because no answer had arrived.";
        duplicates: "Messages received again after they had been handled.";
        unknown_ids: "Messages received for ids that do not exist, or not from their peer.";
        invalid: "Messages received with impossible fields, or without a meaning in the state of their id.";
        backlog_full: "Requests dropped because the backlog of the listener was full.";
        stale: "Requests and replies rejected because an older connection has the same queue pair of the same peer.";
        answers_dropped: "Answers not sent because too many messages wait to be sent.";
    }
}
