//! SEND and RECV: a message goes back and forth, and the time is taken.
//!
//! ```text
//! pingpong                      both sides in this process
//! pingpong listen HOST:PORT     one side; the address is a TCP one, to exchange endpoints over
//! pingpong HOST:PORT            the other
//! ```
//!
//! On one machine neither side need be told an RDMA address: each takes a free one of 127.0.0.0/8.
//! Between machines, `SOFTROCE_IP` says which one to use.

use std::env;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use softroce::runtime::now;
use softroce::verbs::*;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ROUNDS: u32 = 20_000;
const SIZE: usize = 64;

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => both(),
        ["listen", address] => {
            let (stream, _) = TcpListener::bind(address)?.accept()?;
            over(&stream)?.answer()
        }
        [address] => over(&TcpStream::connect(address)?)?.ask(),
        _ => Err("usage: pingpong [[listen] HOST:PORT]".into()),
    }
}

/// Two devices of this process, each with its thread.
fn both() -> Result<()> {
    let a = Side::new(OpenOptions::loopback())?;
    let b = Side::new(OpenOptions::loopback())?;
    a.qp.connect(&b.qp.endpoint(), &ConnectOptions::default())?;
    b.qp.connect(&a.qp.endpoint(), &ConnectOptions::default())?;
    let other = thread::Builder::new().spawn(move || b.answer())?;
    a.ask()?;
    other.join().map_err(|_| "the other side has panicked")?
}

/// One side, connected with the one at the other end of `stream`.
fn over(mut stream: &TcpStream) -> Result<Side> {
    let side = Side::new(OpenOptions::default())?;
    writeln!(stream, "{}", side.qp.endpoint())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    side.qp.connect(&line.parse()?, &ConnectOptions::default())?;
    Ok(side)
}

struct Side {
    qp: QueuePair,
    cq: CompletionQueue,
    mr: MemoryRegion,
}

impl Side {
    fn new(options: OpenOptions) -> Result<Self> {
        let ctx = Context::open(options)?;
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
        let mr = pd.alloc_mr(SIZE, Access::LOCAL_WRITE)?;
        Ok(Self { qp: pd.create_qp(&QpConfig::rc(&cq))?, cq, mr })
    }

    /// Sends a message and waits for the answer, again and again.
    fn ask(&self) -> Result<()> {
        let mut times = Vec::new();
        for round in 0..ROUNDS {
            let start = now();
            self.qp.post_recv(RecvRequest::new(1, self.mr.sge(..)))?;
            self.mr.write_at(0, &round.to_ne_bytes())?;
            self.qp.post_send(SendRequest::send(2, self.mr.sge(..)))?;
            self.received(round)?;
            times.push(now() - start);
        }
        times.sort();
        let median = times[times.len() / 2] / 2;
        println!("{ROUNDS} round trips of {SIZE} bytes, half of the median is {median:?}");
        Ok(())
    }

    /// Waits for a message and sends it back, again and again.
    fn answer(&self) -> Result<()> {
        for round in 0..ROUNDS {
            self.qp.post_recv(RecvRequest::new(1, self.mr.sge(..)))?;
            self.received(round)?;
            self.qp.post_send(SendRequest::send(2, self.mr.sge(..)))?;
        }
        Ok(())
    }

    /// Looks for the message of this round until it is there.
    fn received(&self, round: u32) -> Result<()> {
        let completion = loop {
            if let Some(completion) = self.cq.poll_one() {
                break completion;
            }
        };
        let mut seen = [0; 4];
        self.mr.read_at(0, &mut seen)?;
        match completion.status {
            WcStatus::Success if seen == round.to_ne_bytes() => Ok(()),
            WcStatus::Success => Err(format!("round {round} brought {seen:?}").into()),
            status => Err(format!("round {round} has failed: {status}").into()),
        }
    }
}
