//! A packet to show.

use softroce::ids::Qpn;
use softroce_pcap::flow::{CmConversations, CmPlace, SeenPacket};
use softroce_pcap::{Icrc, Packet, RocePacket};

/// A packet, and the place of its message in a conversation of connection managers.
pub(super) struct Shown<'a> {
    pub(super) roce: RocePacket<'a>,
    pub(super) place: Option<CmPlace>,
}

impl<'a> Shown<'a> {
    /// Returns a packet with its place.
    pub(super) fn of(
        conversations: &mut CmConversations,
        frame: &Packet<'_>,
        roce: RocePacket<'a>,
    ) -> Self {
        let place = place(conversations, frame, &roce);
        Self { roce, place }
    }
}

/// Returns the place of a packet in a conversation of connection managers. Receivers drop a packet with a bad ICRC.
fn place(
    conversations: &mut CmConversations,
    frame: &Packet<'_>,
    roce: &RocePacket<'_>,
) -> Option<CmPlace> {
    let Ok(datagram) = &roce.datagram else { return None };
    if datagram.bth.dest_qp != Qpn::GSI || matches!(roce.icrc, Icrc::Bad { .. }) {
        return None;
    }
    conversations.packet(&SeenPacket {
        number: frame.number,
        time: frame.time,
        source: roce.ip.source.ip(),
        source_port: roce.ip.source.port(),
        destination: roce.ip.destination.ip(),
        id: roce.ip.ipv4.map(|ipv4| ipv4.id),
        datagram,
        digest: None,
    })
}
