//! Completions in an asynchronous program: tokio waits for the descriptor of a completion channel, so one thread can
//! wait for completions and for other I/O.

use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;

use softroce::verbs::{Error as VerbsError, *};
use tokio::io::unix::AsyncFd;
use tokio::runtime::Builder;

const ROUNDS: u32 = 1000;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let (a, b) = (Side::new()?, Side::new()?);
        a.qp.connect(&b.qp.endpoint(), &ConnectOptions::default())?;
        b.qp.connect(&a.qp.endpoint(), &ConnectOptions::default())?;
        b.qp.post_recv(RecvRequest::new(0, b.mr.sge(..)))?;
        let echo = tokio::spawn(async move { b.echo().await });
        a.send_numbers().await?;
        echo.await?
    })
}

/// One side of a connection, with a completion channel.
struct Side {
    qp: QueuePair,
    cq: CompletionQueue,
    mr: MemoryRegion,
    channel: AsyncFd<CompletionChannel>,
}

impl Side {
    #[allow(deprecated, reason = "the newer way is unsafe, and the channel owns its descriptor")]
    fn new() -> Result<Self> {
        let ctx = Context::open(OpenOptions::loopback())?;
        let channel = ctx.create_channel()?;
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, Some(&channel))?);
        let mr = pd.alloc_mr(64, Access::LOCAL_WRITE)?;
        let qp = pd.create_qp(&QpConfig::rc(&cq))?;
        Ok(Self { qp, cq, mr, channel: AsyncFd::new(channel)? })
    }

    /// Sends numbers, and waits for the echo of each.
    async fn send_numbers(&self) -> Result<()> {
        for round in 0..ROUNDS {
            self.qp.post_recv(RecvRequest::new(0, self.mr.sge(..)))?;
            self.qp.post_send(SendRequest::send(0, SendData::inline(&round.to_ne_bytes())))?;
            let number = self.number().await?;
            if number != round {
                return Err(format!("{number} arrived instead of {round}").into());
            }
        }
        println!("{ROUNDS} numbers echoed");
        Ok(())
    }

    /// Echoes every number.
    async fn echo(&self) -> Result<()> {
        for _ in 0..ROUNDS {
            let number = self.number().await?;
            self.qp.post_recv(RecvRequest::new(0, self.mr.sge(..)))?;
            self.qp.post_send(SendRequest::send(0, SendData::inline(&number.to_ne_bytes())))?;
        }
        Ok(())
    }

    /// Returns the number in the next message.
    async fn number(&self) -> Result<u32> {
        let completion = self.next().await?;
        if completion.status != WcStatus::Success {
            return Err(format!("a request failed: {}", completion.status).into());
        }
        let mut number = [0; 4];
        self.mr.read_at(0, &mut number)?;
        Ok(u32::from_ne_bytes(number))
    }

    /// Waits for the next completion.
    async fn next(&self) -> Result<Completion> {
        loop {
            // Arm the queue, then poll it: not all completions from before the arming are announced.
            self.cq.req_notify(false);
            if let Some(completion) = self.cq.poll_one() {
                return Ok(completion);
            }
            // The descriptor is readable while announcements are pending.
            let mut ready = self.channel.readable().await?;
            let taken = ready.try_io(|channel| match channel.get_ref().wait(Duration::ZERO) {
                Err(VerbsError::Timeout { .. }) => Err(ErrorKind::WouldBlock.into()),
                announced => Ok(announced),
            });
            if let Ok(announced) = taken {
                announced??;
            }
        }
    }
}
