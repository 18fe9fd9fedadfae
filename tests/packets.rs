//! The engine without sockets and threads: scripts of packets against one engine, and two engines on the simulated network in
//! virtual time.

#[path = "packets/counters.rs"]
mod counters;
#[path = "support/counting.rs"]
mod counting;
#[path = "packets/foreign_packets.rs"]
mod foreign_packets;
#[path = "packets/gids.rs"]
mod gids;
#[path = "packets/hostile_peers.rs"]
mod hostile_peers;
#[path = "packets/merged_packets.rs"]
mod merged_packets;
#[path = "packets/multicast.rs"]
mod multicast;
#[path = "packets/pair.rs"]
mod pair;
#[path = "packets/partitions.rs"]
mod partitions;
#[path = "packets/peer_buffer.rs"]
mod peer_buffer;
#[path = "packets/psn_wraparound.rs"]
mod psn_wraparound;
#[path = "packets/qp_lifecycle.rs"]
mod qp_lifecycle;
#[path = "packets/qp_pacing.rs"]
mod qp_pacing;
#[path = "packets/qp_states.rs"]
mod qp_states;
#[path = "packets/qp_transitions.rs"]
mod qp_transitions;
#[path = "packets/rc_packets.rs"]
mod rc_packets;
#[path = "packets/rc_placement.rs"]
mod rc_placement;
#[path = "packets/rc_reads.rs"]
mod rc_reads;
#[path = "packets/rc_recovery.rs"]
mod rc_recovery;
#[path = "packets/rc_refusals.rs"]
mod rc_refusals;
#[path = "packets/rc_regions.rs"]
mod rc_regions;
#[path = "packets/rc_reorder.rs"]
mod rc_reorder;
#[path = "packets/rc_replay.rs"]
mod rc_replay;
#[path = "packets/rc_requester.rs"]
mod rc_requester;
#[path = "packets/rc_responder.rs"]
mod rc_responder;
#[path = "packets/rc_retries.rs"]
mod rc_retries;
#[path = "packets/srq.rs"]
mod srq;
mod support;
#[path = "packets/timing.rs"]
mod timing;
#[path = "packets/uc_receiver.rs"]
mod uc_receiver;
#[path = "packets/uc_sender.rs"]
mod uc_sender;
#[path = "packets/ud.rs"]
mod ud;
#[path = "packets/unpredictable_numbers.rs"]
mod unpredictable_numbers;
#[path = "packets/unreliable.rs"]
mod unreliable;
#[path = "packets/unreliable_packets.rs"]
mod unreliable_packets;
#[path = "packets/windows.rs"]
mod windows;
#[path = "packets/windows_pair.rs"]
mod windows_pair;
#[path = "packets/xrc.rs"]
mod xrc;
