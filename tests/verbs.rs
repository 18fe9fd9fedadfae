//! The verbs over loopback sockets.

use softroce::verbs::*;

#[test]
fn a_message_goes_from_one_device_to_another() {
    let a = Context::open(OpenOptions::loopback()).unwrap();
    let b = Context::open(OpenOptions::loopback()).unwrap();
    let (a_cq, b_cq) = (a.create_cq(16, None).unwrap(), b.create_cq(16, None).unwrap());
    let (a_pd, b_pd) = (a.alloc_pd(), b.alloc_pd());
    let a_qp = a_pd.create_qp(&QpConfig::rc(&a_cq)).unwrap();
    let b_qp = b_pd.create_qp(&QpConfig::rc(&b_cq)).unwrap();
    a_qp.connect(&b_qp.endpoint(), &ConnectOptions::default()).unwrap();
    b_qp.connect(&a_qp.endpoint(), &ConnectOptions::default()).unwrap();
    let mr = b_pd.alloc_mr(64, Access::LOCAL_WRITE).unwrap();
    b_qp.post_recv(RecvRequest::new(2, mr.sge(..))).unwrap();
    a_qp.post_send(SendRequest::send_imm(1, SendData::inline(b"hello"), 7).signaled()).unwrap();
    let received = b_cq.wait_one(None).unwrap();
    assert_eq!((received.wr_id, received.status), (2, WcStatus::Success));
    assert_eq!((received.byte_len, received.imm), (5, Some(7)));
    assert_eq!(a_cq.wait_one(None).unwrap().wr_id, 1);
    let mut seen = [0; 5];
    mr.read_at(0, &mut seen).unwrap();
    assert_eq!(&seen, b"hello");
}
