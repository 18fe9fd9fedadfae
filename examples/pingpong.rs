//! SEND and RECV: measures the latency of a message that goes back and forth.
//!
//! ```text
//! pingpong                      both sides in this process
//! pingpong listen HOST:PORT     server; HOST:PORT is a TCP address for the exchange of endpoints
//! pingpong HOST:PORT            client
//! ```
//!
//! On one machine, each side uses a free address of 127.0.0.0/8. Between machines, set `SOFTROCE_IP` to the address
//! of the RDMA device.

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
        [] => run_both_sides(),
        ["listen", address] => {
            let (stream, _) = TcpListener::bind(address)?.accept()?;
            connect_over(&stream)?.echo()
        }
        [address] => connect_over(&TcpStream::connect(address)?)?.measure(),
        _ => Err("usage: pingpong [[listen] HOST:PORT]".into()),
    }
}

/// Runs both sides in this process, with a device and a thread each.
fn run_both_sides() -> Result<()> {
    let a = Side::new(OpenOptions::loopback())?;
    let b = Side::new(OpenOptions::loopback())?;
    a.qp.connect(&b.qp.endpoint(), &ConnectOptions::default())?;
    b.qp.connect(&a.qp.endpoint(), &ConnectOptions::default())?;
    let other = thread::Builder::new().spawn(move || b.echo())?;
    a.measure()?;
    other.join().map_err(|_| "the other side has panicked")?
}

/// Creates a side, and connects it to the side at the other end of `stream`.
fn connect_over(mut stream: &TcpStream) -> Result<Side> {
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

    /// Sends messages, and measures the time until the echo of each.
    fn measure(&self) -> Result<()> {
        let mut times = Vec::new();
        for round in 0..ROUNDS {
            let start = now();
            self.qp.post_recv(RecvRequest::new(1, self.mr.sge(..)))?;
            self.mr.write_at(0, &round.to_ne_bytes())?;
            self.qp.post_send(SendRequest::send(2, self.mr.sge(..)))?;
            self.expect_message(round)?;
            times.push(now() - start);
        }
        times.sort();
        let median = times[times.len() / 2] / 2;
        println!("{ROUNDS} round trips of {SIZE} bytes, half of the median is {median:?}");
        Ok(())
    }

    /// Echoes every message.
    fn echo(&self) -> Result<()> {
        for round in 0..ROUNDS {
            self.qp.post_recv(RecvRequest::new(1, self.mr.sge(..)))?;
            self.expect_message(round)?;
            self.qp.post_send(SendRequest::send(2, self.mr.sge(..)))?;
        }
        Ok(())
    }

    /// Polls until the message of this round arrives.
    fn expect_message(&self, round: u32) -> Result<()> {
        let completion = loop {
            if let Some(completion) = self.cq.poll_one() {
                break completion;
            }
        };
        let mut seen = [0; 4];
        self.mr.read_at(0, &mut seen)?;
        match completion.status {
            WcStatus::Success if seen == round.to_ne_bytes() => Ok(()),
            WcStatus::Success => Err(format!("round {round}: unexpected message {seen:?}").into()),
            status => Err(format!("round {round} failed: {status}").into()),
        }
    }
}
