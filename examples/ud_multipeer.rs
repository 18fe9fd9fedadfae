//! UD: one queue pair exchanges messages with several others, without connections.
//!
//! A server receives messages from three clients and replies to each. It does not know the clients in advance: the
//! header before each message contains the address of the sender.

use softroce::verbs::*;

/// Queue key. A queue pair receives only messages with its key.
const QKEY: QKey = QKey(0x1234);

/// Length in bytes of a receive request: 40 bytes for the header with the sender's address, and the message.
const RECV_BYTES: usize = GRH_LEN + 64;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let server = Node::new()?;
    let clients = [Node::new()?, Node::new()?, Node::new()?];
    for slot in 0..clients.len() {
        server.post_recv(slot)?;
    }

    for (number, client) in clients.iter().enumerate() {
        client.post_recv(0)?;
        // The target of a message consists of an address handle, a queue pair number and a queue key.
        let ah = client.pd.create_ah(AddressVector::to(server.qp.endpoint().gid))?;
        client.send(&format!("hello from client {number}"), ah.target(server.qp.qpn(), QKEY))?;
    }

    for _ in &clients {
        let (text, sender) = server.receive()?;
        server.send(&format!("welcome, you wrote {text:?}"), sender)?;
    }

    for (number, client) in clients.iter().enumerate() {
        let (text, _) = client.receive()?;
        println!("client {number} received: {text}");
    }
    Ok(())
}

/// A device of this process with a UD queue pair.
struct Node {
    pd: ProtectionDomain,
    qp: QueuePair,
    sent: CompletionQueue,
    received: CompletionQueue,
    mr: MemoryRegion,
}

impl Node {
    fn new() -> Result<Self> {
        let ctx = Context::open(OpenOptions::loopback())?;
        let pd = ctx.alloc_pd();
        let (sent, received) = (ctx.create_cq(16, None)?, ctx.create_cq(16, None)?);
        let qp = pd.create_qp(&QpConfig { send_cq: &sent, ..QpConfig::ud(&received) })?;
        // UD needs no peer: from now on the queue pair receives all messages with this key.
        qp.activate(QKEY)?;
        let mr = pd.alloc_mr(16 * RECV_BYTES, Access::LOCAL_WRITE)?;
        Ok(Self { pd, qp, sent, received, mr })
    }

    /// Posts a receive request. A message without one is lost.
    fn post_recv(&self, slot: usize) -> Result<()> {
        let buffer = self.mr.sge(slot * RECV_BYTES..(slot + 1) * RECV_BYTES);
        Ok(self.qp.post_recv(RecvRequest::new(slot as u64, buffer))?)
    }

    fn send(&self, text: &str, to: UdTarget) -> Result<()> {
        let message = SendRequest::send(0, SendData::inline(text.as_bytes())).to(to);
        self.qp.post_send(message.signaled())?;
        // The message has been sent. UD does not report whether it has arrived.
        match self.sent.wait_one(None)?.status {
            WcStatus::Success => Ok(()),
            status => Err(format!("sending failed: {status}").into()),
        }
    }

    /// Returns the next message, and the target for a reply.
    fn receive(&self) -> Result<(String, UdTarget)> {
        let completion = self.received.wait_one(None)?;
        let mut bytes = vec![0; completion.byte_len as usize];
        self.mr.read_at(usize::try_from(completion.wr_id)? * RECV_BYTES, &mut bytes)?;
        let (header, text) = bytes.split_first_chunk().ok_or("a message without header")?;
        let ah = self.pd.create_ah_from_header(header)?;
        let qpn = completion.source_qp.ok_or("a message without a sender")?;
        Ok((String::from_utf8(text.to_vec())?, ah.target(qpn, QKEY)))
    }
}
