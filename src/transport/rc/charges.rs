//! Bytes that a requester has charged to windows, and returns.
//!
//! Requests are charged to the window of the path, by what they take of the peer's receive buffer. Responses to READs
//! are charged to the device's own receive buffer when they are requested, because nothing acknowledges them.

use crate::psn::Psn;
use crate::transport::connection::{Connection, Context};
use crate::transport::in_flight::{Acked, InFlight};
use crate::transport::window::WindowId;

/// Bytes in flight of one requester.
#[derive(Debug, Default)]
pub(super) struct Charges {
    requests: InFlight,
    /// `None` before the first READ.
    responses: Option<Box<InFlight>>,
    /// What was sent since a packet asked for an acknowledgement.
    pub(super) since_ack_req: u64,
}

impl Charges {
    /// Charges for a burst of requests up to the PSN `end`.
    pub(super) fn charge_requests(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        end: Psn,
        cost: u64,
    ) {
        cx.windows.charge(connection.window, cost);
        self.requests.push(end, cost, cx.now);
    }

    /// Charges for the response to a READ request that ends at the PSN `end`.
    pub(super) fn charge_response(&mut self, cx: &mut Context<'_>, end: Psn, cost: u64) {
        cx.windows.charge(cx.read_window, cost);
        self.responses.get_or_insert_default().push(end, cost, cx.now);
    }

    /// Everything before `una` is acknowledged. Returns what requests it covers.
    pub(super) fn on_ack(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        una: Psn,
    ) -> Acked {
        let acked = self.requests.on_ack(una);
        cx.windows.release(connection.window, acked.cost);
        if let Some(responses) = &mut self.responses {
            cx.windows.release(cx.read_window, responses.on_ack(una).cost);
        }
        acked
    }

    /// Nothing is in flight any more, as far as windows are concerned: it is lost, or not awaited.
    pub(super) fn abandon(&mut self, cx: &mut Context<'_>, window: WindowId) {
        cx.windows.release(window, self.requests.abandon());
        if let Some(responses) = &mut self.responses {
            cx.windows.release(cx.read_window, responses.abandon());
        }
    }

    /// Requests in flight.
    pub(super) fn requests(&self) -> &InFlight {
        &self.requests
    }
}
