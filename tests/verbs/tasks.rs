//! Completions for asynchronous tasks, with a minimal executor.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread::{self, Thread};

use softroce::verbs::*;

use crate::node::{Node, WAIT_LIMIT, open, single_attempt};
use crate::within::until;

struct UnparkWaker(Thread);

impl Wake for UnparkWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, which sleeps until it is woken.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(UnparkWaker(thread::current())));
    let (mut future, mut cx) = (pin!(future), TaskContext::from_waker(&waker));
    let start = softroce::runtime::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        thread::park_timeout(WAIT_LIMIT);
        assert!(softroce::runtime::now() - start < WAIT_LIMIT, "nobody has woken the task");
    }
}

/// A future that runs two others.
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
fn each_completion_wakes_the_task() {
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

/// Counts the wake-ups of a task.
#[derive(Default)]
struct WakeCount(AtomicUsize);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl WakeCount {
    /// Polls once for this task, which has to wait.
    fn waits(self: &Arc<Self>, next: &mut NextCompletion<'_>) {
        let waker = Waker::from(Arc::clone(self));
        assert!(Pin::new(next).poll(&mut TaskContext::from_waker(&waker)).is_pending());
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits for a wake-up.
    fn wait(&self) {
        until("the task to be woken", || self.count() > 0);
    }
}

/// Returns a queue pair that is connected to itself.
fn alone() -> Node {
    let node = Node::on(open());
    node.qp.connect(&node.qp.endpoint(), &single_attempt()).unwrap();
    node
}

fn write(node: &Node, wr_id: u64) {
    node.send(SendRequest::write(wr_id, SendData::inline(b"x"), node.mr.remote(0)));
}

#[test]
fn cancelled_futures_leave_no_wakers() {
    let node = alone();
    for _ in 0..1000 {
        let woken = Arc::<WakeCount>::default();
        let mut next = node.cq.next();
        woken.waits(&mut next);
        drop(next);
        assert_eq!(Arc::strong_count(&woken), 1, "the queue has kept a waker");
    }
}

#[test]
fn cancelled_future_is_not_woken() {
    let node = alone();
    let [cancelled, waiting] = <[Arc<WakeCount>; 2]>::default();
    let (mut first, mut second) = (node.cq.next(), node.cq.next());
    cancelled.waits(&mut first);
    waiting.waits(&mut second);
    drop(first);
    write(&node, 7);
    waiting.wait();
    assert_eq!(cancelled.count(), 0);
    assert_eq!(block_on(second).unwrap().wr_id, 7);
}

#[test]
fn future_wakes_the_task_that_polled_it_last() {
    let node = alone();
    let [before, after] = <[Arc<WakeCount>; 2]>::default();
    let mut next = node.cq.next();
    before.waits(&mut next);
    after.waits(&mut next);
    assert_eq!(Arc::strong_count(&before), 1, "the queue has kept a waker");
    write(&node, 7);
    after.wait();
    assert_eq!((before.count(), block_on(next).unwrap().wr_id), (0, 7));
}

#[test]
fn completion_reaches_another_task_when_the_first_is_dropped() {
    let node = alone();
    let tasks = <[Arc<WakeCount>; 3]>::default();
    let mut futures = [(); 3].map(|()| node.cq.next());
    for (task, next) in tasks.iter().zip(&mut futures) {
        task.waits(next);
    }
    write(&node, 7);
    tasks.iter().for_each(|task| task.wait());
    let [first, second, third] = futures;
    drop(first);
    assert_eq!(block_on(second).unwrap().wr_id, 7);
    write(&node, 8);
    assert_eq!(block_on(third).unwrap().wr_id, 8);
}

#[test]
fn waker_may_own_the_future_that_it_wakes() {
    /// A task that is dropped with its last waker, as in executors.
    struct Task(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    let node = alone();
    let cq = node.cq.clone();
    let future = async move { while cq.next().await.is_ok() {} };
    let task = Arc::new(Task(Mutex::new(Some(Box::pin(future)))));
    let waker = Waker::from(Arc::clone(&task));
    let mut slot = task.0.lock().unwrap();
    let running = slot.as_mut().unwrap().as_mut();
    assert!(running.poll(&mut TaskContext::from_waker(&waker)).is_pending());
    let gone = Arc::downgrade(&task);
    drop(slot);
    drop((task, waker));
    // The queue owns the last reference, and drops it after the wake-up.
    write(&node, 7);
    until("the waker to be dropped", || gone.strong_count() == 0);
}

#[test]
fn task_receives_the_overrun_error() {
    let ctx = open();
    let node = Node::with_cq(ctx.clone(), ctx.create_cq(1, None).unwrap());
    node.qp.connect(&node.qp.endpoint(), &single_attempt()).unwrap();
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
fn stream_yields_all_completions_and_ends_with_an_error() {
    use futures_core::Stream;

    let node = Node::on(open());
    node.qp.connect(&node.qp.endpoint(), &single_attempt()).unwrap();
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
