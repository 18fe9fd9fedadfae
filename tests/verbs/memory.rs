//! Special memory: on demand, files, device memory, null regions, and reregistration.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use softroce::verbs::*;
use tempfile::NamedTempFile;

use crate::node::{Node, all_access};

/// Returns memory that is never mapped: the first page of the address space.
fn nowhere() -> HostMemory {
    // SAFETY: none of its bytes can be read or written.
    unsafe { HostMemory::on_demand(std::ptr::null_mut(), 4096) }.unwrap()
}

fn on_demand() -> Access {
    all_access() | Access::ON_DEMAND
}

// ---- on demand ----

/// A missing page ends the request with an error, without a signal.
#[test]
fn request_for_unmapped_memory_is_a_remote_access_error() {
    let requests: [fn(&Node, RemoteAddr) -> SendRequest; 4] = [
        |a, at| SendRequest::write(1, a.mr.sge(..64), at),
        |a, at| SendRequest::write(1, a.mr.sge(..5000), RemoteAddr { addr: 0, ..at }),
        |a, at| SendRequest::read(1, a.mr.sge(..64), at),
        |a, at| SendRequest::fetch_add(1, a.mr.sge(..8), at, 1),
    ];
    for request in requests {
        let (a, b) = Node::pair();
        let region = b.pd.reg_mr(nowhere(), on_demand()).unwrap();
        a.send(request(&a, region.remote(1024)));
        assert_eq!(a.end(), (1, WcStatus::RemAccessErr));
        assert_eq!(b.event(), AsyncEvent::QpAccessErr(b.qp.qpn()));
    }
}

#[test]
fn local_request_with_unmapped_memory_fails() {
    let (a, b) = Node::pair();
    let region = a.pd.reg_mr(nowhere(), on_demand()).unwrap();
    a.send(SendRequest::write(1, region.sge(..64), b.mr.remote(0)));
    assert_eq!(a.end(), (1, WcStatus::LocProtErr));

    let (a, b) = Node::pair();
    let region = b.pd.reg_mr(nowhere(), on_demand()).unwrap();
    b.qp.post_recv(RecvRequest::new(2, region.sge(..64))).unwrap();
    a.send(SendRequest::send(1, a.mr.sge(..64)));
    assert_eq!((a.end(), b.end()), ((1, WcStatus::RemOpErr), (2, WcStatus::LocProtErr)));

    let (a, b) = Node::pair();
    let region = a.pd.reg_mr(nowhere(), on_demand()).unwrap();
    a.send(SendRequest::read(1, region.sge(..64), b.mr.remote(0)));
    assert_eq!(a.end(), (1, WcStatus::LocProtErr));
}

/// One region covers the whole address space; the test accesses only its own bytes.
#[test]
fn implicit_region_serves_every_operation() {
    let words = [const { AtomicU64::new(0) }; 1024];
    let (a, b) = Node::pair();
    // SAFETY: the only requests are for `words`, which are atomics.
    let everything = unsafe { HostMemory::on_demand(std::ptr::null_mut(), usize::MAX) }.unwrap();
    let access = on_demand() | Access::FLUSH_GLOBAL;
    let all = b.pd.reg_mr(everything, access).unwrap();
    let at = |word: usize| all.remote(words.as_ptr().addr() + 8 * word);
    let piece = |word, length| Sge { addr: at(word).addr, length, lkey: all.lkey() };
    let load = |word: usize| words[word].load(Ordering::Acquire).to_ne_bytes();

    let sent = a.fill(0, 8000, 1);
    a.run(SendRequest::write(1, a.mr.sge(..8000), at(3)));
    assert_eq!(
        (load(3), load(1002)),
        (sent[..8].try_into().unwrap(), sent[7992..].try_into().unwrap())
    );
    a.run(SendRequest::read(2, a.mr.sge(8000..16_000), at(3)));
    assert_eq!(a.bytes(8000, 8000), sent);
    a.run(SendRequest::fetch_add(3, a.mr.sge(..8), at(0), 7));
    a.run(SendRequest::compare_swap(4, a.mr.sge(..8), at(0), 7, 9));
    assert_eq!((words[0].load(Ordering::Acquire), a.mr.load_u64(0)), (9, Ok(7)));
    a.run(SendRequest::flush(5, at(0), 8192, FlushPlacement::GLOBAL_VISIBILITY));
    b.qp.post_recv(RecvRequest::new(6, piece(0, 64))).unwrap();
    a.run(SendRequest::send(7, SendData::inline(b"a message")));
    assert_eq!((b.end(), &load(0)), ((6, WcStatus::Success), b"a messag"));
    b.run(SendRequest::write(8, piece(0, 9), a.mr.remote(0)));
    assert_eq!(a.bytes(0, 9), b"a message");

    // This memory does not support atomic stores.
    a.send(SendRequest::atomic_write(9, SendData::inline(&[1; 8]), at(0)));
    assert_eq!(a.end(), (9, WcStatus::RemInvReqErr));
}

/// The pages after the middle of the message are unmapped, so its second half cannot be placed.
#[test]
fn message_into_partly_unmapped_memory_fails_both_sides() {
    const LEN: u32 = 200_000;
    let cut = |node: &Node| {
        let file = file(LEN.into());
        let memory = HostMemory::map_file(file.as_file(), 0, LEN as usize).unwrap();
        let region = node.pd.reg_mr(memory, all_access()).unwrap();
        file.as_file().set_len(90_000).unwrap();
        region
    };
    let (a, b) = Node::pair();
    let region = cut(&b);
    a.send(SendRequest::write(1, a.mr.sge(..LEN as usize), region.remote(0)));
    assert_eq!(a.end(), (1, WcStatus::RemAccessErr));
    assert_eq!(b.event(), AsyncEvent::QpAccessErr(b.qp.qpn()));

    let (a, b) = Node::pair();
    let region = cut(&b);
    b.qp.post_recv(RecvRequest::new(2, region.sge(..))).unwrap();
    a.send(SendRequest::send(1, a.mr.sge(..LEN as usize)));
    assert_eq!((a.end(), b.end()), ((1, WcStatus::RemOpErr), (2, WcStatus::LocProtErr)));

    let (a, b) = Node::pair();
    let region = cut(&a);
    a.send(SendRequest::read(1, region.sge(..), b.mr.remote(0)));
    assert_eq!(a.end(), (1, WcStatus::LocProtErr));

    let (a, b) = Node::pair();
    let region = cut(&a);
    a.send(SendRequest::write(1, region.sge(..), b.mr.remote(0)));
    assert_eq!(a.end(), (1, WcStatus::LocProtErr));

    let (a, b) = Node::pair();
    let region = cut(&b);
    a.send(SendRequest::read(1, a.mr.sge(..LEN as usize), region.remote(0)));
    assert_eq!(a.end(), (1, WcStatus::RemAccessErr));
}

#[test]
fn advice_requires_memory_that_a_request_may_use() {
    let (a, _b) = Node::pair();
    let region = a.pd.reg_mr(nowhere(), on_demand()).unwrap();
    let sge = region.sge(..64);
    assert!(a.pd.advise_mr(Advice::Prefetch, false, &[a.mr.sge(..), sge]).is_ok(), "a hint");
    let told = |advice, sges: &[Sge]| a.pd.advise_mr(advice, true, sges).unwrap_err().to_string();
    assert!(told(Advice::PrefetchWrite, &[sge]).starts_with("cannot prefetch: "));
    assert!(a.pd.advise_mr(Advice::PrefetchNoFault, true, &[sge]).is_ok());
    let key = Lkey(region.lkey().0 ^ 0x100);
    let text = told(Advice::Prefetch, &[Sge { lkey: key, ..sge }]);
    assert_eq!(text, format!("no region or window has key 0x{:08x}", key.0));
}

// ---- null regions ----

#[test]
fn null_region_reads_zeros_and_discards_writes() {
    let (a, b) = Node::pair();
    let (from, to) = (a.pd.alloc_null_mr().unwrap(), b.pd.alloc_null_mr().unwrap());
    let sent = a.fill(0, 3000, 1);
    b.fill(0, 6000, 2);
    // Two thirds of the memory; the receiver discards the first half.
    let null = |mr: &MemoryRegion, addr| Sge { addr, length: 1500, lkey: mr.lkey() };
    let pieces = [null(&to, u64::MAX - 1500), b.mr.sge(..4500)];
    b.qp.post_recv(RecvRequest::scattered(1, &pieces)).unwrap();
    a.run(SendRequest::send(2, [a.mr.sge(..3000), null(&from, 0x1234)]));
    assert_eq!((b.end(), b.bytes(0, 1500)), ((1, WcStatus::Success), sent[1500..].to_vec()));
    assert_eq!(b.bytes(1500, 1500), [0; 1500]);

    a.run(SendRequest::read(3, null(&from, 0), b.mr.remote(0)));
    let remote = RemoteAddr { addr: 0, rkey: to.rkey() };
    a.send(SendRequest::read(4, a.mr.sge(..8), remote));
    assert_eq!(a.end(), (4, WcStatus::RemAccessErr), "it is nothing to peers");
}

// ---- files ----

/// Returns a file of this length.
fn file(len: u64) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    file.as_file().set_len(len).unwrap();
    file
}

#[test]
fn log_in_a_mapped_file_is_written_flushed_and_committed() {
    let file = file(64 << 10);
    let (a, b) = Node::pair();
    let access = all_access() | Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
    let log =
        b.pd.reg_mr(HostMemory::map_file(file.as_file(), 0, 64 << 10).unwrap(), access).unwrap();
    let entry = a.fill(0, 9000, 1);
    let persist = FlushPlacement::PERSISTENCE;
    a.send(SendRequest::write(1, a.mr.sge(..9000), log.remote(4096)));
    a.send(SendRequest::flush(2, log.remote(4096), 9000, persist));
    let commit = SendData::inline(&9000_u64.to_ne_bytes());
    a.send(SendRequest::atomic_write(3, commit, log.remote(8)));
    a.send(SendRequest::flush_region(4, log.rkey(), persist));
    a.send(SendRequest::fetch_add(5, a.mr.sge(..8), log.remote(8), 1));
    for wr_id in 1..=5 {
        assert_eq!(a.end(), (wr_id, WcStatus::Success));
    }
    let found = fs::read(file.path()).unwrap();
    assert_eq!((&found[8..16], &found[4096..13_096]), (&9001_u64.to_ne_bytes()[..], &entry[..]));

    // Accesses beyond the truncated file fail, without a signal.
    file.as_file().set_len(4096).unwrap();
    a.send(SendRequest::write(6, a.mr.sge(..8), log.remote(8192)));
    assert_eq!(a.end(), (6, WcStatus::RemAccessErr));
}

#[test]
fn persistent_flush_requires_persistent_memory() {
    let (a, _b) = Node::pair();
    let refused = a.pd.alloc_mr(4096, Access::FLUSH_PERSISTENT).unwrap_err();
    assert_eq!(refused.to_string(), "FLUSH_PERSISTENT needs memory that is a mapped file");
}

// ---- device memory ----

#[test]
fn peer_writes_device_memory() {
    let (a, b) = Node::pair();
    let dm = b.ctx.alloc_dm(4096, 3).unwrap();
    let access = all_access() | Access::ZERO_BASED;
    let half = b.pd.reg_dm_mr(&dm, 2048, 2048, access).unwrap();
    let sent = a.fill(0, 2048, 3);
    a.run(SendRequest::write(1, a.mr.sge(..2048), RemoteAddr { addr: 0, rkey: half.rkey() }));
    let mut seen = vec![0; 2048];
    dm.memcpy_from_dm(2048, &mut seen).unwrap();
    assert_eq!(seen, sent);

    // The region keeps the device memory allocated.
    let most = b.ctx.device_info().unwrap().limits.max_dm_size;
    drop(dm);
    assert!(b.ctx.alloc_dm(most, 0).is_err());
    drop(half);
    let all = b.ctx.alloc_dm(most, 0).unwrap();
    let text = b.ctx.alloc_dm(1, 0).unwrap_err().to_string();
    assert_eq!(text, "1 bytes of device memory, of which 0 are left");
    let text = a.pd.reg_dm_mr(&all, 0, 8, access).unwrap_err().to_string();
    assert!(text.contains("device memory"), "{text}");
}

// ---- reregistration ----

#[test]
fn rereg_changes_access_memory_and_domain() {
    let (a, b) = Node::pair();
    let mut mr = b.pd.alloc_mr(4096, all_access() | Access::ZERO_BASED).unwrap();
    let (old, at) = (mr.clone(), mr.remote(0));
    a.run(SendRequest::write(1, a.mr.sge(..8), at));

    let memory = Some((HostMemory::alloc(64 << 10).unwrap(), None));
    mr.rereg(Rereg { memory, ..Rereg::default() }).unwrap();
    assert_eq!((mr.remote(0), mr.len(), old.is_live()), (at, 64 << 10, false));
    let sent = a.fill(0, 60_000, 4);
    a.run(SendRequest::write(2, a.mr.sge(..60_000), at));
    let mut seen = vec![0; 60_000];
    mr.read_at(0, &mut seen).unwrap();
    assert_eq!(seen, sent);
    // Dropping the handle of the old region does not invalidate the key.
    drop(old);

    let access = Some(Access::REMOTE_READ | Access::ZERO_BASED);
    mr.rereg(Rereg { access, ..Rereg::default() }).unwrap();
    a.run(SendRequest::read(3, a.mr.sge(..8), at));
    a.send(SendRequest::write(4, a.mr.sge(..8), at));
    assert_eq!(a.end(), (4, WcStatus::RemAccessErr));

    let (a, b) = Node::pair_on(a.ctx, b.ctx);
    let other = b.ctx.alloc_pd();
    a.run(SendRequest::write(5, a.mr.sge(..8), b.mr.remote(0)));
    let mut mr = b.pd.alloc_mr(4096, all_access()).unwrap();
    mr.rereg(Rereg { pd: Some(&other), ..Rereg::default() }).unwrap();
    a.send(SendRequest::write(6, a.mr.sge(..8), mr.remote(0)));
    assert_eq!(a.end(), (6, WcStatus::RemAccessErr));
}

#[test]
fn failed_rereg_leaves_the_region_unchanged() {
    let (a, b) = Node::pair();
    let mut mr = b.pd.alloc_mr(4096, all_access()).unwrap();
    let access = Some(Access::REMOTE_WRITE);
    let text = mr.rereg(Rereg { access, ..Rereg::default() }).unwrap_err().to_string();
    assert_eq!(text, "REMOTE_WRITE needs LOCAL_WRITE");
    let text = mr.rereg(Rereg { pd: Some(&a.pd), ..Rereg::default() }).unwrap_err().to_string();
    assert!(text.contains("protection domain"), "{text}");
    a.run(SendRequest::write(1, a.mr.sge(..8), mr.remote(0)));
}

// ---- flags ----

/// MR-09, and flags without effect.
#[test]
fn flags_without_effect_are_accepted() {
    let (a, b) = Node::pair();
    let unknown = Access::from_bits_retain(1 << 27);
    let flags = Access::RELAXED_ORDERING | Access::HUGETLB | Access::ON_DEMAND | unknown;
    let mr = b.pd.alloc_mr(4096, all_access() | Access::ZERO_BASED | flags).unwrap();
    assert_eq!((mr.addr(), mr.access() & unknown), (0, Access::empty()));
    let sent = a.fill(0, 4096, 5);
    a.run(SendRequest::write(1, a.mr.sge(..4096), RemoteAddr { addr: 0, rkey: mr.rkey() }));
    let mut seen = vec![0; 4096];
    mr.read_at(0, &mut seen).unwrap();
    assert_eq!(seen, sent);
}
