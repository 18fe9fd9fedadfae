//! A one-sided WRITE between two devices of one process: it changes the memory of the second device without any
//! action of its program.

use softroce::verbs::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Two RDMA devices, for example at 127.0.0.1 and 127.0.0.2.
    let (near, far) =
        (Context::open(OpenOptions::loopback())?, Context::open(OpenOptions::loopback())?);

    // Each device needs a queue pair, memory, and a completion queue.
    let (near_cq, far_cq) = (near.create_cq(16, None)?, far.create_cq(16, None)?);
    let (near_pd, far_pd) = (near.alloc_pd(), far.alloc_pd());
    let source = near_pd.alloc_mr(4096, Access::LOCAL_WRITE)?;
    let target = far_pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let near_qp = near_pd.create_qp(&QpConfig::rc(&near_cq))?;
    let far_qp = far_pd.create_qp(&QpConfig::rc(&far_cq))?;
    near_qp.connect(&far_qp.endpoint(), &ConnectOptions::default())?;
    far_qp.connect(&near_qp.endpoint(), &ConnectOptions::default())?;

    source.write_at(0, b"hello, remote memory")?;
    near_qp.post_send(SendRequest::write(1, source.sge(..20), target.remote(0)).signaled())?;
    let completion = near_cq.wait_one(None)?;

    let mut seen = [0; 20];
    target.read_at(0, &mut seen)?;
    println!("{}: {:?}", completion.status, std::str::from_utf8(&seen)?);
    Ok(())
}
