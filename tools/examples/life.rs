//! The life of two devices, for `tools/tests/faults.rs`, in which system calls of this program fail.
//!
//! ```text
//! life PORT SHARDS ATTEMPTS
//! ```
//!
//! The program opens two devices, moves data between them by WRITE, READ, SEND and multicast, checks every byte,
//! and closes them. When a step fails, it prints why and tries once more. It exits with status 0 when an attempt
//! succeeds, with 2 when none does, and with 3 when data is wrong or an attempt leaves descriptors or threads behind.

use std::error::Error;
use std::io::Write;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs, io, thread};

use softroce::verbs::*;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Timeout of a completion. Retries end earlier if the peer does not respond.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(4);

const KEY: QKey = QKey(0x1234);

/// Bytes of each of the two halves of a region: several packets, and more than one burst.
const HALF: usize = 100_000;

fn main() -> ExitCode {
    let attempts = env::args().nth(3).map_or(2, |text| text.parse().unwrap_or(2));
    let mut before = held();
    // The standard library keeps `/dev/urandom` open, and a descriptor is lost if closing it fails. A loss in each
    // attempt is a leak.
    let mut lost_before = false;
    for attempt in 1.. {
        let result = live();
        let after = settled(before);
        let lost = before.is_some() && after.is_some() && after != before;
        if lost && lost_before {
            say(&format!("leak: {before:?} before and {after:?} after (descriptors, threads)"));
            return ExitCode::from(3);
        }
        match result {
            Ok(()) if !lost => return ExitCode::SUCCESS,
            Ok(()) => {}
            Err(error) if error.is::<WrongData>() => {
                say(&error.to_string());
                return ExitCode::from(3);
            }
            Err(error) => {
                say(&error.to_string());
                if attempt >= attempts && !lost {
                    break;
                }
            }
        }
        (before, lost_before) = (after, lost);
    }
    ExitCode::from(2)
}

/// Prints a line on standard error, unless that fails.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "life: {line}");
}

/// Returns the number of descriptors and threads of this process.
fn held() -> Option<(usize, usize)> {
    // A fault of these calls does not concern the devices: the second attempt has none.
    let count = |path| fs::read_dir(path).or_else(|_| fs::read_dir(path)).ok().map(Iterator::count);
    Some((count("/proc/self/fd")?, count("/proc/self/task")?))
}

/// Returns the numbers once they equal those before: the kernel lists a thread for a moment after it is joined.
fn settled(before: Option<(usize, usize)>) -> Option<(usize, usize)> {
    for _ in 0..1000 {
        if held() == before {
            break;
        }
        thread::yield_now();
    }
    held()
}

/// A message that arrived with other bytes than were sent.
#[derive(Debug, Clone, Copy)]
struct WrongData(&'static str);

impl std::fmt::Display for WrongData {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "wrong data after {}", self.0)
    }
}

impl Error for WrongData {}

/// A device with a queue pair of each kind.
struct Side {
    ctx: Context,
    cq: CompletionQueue,
    mr: MemoryRegion,
    rc: QueuePair,
    ud: QueuePair,
    pd: ProtectionDomain,
    channel: CompletionChannel,
}

impl Side {
    fn new() -> Result<Self> {
        let mut arguments = env::args().skip(1);
        let port = arguments.next().ok_or("no port is given")?.parse()?;
        let shards = arguments.next().ok_or("no number of shards is given")?.parse()?;
        let ctx = Context::open(OpenOptions::loopback().via(port).shards(shards))?;
        let channel = ctx.create_channel()?;
        ctx.event_fd()?;
        let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(64, Some(&channel))?);
        let mr = pd
            .alloc_mr(2 * HALF, Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ)?;
        let rc = pd.create_qp(&QpConfig::rc(&cq))?;
        let ud = pd.create_qp(&QpConfig::ud(&cq))?;
        Ok(Self { ctx, cq, mr, rc, ud, pd, channel })
    }

    /// Waits for a completion, which must be a success.
    fn complete(&self, what: &str) -> Result<()> {
        match self
            .cq
            .wait_one(COMPLETION_TIMEOUT)
            .map_err(|error| format!("{what}: {error}"))?
            .status
        {
            WcStatus::Success => Ok(()),
            status => Err(format!("{what}: {status}").into()),
        }
    }

    /// Checks that the region begins with these bytes.
    fn check(&self, expected: &[u8], what: &'static str) -> Result<()> {
        let mut found = vec![0; expected.len()];
        self.mr.read_at(0, &mut found)?;
        if found == expected { Ok(()) } else { Err(WrongData(what).into()) }
    }
}

fn live() -> Result<()> {
    let (near, far) = (Side::new()?, Side::new()?);
    // A device that cannot read the MTU of its interface assumes that of Ethernet.
    let (ours, theirs) = (near.ctx.device_info()?.active_mtu, far.ctx.device_info()?.active_mtu);
    let connect = ConnectOptions {
        path_mtu: Some(ours.min(theirs)),
        timeout: AckTimeout::new(12).unwrap_or_default(),
        ..ConnectOptions::default()
    };
    near.rc.connect(&far.rc.endpoint(), &connect)?;
    far.rc.connect(&near.rc.endpoint(), &connect)?;

    // By WRITE, from the upper half of one region to the lower half of the other.
    let data: Vec<u8> = (0..=250).cycle().take(HALF).collect();
    near.mr.write_at(HALF, &data)?;
    near.rc.post_send(SendRequest::write(1, near.mr.sge(HALF..), far.mr.remote(0)).signaled())?;
    near.complete("WRITE")?;
    far.check(&data, "WRITE")?;

    // By READ, back.
    near.rc.post_send(SendRequest::read(2, near.mr.sge(..HALF), far.mr.remote(0)).signaled())?;
    near.complete("READ")?;
    near.check(&data, "READ")?;

    // By SEND, to a receiver that sleeps until the event.
    far.mr.write_at(0, &vec![0; HALF])?;
    far.rc.post_recv(RecvRequest::new(3, far.mr.sge(..HALF)))?;
    far.cq.req_notify(false);
    near.rc.post_send(SendRequest::send(4, near.mr.sge(HALF..)).signaled())?;
    far.channel.wait(COMPLETION_TIMEOUT)?;
    far.cq.ack_events(1);
    far.complete("receiving a SEND")?;
    near.complete("SEND")?;
    far.check(&data, "SEND")?;

    multicast(&near, &far)?;
    near.ctx.device_info()?;
    Ok(())
}

/// Sends by UD to a multicast group.
fn multicast(near: &Side, far: &Side) -> Result<()> {
    near.ud.activate(KEY)?;
    far.ud.activate(KEY)?;
    let group = Gid::from(std::net::IpAddr::from(Ipv4Addr::new(239, 77, 0, 1)));
    far.ud.attach_mcast(group)?;
    let text = b"to whom it may concern";
    let ah = near.pd.create_ah(AddressVector::to(group))?;
    let target = ah.target(Qpn::MULTICAST, KEY);
    far.ud.post_recv(RecvRequest::new(5, far.mr.sge(..GRH_LEN + text.len())))?;
    near.ud.post_send(SendRequest::send(6, SendData::inline(text)).to(target).signaled())?;
    near.complete("UD SEND")?;
    far.complete("receiving from a group")?;
    let mut found = vec![0; text.len()];
    far.mr.read_at(GRH_LEN, &mut found)?;
    far.ud.detach_mcast(group)?;
    if found == text { Ok(()) } else { Err(WrongData("multicast").into()) }
}
