use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;
use crate::ids::Lkey;
use crate::mem::{
    DeregisterError, HostMemory, LocalAccess, MemoryLimits, Placement, Region, Revoked, Span,
};
use crate::sync::epoch::wait_until;

const PD: PdId = PdId(1);
const QPN: Qpn = Qpn::new(0x40);
const BASE: u64 = 0x1_0000;
const ALL: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);

fn memory() -> Memory {
    Memory::new([3; 32])
}

fn user(qpn: u32) -> KeyUser {
    KeyUser { pd: PD, qpn: Some(Qpn::new(qpn)) }
}

const OURS: KeyUser = KeyUser { pd: PD, qpn: Some(QPN) };

fn region_with(memory: &Memory, access: Access) -> Arc<Region> {
    memory.register(PD, HostMemory::alloc(4096).unwrap(), Some(BASE), access).unwrap()
}

/// Returns a region that permits binding windows and grants no remote access itself.
fn region(memory: &Memory) -> Arc<Region> {
    region_with(memory, Access::LOCAL_WRITE | Access::MW_BIND)
}

/// Returns bytes 1000 to 2000 of a region.
fn part(region: &Region) -> BindInfo {
    BindInfo { lkey: region.lkey(), addr: BASE + 1000, length: 1000, access: ALL }
}

/// Binds a window under the next key, and returns the key.
fn bind(memory: &Memory, id: MwId, to: &BindInfo) -> Rkey {
    let next = memory.window_key(id).unwrap().inc();
    assert_eq!(memory.bind(OURS, id, next.variant(), to), Ok(()));
    assert_eq!(memory.window_key(id), Some(next));
    next
}

fn refused(memory: &Memory, id: MwId, to: &BindInfo) -> BindError {
    let before = memory.window_key(id);
    let error = memory.bind(OURS, id, 7, to).unwrap_err();
    assert_eq!(memory.window_key(id), before);
    error
}

fn writes(memory: &Memory, rkey: Rkey, addr: u64, len: u32) -> Result<Span, AccessError> {
    memory.remote(OURS, rkey, addr, len, Access::REMOTE_WRITE)
}

/// MR-08
#[test]
fn window_grants_only_its_own_range() {
    for mw_type in MwType::ALL {
        let memory = memory();
        let region = region(&memory);
        let id = memory.alloc_window(PD, mw_type).unwrap();
        let rkey = bind(&memory, id, &part(&region));
        let mut handle = memory.epoch_handle();
        let span = writes(&memory, rkey, BASE + 1998, 2).unwrap();
        span.place(&handle.enter(), 0, b"ab", Placement::Final).unwrap();
        let mut seen = [1; 4];
        region.read_at(1997, &mut seen).unwrap();
        assert_eq!(&seen, b"\0ab\0");
        assert_eq!(writes(&memory, rkey, BASE + 1000, 1000).unwrap().len(), 1000);
        for (addr, len) in [
            (BASE + 999, 1),
            (BASE + 999, 2),
            (BASE + 1999, 2),
            (BASE + 2000, 1),
            (BASE, 4096),
            (BASE + 1000, u32::MAX),
            (u64::MAX, 1),
            (0, 1),
        ] {
            let found = writes(&memory, rkey, addr, len).unwrap_err();
            let (region_addr, region_len) = (BASE + 1000, 1000);
            let key = rkey.0;
            assert_eq!(found, AccessError::OutOfRange { key, addr, len, region_addr, region_len });
        }
    }
}

/// MR-08
#[test]
fn window_rights_are_independent_of_the_regions() {
    let memory = memory();
    let all = region_with(&memory, ALL | Access::LOCAL_WRITE | Access::MW_BIND);
    let id = memory.alloc_window(PD, MwType::Type1).unwrap();
    for (granted, denied) in [
        (Access::REMOTE_READ, Access::REMOTE_WRITE),
        (Access::REMOTE_WRITE, Access::REMOTE_ATOMIC),
        (Access::REMOTE_ATOMIC, Access::REMOTE_READ),
        (Access::empty(), Access::REMOTE_READ),
    ] {
        let rkey = bind(&memory, id, &BindInfo { access: granted, ..part(&all) });
        let open = |need| memory.remote(PD, rkey, BASE + 1000, 8, need).map(|span| span.len());
        let refused = AccessError::Denied { key: rkey.0, need: denied, granted };
        assert_eq!((open(granted), open(denied)), (Ok(8), Err(refused)));
    }
}

/// MR-05
#[test]
fn type_1_bind_invalidates_the_previous_key() {
    let memory = memory();
    let region = region(&memory);
    let id = memory.alloc_window(PD, MwType::Type1).unwrap();
    let none = memory.window_key(id).unwrap();
    assert_eq!(
        writes(&memory, none, BASE + 1000, 1).unwrap_err(),
        AccessError::Unbound { key: none.0 }
    );
    let first = bind(&memory, id, &part(&region));
    let under_way = writes(&memory, first, BASE + 1000, 1).unwrap();
    let second = bind(&memory, id, &BindInfo { addr: BASE, ..part(&region) });
    assert_eq!(
        writes(&memory, first, BASE + 1000, 1).unwrap_err(),
        AccessError::UnknownKey { key: first.0 }
    );
    assert!(!under_way.is_live(), "a message under way is cut off");
    assert!(writes(&memory, second, BASE, 1).is_ok());
    let unbound = bind(&memory, id, &BindInfo::NOTHING);
    assert_eq!(
        writes(&memory, unbound, BASE, 1).unwrap_err(),
        AccessError::Unbound { key: unbound.0 }
    );
}

#[test]
fn type_1_window_serves_all_queue_pairs_of_its_domain() {
    let memory = memory();
    let region = region(&memory);
    let id = memory.alloc_window(PD, MwType::Type1).unwrap();
    let rkey = bind(&memory, id, &part(&region));
    assert!(memory.remote(user(0x41), rkey, BASE + 1000, 8, Access::REMOTE_READ).is_ok());
    let foreign = KeyUser { pd: PdId(2), qpn: Some(QPN) };
    assert_eq!(
        memory.remote(foreign, rkey, BASE + 1000, 8, Access::REMOTE_READ).unwrap_err(),
        AccessError::WrongDomain { key: rkey.0 }
    );
}

/// MR-06
#[test]
fn type_2_window_serves_only_the_queue_pair_that_bound_it() {
    let memory = memory();
    let region = region(&memory);
    let id = memory.alloc_window(PD, MwType::Type2).unwrap();
    let rkey = bind(&memory, id, &part(&region));
    let open = |user: KeyUser| memory.remote(user, rkey, BASE + 1000, 8, Access::REMOTE_READ);
    assert!(open(OURS).is_ok());
    for other in [user(0x41), PD.into()] {
        assert_eq!(open(other).unwrap_err(), AccessError::OtherQp { key: rkey.0, qpn: QPN });
        let error = InvalidateError::OtherQp { rkey, qpn: QPN };
        assert_eq!(memory.invalidate(other, rkey), Err(error));
    }
    assert!(open(OURS).is_ok());
}

#[test]
fn type_2_window_is_bound_when_free_and_freed_by_invalidation() {
    let memory = memory();
    let region = region(&memory);
    let id = memory.alloc_window(PD, MwType::Type2).unwrap();
    let rkey = bind(&memory, id, &part(&region));
    let under_way = writes(&memory, rkey, BASE + 1000, 1).unwrap();
    assert_eq!(refused(&memory, id, &part(&region)), BindError::Bound);
    assert_eq!(memory.invalidate(OURS, rkey), Ok(()));
    assert!(!under_way.is_live());
    assert_eq!(
        writes(&memory, rkey, BASE + 1000, 1).unwrap_err(),
        AccessError::Unbound { key: rkey.0 }
    );
    assert_eq!(memory.invalidate(OURS, rkey), Err(InvalidateError::Unbound { rkey }));
    let again = bind(&memory, id, &part(&region));
    assert!(writes(&memory, again, BASE + 1000, 1).is_ok());
    assert!(!under_way.is_live(), "what is bound anew is another binding");
}

#[test]
fn type_2_bind_requires_a_new_variant() {
    let memory = memory();
    let region = region(&memory);
    let id = memory.alloc_window(PD, MwType::Type2).unwrap();
    for variant in [0, 1, 0xff, 0] {
        let rkey = memory.window_key(id).unwrap().with_variant(variant);
        assert_eq!(memory.bind(OURS, id, variant, &part(&region)), Ok(()));
        assert!(writes(&memory, rkey, BASE + 1000, 1).is_ok());
        for other in (0..=255).filter(|other| *other != variant) {
            let rkey = rkey.with_variant(other);
            let unknown = AccessError::UnknownKey { key: rkey.0 };
            assert_eq!(writes(&memory, rkey, BASE + 1000, 1).unwrap_err(), unknown);
        }
        assert_eq!(memory.invalidate(OURS, rkey), Ok(()));
        let same = memory.bind(OURS, id, variant, &part(&region));
        assert_eq!(same, Err(BindError::SameVariant { variant }));
    }
}

#[test]
fn only_a_bound_type_2_window_is_invalidated() {
    let memory = memory();
    let region = region(&memory);
    let id = memory.alloc_window(PD, MwType::Type1).unwrap();
    let rkey = bind(&memory, id, &part(&region));
    for rkey in [rkey, region.rkey()] {
        let error = InvalidateError::NotInvalidatable { rkey };
        assert_eq!(memory.invalidate(OURS, rkey), Err(error));
    }
    assert!(writes(&memory, rkey, BASE + 1000, 1).is_ok());
    let rkey = Rkey(rkey.0 ^ 0x100);
    assert_eq!(memory.invalidate(OURS, rkey), Err(InvalidateError::UnknownKey { rkey }));
    let id = memory.alloc_window(PD, MwType::Type2).unwrap();
    let rkey = bind(&memory, id, &part(&region));
    let foreign = KeyUser { pd: PdId(2), qpn: Some(QPN) };
    let error = InvalidateError::WrongDomain { rkey };
    assert_eq!(memory.invalidate(foreign, rkey), Err(error));
}

/// MR-07, C10-72 to C10-75
#[test]
fn bind_must_stay_within_the_rights_of_the_region() {
    for mw_type in MwType::ALL {
        let memory = memory();
        let id = memory.alloc_window(PD, mw_type).unwrap();
        let ours = region(&memory);
        let good = part(&ours);
        let out_of_range = |info: BindInfo| {
            let (region_addr, region_len) = (BASE, 4096);
            assert_eq!(
                refused(&memory, id, &info),
                BindError::OutOfRange { info, region_addr, region_len }
            );
        };
        out_of_range(BindInfo { addr: BASE - 1, ..good });
        out_of_range(BindInfo { length: 3097, ..good });
        out_of_range(BindInfo { length: u64::MAX, ..good });
        out_of_range(BindInfo { addr: u64::MAX, length: 2, ..good });
        out_of_range(BindInfo { addr: BASE + 4096, length: 1, ..good });

        let plain = region_with(&memory, Access::LOCAL_WRITE | ALL);
        let access = Access::MW_BIND;
        assert_eq!(refused(&memory, id, &part(&plain)), BindError::NotGranted { access });
        let access = Access::FLUSH_GLOBAL;
        let flushed = BindInfo { access: access | Access::REMOTE_READ, ..good };
        assert_eq!(refused(&memory, id, &flushed), BindError::NotGranted { access });
        let read_only = region_with(&memory, Access::MW_BIND);
        for access in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
            let info = BindInfo { access: access | Access::REMOTE_READ, ..part(&read_only) };
            assert_eq!(refused(&memory, id, &info), BindError::NeedsLocalWrite { access });
        }
        let zero_based =
            region_with(&memory, Access::LOCAL_WRITE | Access::MW_BIND | Access::ZERO_BASED);
        let info = BindInfo { addr: 0, ..part(&zero_based) };
        assert_eq!(refused(&memory, id, &info), BindError::ZeroBasedRegion);
        for access in [Access::LOCAL_WRITE, Access::MW_BIND, Access::ON_DEMAND] {
            let info = BindInfo { access: access | Access::REMOTE_READ, ..good };
            assert_eq!(refused(&memory, id, &info), BindError::Access { access });
        }
        let lkey = Lkey(good.lkey.0 ^ 1);
        let unknown = AccessError::UnknownKey { key: lkey.0 };
        assert_eq!(refused(&memory, id, &BindInfo { lkey, ..good }), BindError::Region(unknown));
        let host = HostMemory::alloc(4096).unwrap();
        let access = Access::LOCAL_WRITE | Access::MW_BIND;
        let foreign = memory.register(PdId(2), host, Some(BASE), access).unwrap();
        let wrong = AccessError::WrongDomain { key: foreign.lkey().0 };
        assert_eq!(refused(&memory, id, &part(&foreign)), BindError::Region(wrong));

        let variant = memory.window_key(id).unwrap().variant();
        let same = memory.bind(OURS, id, variant, &good);
        assert_eq!(same, Err(BindError::SameVariant { variant }));
        let foreign = KeyUser { pd: PdId(2), qpn: Some(QPN) };
        assert_eq!(memory.bind(foreign, id, 7, &good), Err(BindError::WrongDomain));
        memory.dealloc_window(id);
        assert_eq!(memory.bind(OURS, id, 7, &good), Err(BindError::NoSuchWindow(id)));
    }
}

#[test]
fn window_flush_requires_the_flags_of_region_and_window() {
    let memory = memory();
    let access = Access::LOCAL_WRITE | Access::MW_BIND | Access::FLUSH_GLOBAL;
    let region = region_with(&memory, access);
    let id = memory.alloc_window(PD, MwType::Type1).unwrap();
    let need = Access::FLUSH_GLOBAL;
    for access in [ALL, ALL | need] {
        let rkey = bind(&memory, id, &BindInfo { access, ..part(&region) });
        let some = memory.remote(OURS, rkey, BASE + 1000, 8, need).map(|span| span.len());
        let all = memory.remote_whole(OURS, rkey, need).map(|span| span.len());
        if access.contains(need) {
            assert_eq!((some, all), (Ok(8), Ok(1000)));
        } else {
            let denied = AccessError::Denied { key: rkey.0, need, granted: access };
            assert_eq!((some, all), (Err(denied), Err(denied)));
        }
    }
}

#[test]
fn remote_read_window_needs_no_local_write() {
    let memory = memory();
    let read_only = region_with(&memory, Access::MW_BIND);
    let id = memory.alloc_window(PD, MwType::Type2).unwrap();
    let access = Access::REMOTE_READ;
    let rkey = bind(&memory, id, &BindInfo { access, ..part(&read_only) });
    assert!(memory.remote(OURS, rkey, BASE + 1000, 8, access).is_ok());
}

#[test]
fn only_type_2_window_is_zero_based_and_never_bound_empty() {
    let memory = memory();
    let region = region(&memory);
    region.write_at(1000, b"first").unwrap();
    let zero = BindInfo { access: ALL | Access::ZERO_BASED, ..part(&region) };
    let one = memory.alloc_window(PD, MwType::Type1).unwrap();
    assert_eq!(refused(&memory, one, &zero), BindError::ZeroBased);
    let two = memory.alloc_window(PD, MwType::Type2).unwrap();
    assert_eq!(refused(&memory, two, &BindInfo::NOTHING), BindError::Nothing);
    let rkey = bind(&memory, two, &zero);
    let mut seen = [0; 5];
    let span = memory.remote(OURS, rkey, 0, 5, Access::REMOTE_READ).unwrap();
    span.copy_out(&memory.epoch_handle().enter(), 0, &mut seen).unwrap();
    assert_eq!(&seen, b"first");
    assert!(writes(&memory, rkey, 999, 1).is_ok());
    assert!(writes(&memory, rkey, 999, 2).is_err());
    assert!(writes(&memory, rkey, BASE + 1000, 1).is_err());
}

#[test]
fn key_of_a_window_is_invalid_as_a_local_key() {
    let memory = memory();
    let region = region(&memory);
    let id = memory.alloc_window(PD, MwType::Type1).unwrap();
    let Rkey(key) = bind(&memory, id, &part(&region));
    let found = memory.local(PD, Lkey(key), BASE + 1000, 8, LocalAccess::Read);
    assert_eq!(found.unwrap_err(), AccessError::UnknownKey { key });
}

/// MR-10
#[test]
fn region_with_windows_stays_registered() {
    for mw_type in MwType::ALL {
        let memory = memory();
        let region = region(&memory);
        let [a, b] = [0, 1].map(|_| memory.alloc_window(PD, mw_type).unwrap());
        let [key_a, key_b] = [a, b].map(|id| bind(&memory, id, &part(&region)));
        assert_eq!(memory.try_deregister(&region), Err(DeregisterError { windows: 2 }));
        assert!(writes(&memory, key_a, BASE + 1000, 1).is_ok());
        match mw_type {
            MwType::Type1 => bind(&memory, a, &BindInfo::NOTHING),
            MwType::Type2 => memory.invalidate(OURS, key_a).map(|()| key_a).unwrap(),
        };
        assert_eq!(memory.try_deregister(&region), Err(DeregisterError { windows: 1 }));
        memory.dealloc_window(b);
        assert!(writes(&memory, key_b, BASE + 1000, 1).is_err());
        assert_eq!(memory.try_deregister(&region), Ok(()));
        assert_eq!((memory.region_count(), region.is_live()), (0, false));
        assert_eq!(memory.try_deregister(&region), Ok(()), "again");
    }
}

#[test]
fn forced_deregistration_unbinds_windows() {
    let memory = memory();
    let (region, other) = (region(&memory), region(&memory));
    let [a, b] = [0, 1].map(|_| memory.alloc_window(PD, MwType::Type2).unwrap());
    let rkey = bind(&memory, a, &part(&region));
    let kept = bind(&memory, b, &part(&other));
    memory.deregister(&region);
    assert_eq!(
        writes(&memory, rkey, BASE + 1000, 1).unwrap_err(),
        AccessError::Unbound { key: rkey.0 }
    );
    assert!(writes(&memory, kept, BASE + 1000, 1).is_ok());
    let again = bind(&memory, a, &part(&other));
    assert!(writes(&memory, again, BASE + 1000, 1).is_ok());
}

#[test]
fn destroyed_queue_pair_frees_its_windows() {
    let memory = memory();
    let region = region(&memory);
    let [one, two, theirs] = [MwType::Type1, MwType::Type2, MwType::Type2]
        .map(|mw_type| memory.alloc_window(PD, mw_type).unwrap());
    let [key_one, key_two] = [one, two].map(|id| bind(&memory, id, &part(&region)));
    memory.bind(user(0x41), theirs, 7, &part(&region)).unwrap();
    memory.unbind_all_for(QPN);
    let open = |user: KeyUser, id| {
        let rkey = memory.window_key(id).unwrap();
        memory.remote(user, rkey, BASE + 1000, 1, Access::REMOTE_READ).map(|span| span.len())
    };
    assert_eq!(open(OURS, one), Ok(1), "of the domain: {key_one}");
    assert_eq!(open(OURS, two), Err(AccessError::Unbound { key: key_two.0 }));
    assert_eq!(open(user(0x41), theirs), Ok(1));
    bind(&memory, two, &part(&region));
    assert_eq!(open(OURS, two), Ok(1));
}

/// An engine writes continuously until the window is gone; afterwards the bytes must keep the values of their owner,
/// although the region still exists.
#[test]
fn deallocated_window_admits_no_write() {
    const LEN: usize = 512;
    let memory = memory();
    let region = region(&memory);
    for _ in 0..100 {
        let id = memory.alloc_window(PD, MwType::Type1).unwrap();
        let rkey = bind(&memory, id, &part(&region));
        let span = writes(&memory, rkey, BASE + 1000, 512).unwrap();
        let written = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut handle = memory.epoch_handle();
                while span.place(&handle.enter(), 0, &[1; LEN], Placement::Final) == Ok(()) {
                    written.store(true, Ordering::Relaxed);
                }
                let late = span.place(&handle.enter(), 0, &[1; LEN], Placement::Plain);
                assert_eq!(late, Err(Revoked));
            });
            wait_until(|| written.load(Ordering::Relaxed));
            memory.dealloc_window(id);
            region.write_at(1000, &[2; LEN]).unwrap();
        });
        let mut after = [0; LEN];
        region.read_at(1000, &mut after).unwrap();
        assert_eq!(after, [2; LEN]);
    }
}

#[test]
fn empty_access_needs_no_bound_window() {
    let memory = memory();
    let id = memory.alloc_window(PD, MwType::Type1).unwrap();
    let rkey = memory.window_key(id).unwrap();
    assert!(writes(&memory, rkey, 0, 0).unwrap().is_empty());
}

#[test]
fn window_numbers_are_counted_and_reused() {
    let memory = memory();
    let ids: Vec<_> = (0..100).map(|_| memory.alloc_window(PD, MwType::Type1).unwrap()).collect();
    assert_eq!(memory.window_count(), 100);
    for id in &ids {
        memory.dealloc_window(*id);
        memory.dealloc_window(*id);
        assert_eq!(memory.window_key(*id), None);
    }
    assert_eq!(memory.window_count(), 0);
}

#[test]
fn window_count_is_limited() {
    let limits = MemoryLimits { max_mw: 2, ..Default::default() };
    let memory = Memory::with_limits([3; 32], limits);
    let [first, _] = MwType::ALL.map(|mw_type| memory.alloc_window(PD, mw_type).unwrap());
    let full = Err(TooManyWindows { max: 2 });
    assert_eq!(memory.alloc_window(PD, MwType::Type1), full);
    assert_eq!(memory.alloc_window(PD, MwType::Type2), full);
    memory.dealloc_window(first);
    assert!(memory.alloc_window(PD, MwType::Type2).is_ok());
    let region = region(&memory);
    assert_eq!(memory.try_deregister(&region), Ok(()), "regions have a limit of their own");
}
