//! Completions for tasks, under the smallest executor there is.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::{self, Thread};

use softroce::verbs::*;

use crate::node::{Node, PATIENCE, open, patient};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, which does nothing but wait to be woken.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, mut cx) = (pin!(future), TaskContext::from_waker(&waker));
    let start = softroce::runtime::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        thread::park_timeout(PATIENCE);
        assert!(softroce::runtime::now() - start < PATIENCE, "nobody has woken the task");
    }
}

/// Two futures at once.
struct Both<A, B>(Pin<Box<A>>, Pin<Box<B>>, [bool; 2]);

impl<A: Future<Output = ()>, B: Future<Output = ()>> Future for Both<A, B> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<()> {
        let Self(a, b, done) = &mut *self;
        done[0] = done[0] || a.as_mut().poll(cx).is_ready();
        done[1] = done[1] || b.as_mut().poll(cx).is_ready();
        if *done == [true; 2] { Poll::Ready(()) } else { Poll::Pending }
    }
}

const ROUNDS: u64 = 200;

async fn ask(node: &Node) {
    for round in 0..ROUNDS {
        node.recv(round, 0..64);
        node.qp.post_send(SendRequest::send(round, node.mr.sge(..8))).unwrap();
        assert_eq!(node.cq.next().await.unwrap().wr_id, round);
    }
}

async fn echo(node: &Node) {
    for round in 0..ROUNDS {
        assert_eq!(node.cq.next().await.unwrap().wr_id, round);
        node.recv(round + 1, 0..64);
        node.qp.post_send(SendRequest::send(round, node.mr.sge(..8))).unwrap();
    }
}

#[test]
fn a_task_is_woken_by_each_completion() {
    let (a, b) = Node::pair();
    b.recv(0, 0..64);
    thread::scope(|scope| {
        let echo = thread::Builder::new().spawn_scoped(scope, || block_on(echo(&b))).unwrap();
        block_on(ask(&a));
        echo.join().unwrap();
    });
}

#[test]
fn tasks_share_a_thread() {
    let (a, b) = Node::pair();
    b.recv(0, 0..64);
    block_on(Both(Box::pin(ask(&a)), Box::pin(echo(&b)), [false; 2]));
}

#[test]
fn a_task_learns_of_an_overrun() {
    let ctx = open();
    let node = Node::with_cq(ctx.clone(), ctx.create_cq(1, None).unwrap());
    node.qp.connect(&node.qp.endpoint(), &patient()).unwrap();
    for wr_id in 0..2 {
        node.send(SendRequest::write(wr_id, SendData::inline(b"x"), node.mr.remote(0)));
    }
    assert_eq!(node.event(), AsyncEvent::CqErr(node.cq.id()));
    block_on(async {
        assert_eq!(node.cq.next().await.unwrap().wr_id, 0);
        let error = node.cq.next().await.unwrap_err();
        assert!(matches!(error, Error::Overrun { depth: 1, .. }), "{error}");
    });
}

#[cfg(feature = "futures")]
#[test]
fn a_stream_hands_out_all_completions_and_ends_with_an_error() {
    use futures_core::Stream;

    let node = Node::on(open());
    node.qp.connect(&node.qp.endpoint(), &patient()).unwrap();
    let mut stream = pin!(node.cq.completions());
    let mut next = || block_on(std::future::poll_fn(|cx| stream.as_mut().poll_next(cx)));
    for wr_id in 0..10 {
        node.send(SendRequest::write(wr_id, SendData::inline(b"x"), node.mr.remote(0)));
        assert_eq!(next().unwrap().unwrap().wr_id, wr_id);
    }
    node.cq.resize(1).unwrap();
    for wr_id in 10..12 {
        node.send(SendRequest::write(wr_id, SendData::inline(b"x"), node.mr.remote(0)));
    }
    assert_eq!(node.event(), AsyncEvent::CqErr(node.cq.id()));
    assert_eq!(next().unwrap().unwrap().wr_id, 10);
    assert!(matches!(next().unwrap(), Err(Error::Overrun { .. })));
    assert!(next().is_none());
}
