//! Counters of a port.

use crate::counter::counters;
use crate::net::{Burst, RxBuffer};

counters! {
    named "port_";
    /// Counts of a port since it was opened.
    pub struct PortCounters {
        tx_bursts: "Bursts sent: datagrams of one size that one send call takes.";
        tx_datagrams: "Datagrams sent.";
        tx_bytes: "Bytes of UDP payload sent.";
        rx_buffers: "Buffers received: datagrams of one size that one receive call returns.";
        rx_datagrams: "Datagrams received.";
        rx_bytes: "Bytes of UDP payload received.";
        kernel_drops: "Buffers that the kernel dropped: the receive buffer was full, the UDP checksum was wrong, or the packet filter rejected them. The kernel does not distinguish these, and counts merged datagrams as one.";
        busy: "Send calls in which the port took fewer bursts than offered.";
        refused: "Bursts that the socket refused with a permanent error.";
        gso_refused: "Bursts sent one datagram at a time, because the host does not split them (GSO).";
        tx_connected: "Datagrams, of those sent, that left from a connected socket: short messages of a request-response flow.";
        tx_copies: "Datagrams, of those, that the shared socket had sent before: over IPv4 the first three of such a flow.";
        misrouted: "Datagrams that arrived at another shard's socket than that of their queue pair, and were forwarded: a sender mixes datagrams for several shards in one burst.";
        misrouted_lost: "Datagrams that arrived at another shard's socket and were lost, because too many waited to be forwarded.";
        shm_tx_bursts: "Bursts, of those sent, that went through shared memory.";
        shm_rx_buffers: "Buffers, of those received, that came through shared memory.";
        shm_lost: "Bursts lost because the shared memory was full and its reader did not read.";
        shm_refused: "Senders through shared memory that were refused, because the process had no descriptor or memory for them. They send by UDP, and try again after a tenth of a second, later after some seconds.";
        unresolved: "Bursts of a packet or TAP port lost for lack of the neighbour's link address: some of the first to an address, and all to a neighbour that does not respond.";
    }
}

impl PortCounters {
    /// Counts a burst that was sent.
    pub fn sent(&mut self, burst: &Burst) {
        self.tx_bursts += 1;
        self.tx_datagrams += burst.len() as u64;
        self.tx_bytes += burst.byte_len() as u64;
    }

    /// Counts a buffer that was received.
    pub fn received(&mut self, buffer: &RxBuffer<'_>) {
        self.rx_buffers += 1;
        self.rx_datagrams += buffer.segments().len() as u64;
        self.rx_bytes += buffer.data.len() as u64;
    }
}
