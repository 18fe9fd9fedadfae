//! Bytes that a requester has charged to windows and must release.
//!
//! Requests are charged to the window of the path, by the memory they occupy in the peer's receive
//! buffer. READ responses are charged to the device's own receive buffer when they are requested,
//! because they are not acknowledged.

use crate::psn::Psn;
use crate::transport::connection::Connection;
use crate::transport::context::Context;
use crate::transport::in_flight::{Acked, InFlight};
use crate::transport::window::WindowId;

/// Bytes in flight of one requester.
#[derive(Debug, Default)]
pub(super) struct Charges {
    requests: InFlight,
    /// `None` before the first READ.
    responses: Option<Box<InFlight>>,
    /// Bytes sent since the last acknowledgement request.
    pub(super) since_ack_req: u64,
}

impl Charges {
    /// Charges a burst of requests that ends before the PSN `end`.
    pub(super) fn charge_requests(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        end: Psn,
        cost: u64,
    ) {
        cx.shared.windows.charge(connection.window, cost);
        self.requests.push(end, cost, cx.now);
    }

    /// Charges the response to a READ request that ends before the PSN `end`.
    pub(super) fn charge_response(&mut self, cx: &mut Context<'_>, end: Psn, cost: u64) {
        cx.shared.windows.charge(cx.shared.read_window, cost);
        self.responses.get_or_insert_default().push(end, cost, cx.now);
    }

    /// Releases all bytes before `una`. Returns those of requests.
    pub(super) fn on_ack(
        &mut self,
        cx: &mut Context<'_>,
        connection: &Connection,
        una: Psn,
    ) -> Acked {
        let acked = self.requests.on_ack(una, cx.now);
        cx.shared.windows.release(connection.window, acked.cost);
        if let Some(responses) = &mut self.responses {
            cx.shared.windows.release(cx.shared.read_window, responses.on_ack(una, cx.now).cost);
        }
        acked
    }

    /// Releases all bytes in flight, because they are lost or will not be acknowledged.
    pub(super) fn abandon(&mut self, cx: &mut Context<'_>, window: WindowId) {
        cx.shared.windows.release(window, self.requests.abandon());
        if let Some(responses) = &mut self.responses {
            cx.shared.windows.release(cx.shared.read_window, responses.abandon());
        }
    }

    /// Returns the requests in flight.
    pub(super) fn requests(&self) -> &InFlight {
        &self.requests
    }
}
