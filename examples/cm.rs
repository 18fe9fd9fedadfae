//! A client and a server, connected by address and port: no exchange of queue pair numbers over another channel.

use std::net::SocketAddr;
use std::thread;

use softroce::verbs::*;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Accepts one connection, and receives one message.
fn serve(ctx: &Context, listener: &cm::Listener) -> Result<()> {
    let (pd, cq) = (ctx.alloc_pd(), ctx.create_cq(16, None)?);
    let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE)?;
    let qp = pd.create_qp(&QpConfig::rc(&cq))?;

    let incoming = listener.accept(None)?;
    println!("{} asks for a connection", incoming.peer());
    let connection = incoming.accept(&qp, &cm::Accept::default())?;
    qp.post_recv(RecvRequest::new(1, mr.sge(..)))?;

    let mut message = vec![0; cq.wait_one(None)?.byte_len as usize];
    mr.read_at(0, &mut message)?;
    println!("received: {}", String::from_utf8_lossy(&message));
    while !matches!(connection.wait(None)?, cm::ConnectionEvent::Disconnected { .. }) {}
    Ok(())
}

/// Connects, and sends one message.
fn call(ctx: &Context, server: SocketAddr) -> Result<()> {
    let cq = ctx.create_cq(16, None)?;
    let qp = ctx.alloc_pd().create_qp(&QpConfig::rc(&cq))?;
    let connection = cm::connect(ctx, server, &qp, &cm::Connect::default())?;
    qp.post_send(SendRequest::send(1, SendData::inline(b"hello, server")).signaled())?;
    println!("sent: {}", cq.wait_one(None)?.status);
    Ok(connection.disconnect()?)
}

fn main() -> Result<()> {
    // Two RDMA devices, for example at 127.0.0.1 and 127.0.0.2.
    let (near, far) =
        (Context::open(OpenOptions::loopback())?, Context::open(OpenOptions::loopback())?);
    let listener = cm::Listener::bind(&far, "0.0.0.0:7174".parse()?)?;
    thread::scope(|scope| {
        let server = scope.spawn(|| serve(&far, &listener));
        call(&near, SocketAddr::new(far.ip(), 7174))?;
        server.join().map_err(|_| "the server has panicked")?
    })
}
