//! UD: one queue pair talks to several others, without a connection to any of them.
//!
//! A clerk takes messages from three callers and answers each. It knows none of them before; where a
//! message came from is written in front of it.

use softroce::verbs::*;

/// Whoever sends with this key is let in.
const KEY: QKey = QKey(0x1234);

/// Bytes of a message. The first 40 of a receive are for the header that says where it came from.
const ROOM: usize = GRH_LEN + 64;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let clerk = Party::new()?;
    let callers = [Party::new()?, Party::new()?, Party::new()?];
    for slot in 0..callers.len() {
        clerk.expect(slot)?;
    }

    for (number, caller) in callers.iter().enumerate() {
        caller.expect(0)?;
        // To write to somebody takes an address, a queue pair number and the key.
        let way = caller.pd.create_ah(AddressVector::to(clerk.qp.endpoint().gid))?;
        caller.send(&format!("caller {number} is here"), way.target(clerk.qp.qpn(), KEY))?;
    }

    for _ in &callers {
        let (text, sender) = clerk.receive()?;
        clerk.send(&format!("welcome, you wrote {text:?}"), sender)?;
    }

    for (number, caller) in callers.iter().enumerate() {
        let (text, _) = caller.receive()?;
        println!("caller {number} is told: {text}");
    }
    Ok(())
}

/// A device of this process, and a UD queue pair on it.
struct Party {
    pd: ProtectionDomain,
    qp: QueuePair,
    sent: CompletionQueue,
    received: CompletionQueue,
    mr: MemoryRegion,
}

impl Party {
    fn new() -> Result<Self> {
        let ctx = Context::open(OpenOptions::loopback())?;
        let pd = ctx.alloc_pd();
        let (sent, received) = (ctx.create_cq(16, None)?, ctx.create_cq(16, None)?);
        let qp = pd.create_qp(&QpConfig { send_cq: &sent, ..QpConfig::ud(&received) })?;
        // No peer: from here on it takes what anybody sends who knows the key.
        qp.activate(KEY)?;
        let mr = pd.alloc_mr(16 * ROOM, Access::LOCAL_WRITE)?;
        Ok(Self { pd, qp, sent, received, mr })
    }

    /// Makes room for a message. One that finds no room is lost.
    fn expect(&self, slot: usize) -> Result<()> {
        let room = self.mr.sge(slot * ROOM..(slot + 1) * ROOM);
        Ok(self.qp.post_recv(RecvRequest::new(slot as u64, room))?)
    }

    fn send(&self, text: &str, to: UdTarget) -> Result<()> {
        let message = SendRequest::send(0, SendData::inline(text.as_bytes())).to(to);
        self.qp.post_send(message.signaled())?;
        // It has left; nobody says whether it arrived.
        match self.sent.wait_one(None)?.status {
            WcStatus::Success => Ok(()),
            status => Err(format!("sending failed: {status}").into()),
        }
    }

    /// The next message, and how to answer it.
    fn receive(&self) -> Result<(String, UdTarget)> {
        let completion = self.received.wait_one(None)?;
        let mut bytes = vec![0; completion.byte_len as usize];
        self.mr.read_at(usize::try_from(completion.wr_id)? * ROOM, &mut bytes)?;
        let (header, text) = bytes.split_first_chunk().ok_or("a message without header")?;
        let way = self.pd.create_ah_from_header(header)?;
        let qpn = completion.source_qp.ok_or("a message from nobody")?;
        Ok((String::from_utf8(text.to_vec())?, way.target(qpn, KEY)))
    }
}
