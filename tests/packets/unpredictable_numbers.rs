//! Numbers and keys are unpredictable: every free bit is random, and errors do not reveal how close a guess was.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "test code")]

use std::sync::Arc;

use crate::support::script::{OURS, Script, rts_qp};
use crate::support::{PD, full_access, init_attr, qp_init, rtr_attr, rts_attr};
use softroce::engine::{Config, Engine};
use softroce::ids::{PdId, Rkey};
use softroce::mem::{Access, BindInfo, HostMemory, Memory, MwType};
use softroce::time::Instant;
use softroce::transport::outputs::AsyncEvent::QpAccessErr;
use softroce::transport::work::SendRequest;

/// Keys that grant no access, each for another reason.
#[derive(Clone, Copy, Debug)]
enum InvalidKey {
    /// No region has this index.
    Index,
    /// A region has the index, with another variant byte.
    Variant,
    /// A region of another protection domain has the key.
    Domain,
    /// The key of a deregistered region.
    Gone,
    /// A region without remote access has the key.
    Rights,
    /// A region at other addresses has the key.
    Range,
    /// A window has the index, with another variant byte.
    WindowVariant,
    /// An unbound window has the key.
    Unbound,
    /// A window bound for another queue pair has the key.
    OtherQp,
}

impl InvalidKey {
    const ALL: [Self; 9] = [
        Self::Index,
        Self::Variant,
        Self::Domain,
        Self::Gone,
        Self::Rights,
        Self::Range,
        Self::WindowVariant,
        Self::Unbound,
        Self::OtherQp,
    ];

    fn key(self, t: &mut Script) -> Rkey {
        let mem = t.mem.rkey();
        let beside = |pd, iova, access| {
            let memory = HostMemory::alloc(4096).unwrap();
            t.memory.register(pd, memory, Some(iova), access).unwrap()
        };
        match self {
            Self::Index => Rkey(mem.0 ^ 0x8000_0000),
            Self::Variant => Rkey(mem.0 ^ 1),
            Self::Domain => beside(PdId(PD.0 + 1), 0x1000, full_access()).rkey(),
            Self::Gone => {
                let region = beside(PD, 0x1000, full_access());
                t.memory.deregister(&region);
                region.rkey()
            }
            Self::Rights => beside(PD, 0x1000, Access::LOCAL_WRITE).rkey(),
            Self::Range => beside(PD, 0x8_0000, full_access()).rkey(),
            Self::WindowVariant => Rkey(Self::window(t, true).0 ^ 1),
            Self::Unbound => Self::window(t, false),
            Self::OtherQp => Self::window(t, true),
        }
    }

    /// Returns the key of a type 2 window, bound for another queue pair or unbound.
    fn window(t: &mut Script, bound: bool) -> Rkey {
        let id = t.memory.alloc_window(PD, MwType::Type2).unwrap();
        let key = t.memory.window_key(id).unwrap();
        if !bound {
            return key;
        }
        let access = full_access() | Access::MW_BIND;
        let region = t.region(4096, 0x1000, access);
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let to = BindInfo { lkey: region.lkey(), addr: 0x1000, length: 4096, access };
        let other = t.engine.create_qp(Instant::ZERO, qp_init(&rts_qp())).unwrap();
        let link = rts_qp();
        for attr in [
            init_attr(&link).into(),
            rtr_attr(&link, OURS, other, 5).into(),
            rts_attr(&link, 5).into(),
        ] {
            t.engine.modify_qp(Instant::ZERO, other, &attr, |_, port| port).unwrap();
        }
        let bind = SendRequest::bind_mw(1, id, key.inc(), to);
        t.engine.post_send(Instant::ZERO, other, bind).unwrap();
        t.all(0);
        assert_eq!(t.memory.window_key(id), Some(key.inc()), "it is bound");
        key.inc()
    }
}

/// RSP-26: the response and the application's event are identical for all invalid keys.
#[test]
fn nak_reveals_nothing_about_an_invalid_key() {
    for request in [
        "WRITE_ONLY psn=5 ackreq va=0x1000 rkey=KEY dmalen=8 len=8",
        "WRITE_FIRST psn=5 va=0x1000 rkey=KEY dmalen=300 len=256",
        "READ_REQUEST psn=5 va=0x1000 rkey=KEY dmalen=8",
        "FETCH_ADD psn=5 va=0x1000 rkey=KEY add=0x1",
        "COMPARE_SWAP psn=5 va=0x1000 rkey=KEY expect=0x0 swap=0x1",
        "ATOMIC_WRITE psn=5 va=0x1000 rkey=KEY dmalen=8 len=8",
        "FLUSH psn=5 placement=0x1 selectivity=0 va=0x1000 rkey=KEY dmalen=8",
    ] {
        let answers = InvalidKey::ALL.map(|wrong| {
            let mut t = Script::responder(rts_qp());
            let key = wrong.key(&mut t);
            t.rx(0, &request.replace("KEY", &key.to_string()));
            let sent = t.tx(0, "NAK_ACCESS psn=5 msn=0");
            assert_eq!(t.events(), [QpAccessErr(t.qpn)], "{wrong:?}");
            assert_eq!(t.recvs(), [], "{wrong:?}");
            (sent.bytes, sent.path)
        });
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{request}");
    }
}

/// The same holds for the key that a SEND invalidates.
#[test]
fn nak_reveals_nothing_about_a_key_to_invalidate() {
    let keys = [
        InvalidKey::Index,
        InvalidKey::Variant,
        InvalidKey::Domain,
        InvalidKey::Gone,
        InvalidKey::Rights,
    ];
    let answers =
        keys.into_iter().chain([InvalidKey::WindowVariant, InvalidKey::OtherQp]).map(|wrong| {
            let mut t = Script::responder(rts_qp());
            t.post_recv(64);
            let key = wrong.key(&mut t);
            t.rx(0, &format!("SEND_ONLY_INV psn=5 inv={key} len=8"));
            let sent = t.tx(0, "NAK_ACCESS psn=5 msn=0");
            t.events();
            (sent.bytes, sent.path, t.recvs().len())
        });
    let answers: Vec<_> = answers.collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
}

/// Returns how often each bit is set in the numbers.
fn bits(numbers: &[u32]) -> [usize; 32] {
    std::array::from_fn(|bit| numbers.iter().filter(|number| *number >> bit & 1 == 1).count())
}

/// Returns whether a count is half of the total, within five standard deviations.
fn is_even(count: usize, of: usize) -> bool {
    let (count, of) = (count as f64, of as f64);
    (count - of / 2.0).abs() < 5.0 * (of / 4.0).sqrt()
}

#[test]
fn every_bit_of_a_key_is_random() {
    let keys = |seed: u8| -> Vec<u32> {
        let memory = Memory::new([seed; 32]);
        let key = |_| {
            let region = memory.register(PD, HostMemory::alloc(8).unwrap(), None, full_access());
            region.unwrap().rkey().0
        };
        (0..2048).map(key).collect()
    };
    let [some, others] = [1, 2].map(keys);
    for (bit, count) in bits(&some).into_iter().enumerate() {
        assert!(is_even(count, some.len()), "bit {bit} is set in {count} of {}", some.len());
    }
    let steps: Vec<_> = some.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    assert!(bits(&steps).into_iter().all(|count| is_even(count, steps.len())), "{steps:x?}");
    assert!(some.iter().zip(&others).filter(|(a, b)| a == b).count() < 2, "another seed");
}

/// The low six bits contain the shard.
#[test]
fn every_bit_of_a_queue_pair_number_above_the_shard_is_random() {
    let numbers = |seed: u8| -> Vec<u32> {
        let config = Config { shard: 5, ..Config::new(OURS) };
        let mut engine = Engine::new(config, Arc::new(Memory::new([seed; 32])), [seed; 32]);
        let create = |_| engine.create_qp(Instant::ZERO, qp_init(&rts_qp())).unwrap().value();
        (0..2048).map(create).collect()
    };
    let [some, others] = [1, 2].map(numbers);
    assert!(some.iter().all(|number| number & 0x3f == 5), "{some:x?}");
    for (bit, count) in bits(&some).into_iter().enumerate().skip(6).take(18) {
        assert!(is_even(count, some.len()), "bit {bit} is set in {count} of {}", some.len());
    }
    let steps: Vec<_> = some.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]) >> 6).collect();
    assert!(bits(&steps)[..18].iter().all(|count| is_even(*count, steps.len())), "{steps:x?}");
    let same = some.iter().zip(&others).filter(|(a, b)| a == b).count();
    assert!(same < 4, "another seed, and {same} of the same");
}

/// Numbers come from the system's random generator, so they differ from those of earlier runs and other devices.
#[cfg(feature = "runtime")]
#[test]
fn devices_and_queue_pairs_start_with_different_numbers() {
    use std::collections::HashSet;

    use softroce::verbs::{Context, OpenOptions, QpConfig};

    let mut seen = HashSet::new();
    for _ in 0..4 {
        let context = Context::open(OpenOptions::loopback()).unwrap();
        let (pd, cq) = (context.alloc_pd(), context.create_cq(4, None).unwrap());
        let [one, other] = [(); 2].map(|()| pd.create_qp(&QpConfig::rc(&cq)).unwrap().endpoint());
        let key = pd.alloc_mr(64, Access::LOCAL_WRITE).unwrap().rkey();
        seen.insert((one.qpn, other.qpn, one.psn, other.psn, key));
        assert!(one.psn != other.psn || one.qpn != other.qpn);
    }
    // Numbers that agree in 100 or more bits are not independent.
    assert_eq!(seen.len(), 4, "{seen:?}");
}
