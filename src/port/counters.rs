//! Counters of a port.

use crate::counter::counters;
use crate::net::{Burst, RxBuffer};

counters! {
    named "port_";
    /// Counts of a port since it was opened.
    pub struct PortCounters {
        tx_bursts: "Bursts sent: datagrams of one size that went with one call.";
        tx_datagrams: "Datagrams sent.";
        tx_bytes: "Bytes of UDP payload sent.";
        rx_buffers: "Buffers received: datagrams of one size that came with one call.";
        rx_datagrams: "Datagrams received.";
        rx_bytes: "Bytes of UDP payload received.";
        kernel_drops: "Buffers that arrived and were thrown away before they could be received: there was no room for them, the UDP checksum was wrong, or they made no packet. The kernel does not tell these apart, and counts merged datagrams as one.";
        busy: "Times that the port took fewer bursts than it was offered.";
        refused: "Bursts that the socket refused for good.";
        gso_refused: "Bursts sent a datagram at a time, because the host would not cut them.";
        tx_connected: "Datagrams of those sent that went to and fro, and so left from a connected socket.";
        tx_copies: "Datagrams of those that were sent by the usual socket before: over IPv4 the first three that go to and fro.";
        strays: "Datagrams that came to another shard's socket than that of their queue pair, and were handed over: somebody mixes in his bursts what goes to several.";
        strays_lost: "Datagrams that came to another shard's socket, when too many waited to be handed over.";
        shm_tx_bursts: "Bursts of those sent that went through shared memory.";
        shm_rx_buffers: "Buffers of those received that came through shared memory.";
        shm_lost: "Bursts for shared memory that was full and that nobody took anything out of.";
        unresolved: "Bursts of a packet or TAP port to where nobody's link address was known: some of the first to an address, and all to a neighbour that does not answer.";
    }
}

impl PortCounters {
    /// Counts a burst that was sent.
    pub fn sent(&mut self, burst: &Burst) {
        self.tx_bursts += 1;
        self.tx_datagrams += burst.len() as u64;
        self.tx_bytes += burst.data().len() as u64;
    }

    /// Counts a buffer that was received.
    pub fn received(&mut self, buffer: &RxBuffer<'_>) {
        self.rx_buffers += 1;
        self.rx_datagrams += buffer.segments().len() as u64;
        self.rx_bytes += buffer.data.len() as u64;
    }
}
