//! Peers in their own processes, which are killed.

use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::process::Child;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use softroce::port::PortKind;
use softroce::verbs::*;

use crate::node::{WAIT_LIMIT, all_access};
use crate::process::start;

/// Length of a message in bytes.
const LEN: usize = 20_000;

/// Returns options with which a request fails after four attempts, starting with 67 ms.
fn short_timeout() -> ConnectOptions {
    let timeout = AckTimeout::new(14).unwrap();
    ConnectOptions { timeout, retry_cnt: 3, ..ConnectOptions::default() }
}

/// One side of a connection over which both sides write continuously.
struct Writer {
    qp: QueuePair,
    cq: CompletionQueue,
    mr: MemoryRegion,
    remote: RemoteAddr,
}

impl Writer {
    fn new(ctx: &Context) -> Self {
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None).unwrap());
        let mr = pd.alloc_mr(2 * LEN, all_access()).unwrap();
        let qp = pd.create_qp(&QpConfig::rc(&cq)).unwrap();
        Self { qp, cq, mr, remote: RemoteAddr::default() }
    }

    /// Returns the endpoint and the writable memory, for the peer.
    fn place(&self) -> String {
        let RemoteAddr { addr, rkey } = self.mr.remote(LEN);
        format!("{} addr={addr} rkey={}", self.qp.endpoint(), rkey.0)
    }

    fn connect(&mut self, place: &str) {
        let number = |name: &str| {
            let words = place.split_whitespace();
            words.filter_map(|word| word.strip_prefix(name)).next().unwrap().to_owned()
        };
        let rkey = Rkey(number("rkey=").parse().unwrap());
        self.remote = RemoteAddr { addr: number("addr=").parse().unwrap(), rkey };
        self.qp.connect(&place.parse().unwrap(), &short_timeout()).unwrap();
    }

    /// Writes until a request fails, and returns its status.
    fn write(&self) -> WcStatus {
        for wr_id in 0..4 {
            self.post(wr_id);
        }
        loop {
            let completion = self.cq.wait_one(WAIT_LIMIT).unwrap();
            if completion.status != WcStatus::Success {
                return completion.status;
            }
            self.post(completion.wr_id);
        }
    }

    fn post(&self, wr_id: u64) {
        let write = SendRequest::write(wr_id, self.mr.sge(..LEN), self.remote);
        self.qp.post_send(write.signaled()).unwrap();
    }
}

/// Runs a peer process: its role contains a port, an address, and the endpoint of the survivor.
pub(crate) fn write_for_ever(role: &str) {
    let mut words = role.splitn(3, ' ');
    let via: PortKind = words.next().unwrap().parse().unwrap();
    let ip: IpAddr = words.next().unwrap().parse().unwrap();
    let ctx = Context::open(OpenOptions::default().ip(ip).via(via)).unwrap();
    let mut writer = Writer::new(&ctx);
    println!("\nplace {}", writer.place());
    writer.connect(words.next().unwrap());
    let status = writer.write();
    println!("the survivor has gone: {status:?}");
}

/// Kills a process after a time, or when this is dropped.
struct Killer {
    stop: Option<Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Killer {
    fn start(mut child: Child, after: Duration) -> Self {
        let (stop, stopped) = channel::<()>();
        let body = move || {
            // An error ends the wait too.
            let _ = stopped.recv_timeout(after);
            child.kill().unwrap();
            child.wait().unwrap();
        };
        let thread = thread::Builder::new().spawn(body).unwrap();
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Time at which a peer was killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Killed {
    BeforeConnected,
    Connected,
}

/// Starts a peer at `ip` as a subprocess of `test`, and kills it after a time. The survivor then gets an error.
pub(crate) fn kill(
    test: &str,
    hub: &Context,
    via: &PortKind,
    ip: IpAddr,
    after: Duration,
) -> Killed {
    let mut survivor = Writer::new(hub);
    let mut child = start(test, &format!("{via} {ip} {}", survivor.place()));
    let output = BufReader::new(child.stdout.take().unwrap());
    let _killer = Killer::start(child, after);
    let place = output.lines().find_map(|line| Some(line.ok()?.strip_prefix("place ")?.to_owned()));
    // A killed process may have printed a part of it.
    let Some(place) = place.filter(|place| place.contains("rkey=")) else {
        return Killed::BeforeConnected;
    };
    survivor.connect(&place);
    assert_eq!(survivor.write(), WcStatus::RetryExcErr);
    Killed::Connected
}
