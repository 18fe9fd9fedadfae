//! Posting of work requests, one or a list.

use std::borrow::BorrowMut;

use crate::engine::{Engine, PostError, QpType, peering};
use crate::ids::Qpn;
use crate::time::Instant;
use crate::transport::work::{RecvRequest, SendRequest, SendTarget};

impl Engine {
    /// Posts a send request.
    ///
    /// # Errors
    ///
    /// [`PostError`]; nothing has changed. Later errors are reported by a completion.
    #[inline]
    pub fn post_send(
        &mut self,
        now: Instant,
        qpn: Qpn,
        request: SendRequest,
    ) -> Result<(), PostError> {
        self.post_sends(now, qpn, [request]).1
    }

    /// Posts send requests in order until one is rejected, and returns the number of accepted ones.
    /// Requests passed by `&mut` have their data taken.
    pub fn post_sends(
        &mut self,
        now: Instant,
        qpn: Qpn,
        requests: impl IntoIterator<Item: BorrowMut<SendRequest>>,
    ) -> (usize, Result<(), PostError>) {
        let Some((slot, qp)) = self.qps.find_mut(qpn) else {
            return (0, Err(PostError::NoSuchQp(qpn)));
        };
        let (config, flows) = (&self.config, &self.flows);
        let (epoch, shared) = (&mut self.epoch, &mut self.shared);
        let posted = post_all(requests, |mut request| {
            let request = request.borrow_mut();
            let to = match (qp.qp_type, request.to) {
                (QpType::Ud, Some(SendTarget::Datagram(to))) => {
                    Some(peering::destination(&to, config, flows, qp.source_ports())?)
                }
                _ => None,
            };
            qp.post_send(request, to)?;
            if qp.is_flushing() {
                qp.flush_posted(&mut shared.context(now, &epoch.enter(), Some(slot)));
            }
            Ok(())
        });
        self.update_readiness(slot);
        posted
    }

    /// Checks whether these send requests could be posted now, in order.
    ///
    /// # Errors
    ///
    /// The error of the first one that could not.
    pub fn check_sends(&self, qpn: Qpn, requests: &[SendRequest]) -> Result<(), PostError> {
        let slot = self.qps.slot(qpn).ok_or(PostError::NoSuchQp(qpn))?;
        let qp = self.qps.get(slot).ok_or(PostError::NoSuchQp(qpn))?;
        for (ahead, request) in requests.iter().enumerate() {
            if let (QpType::Ud, Some(SendTarget::Datagram(to))) = (qp.qp_type, request.to) {
                peering::destination(&to, &self.config, &self.flows, qp.source_ports())?;
            }
            qp.check_send(request, ahead)?;
        }
        Ok(())
    }

    /// Posts a receive request.
    ///
    /// # Errors
    ///
    /// [`PostError`]; nothing has changed.
    pub fn post_recv(
        &mut self,
        now: Instant,
        qpn: Qpn,
        request: RecvRequest,
    ) -> Result<(), PostError> {
        self.post_recvs(now, qpn, [request]).1
    }

    /// Posts receive requests in order until one is rejected, and returns the number of accepted
    /// ones.
    pub fn post_recvs(
        &mut self,
        now: Instant,
        qpn: Qpn,
        requests: impl IntoIterator<Item = RecvRequest>,
    ) -> (usize, Result<(), PostError>) {
        let Some((slot, qp)) = self.qps.find_mut(qpn) else {
            return (0, Err(PostError::NoSuchQp(qpn)));
        };
        let (epoch, shared) = (&mut self.epoch, &mut self.shared);
        shared.outputs.shortage.post();
        post_all(requests, |request| {
            qp.post_recv(request)?;
            if qp.is_flushing() {
                qp.flush_posted(&mut shared.context(now, &epoch.enter(), Some(slot)));
            }
            Ok(())
        })
    }
}

/// Posts requests in order until one is rejected, and returns the number of accepted ones.
fn post_all<T>(
    requests: impl IntoIterator<Item = T>,
    mut post: impl FnMut(T) -> Result<(), PostError>,
) -> (usize, Result<(), PostError>) {
    let mut taken = 0;
    for request in requests {
        if let Err(error) = post(request) {
            return (taken, Err(error));
        }
        taken += 1;
    }
    (taken, Ok(()))
}
