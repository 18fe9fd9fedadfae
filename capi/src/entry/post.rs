//! Functions that post work requests.

use std::ffi::c_int;

use crate::abi::{Handle, IbvQp, IbvSrq, In, Out, RecvWr, SendWr};
use crate::border::{Errno, Plain, zero_or_errno};
use crate::convert::request::{receive, request};

/// A request in a linked list of C.
trait Linked: Plain {
    fn next(&self) -> In<Self>;
}

impl Linked for SendWr {
    fn next(&self) -> In<Self> {
        self.next
    }
}

impl Linked for RecvWr {
    fn next(&self) -> In<Self> {
        self.next
    }
}

/// Passes the requests of a list to `post` up to the first invalid one, and stores the first request that is
/// not posted in `bad`.
fn post_list<W: Linked, R, E: Into<Errno>>(
    first: In<W>,
    bad: Out<In<W>>,
    translate: impl Fn(&W) -> Result<R, Errno>,
    post: impl FnOnce(&mut dyn Iterator<Item = R>) -> (usize, Result<(), E>),
) -> Result<(), Errno> {
    let mut at = first;
    let mut wrong = None;
    let mut requests = std::iter::from_fn(|| {
        let wr = at.optional()?;
        match translate(&wr) {
            Ok(request) => {
                at = wr.next();
                Some(request)
            }
            Err(errno) => {
                wrong = Some(errno);
                None
            }
        }
    });
    let (taken, posted) = post(&mut requests);
    let result = match (posted, wrong) {
        (Err(error), _) => Err(error.into()),
        (Ok(()), Some(errno)) => Err(errno),
        (Ok(()), None) => return Ok(()),
    };
    let refused = (0..taken).try_fold(first, |at, _| at.optional().map(|wr| wr.next()));
    bad.write(refused.unwrap_or(first));
    result
}

pub(crate) extern "C" fn post_send(
    qp: Handle<IbvQp>,
    first: In<SendWr>,
    bad: Out<In<SendWr>>,
) -> c_int {
    zero_or_errno(|| {
        let qp = qp.get()?;
        let (pair, qp_type, max_sge) = match qp.initiator() {
            Ok(pair) => (pair, qp.qp_type(), qp.cap().max_send_sge),
            Err(errno) => {
                bad.write(first);
                return Err(errno);
            }
        };
        let translate = |wr: &SendWr| request(qp_type, max_sge, wr);
        post_list(first, bad, translate, |requests| pair.post_sends(requests))
    })
}

pub(crate) extern "C" fn post_recv(
    qp: Handle<IbvQp>,
    first: In<RecvWr>,
    bad: Out<In<RecvWr>>,
) -> c_int {
    zero_or_errno(|| {
        let qp = qp.get()?;
        let pair = qp.initiator().inspect_err(|_| bad.write(first))?;
        let translate = |wr: &RecvWr| receive(qp.cap().max_recv_sge, wr);
        post_list(first, bad, translate, |requests| pair.post_recvs(requests))
    })
}

pub(crate) extern "C" fn post_srq_recv(
    srq: Handle<IbvSrq>,
    first: In<RecvWr>,
    bad: Out<In<RecvWr>>,
) -> c_int {
    zero_or_errno(|| {
        let srq = srq.get()?;
        let translate = |wr: &RecvWr| receive(srq.max_sge(), wr);
        post_list(first, bad, translate, |requests| srq.verbs.post_recvs(requests))
    })
}
