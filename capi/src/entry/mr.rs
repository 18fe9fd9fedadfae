//! Memory regions, memory windows and device memory.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use smallvec::SmallVec;
use softroce::verbs::{
    self, Access, Advice, BindInfo, DeviceMemory, Lkey, MemoryRegion, MemoryWindow, MwType,
    ProtectionDomain, Rereg, SendFlags,
};

use crate::abi::{
    AllocDmAttr, Handle, IbvContext, IbvDm, IbvMr, IbvMw, IbvPd, IbvQpEx, In, MwBind, MwBindInfo,
    Out, Sge,
};
use crate::border::{Errno, Head, memory, number, or, pointer};
use crate::entry::pd::next_handle;
use crate::gate::lock;
use crate::objects::users::{User, Users};

/// `ibv_mr`.
#[repr(C)]
pub(crate) struct Mr {
    c: IbvMr,
    verbs: Mutex<MemoryRegion>,
    of_dm: Mutex<Option<User>>,
}

impl Head for IbvMr {
    type Object = Mr;
}

#[cfg(test)]
impl Mr {
    pub(crate) fn lkey(&self) -> u32 {
        self.c.lkey
    }
}

/// `ibv_mw`.
#[repr(C)]
pub(crate) struct Mw {
    c: IbvMw,
    verbs: MemoryWindow,
}

impl Head for IbvMw {
    type Object = Mw;
}

impl Mw {
    /// The window itself.
    pub(crate) fn verbs(&self) -> &MemoryWindow {
        &self.verbs
    }
}

/// `ibv_dm`.
#[repr(C)]
pub(crate) struct Dm {
    c: IbvDm,
    verbs: DeviceMemory,
    regions: Users,
}

impl Head for IbvDm {
    type Object = Dm;
}

/// The rights that C asks for. Flags that may be ignored are, if they are not known.
pub(crate) fn access(flags: c_uint) -> Result<Access, Errno> {
    let known = flags & !(Access::OPTIONAL.bits() & !Access::all().bits());
    Access::from_bits(known).ok_or(Errno::INVALID)
}

fn make_mr(
    pd: Handle<IbvPd>,
    start: *mut c_void,
    len: usize,
    verbs: MemoryRegion,
    of_dm: Option<User>,
) -> Result<Handle<IbvMr>, Errno> {
    let (lkey, rkey) = (verbs.lkey().0, verbs.rkey().0);
    Ok(Handle::new(Mr {
        c: IbvMr {
            context: pd.get()?.c.context,
            pd: AtomicPtr::new(pd.as_ptr()),
            addr: AtomicPtr::new(start),
            length: AtomicUsize::new(len),
            handle: next_handle(),
            lkey,
            rkey,
        },
        verbs: Mutex::new(verbs),
        of_dm: Mutex::new(of_dm),
    }))
}

/// The longest piece that is looked at in one go.
const PIECE: usize = 1 << 30;

/// Sees that the memory is there and is what it is registered for, as a device that pins it would.
fn check_there(pd: &ProtectionDomain, mr: &MemoryRegion) -> Result<(), Errno> {
    let writes = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let advice = match mr.access().intersects(writes) {
        true => Advice::PrefetchWrite,
        false => Advice::Prefetch,
    };
    let mut at = 0;
    while at < mr.len() {
        let end = mr.len().min(at + PIECE);
        pd.advise_mr(advice, true, &[mr.sge(at..end)])?;
        at = end;
    }
    Ok(())
}

fn register(
    pd: Handle<IbvPd>,
    start: Out<u8>,
    len: usize,
    iova: Option<u64>,
    flags: c_uint,
) -> Result<Handle<IbvMr>, Errno> {
    let domain = &pd.get()?.verbs;
    let access = access(flags)?;
    let host = memory(start, len)?;
    let mr = match iova {
        Some(iova) if !access.contains(Access::ZERO_BASED) => {
            domain.reg_mr_iova(host, iova, access)?
        }
        _ => domain.reg_mr(host, access)?,
    };
    if !access.contains(Access::ON_DEMAND) {
        check_there(domain, &mr)?;
    }
    make_mr(pd, start.as_ptr().cast(), len, mr, None)
}

pub(crate) extern "C" fn reg_mr(
    pd: Handle<IbvPd>,
    start: Out<u8>,
    len: usize,
    flags: c_uint,
) -> Handle<IbvMr> {
    pointer(|| register(pd, start, len, None, flags))
}

pub(crate) extern "C" fn reg_mr_iova(
    pd: Handle<IbvPd>,
    start: Out<u8>,
    len: usize,
    iova: u64,
    flags: c_uint,
) -> Handle<IbvMr> {
    pointer(|| register(pd, start, len, Some(iova), flags))
}

pub(crate) extern "C" fn dereg_mr(mr: Handle<IbvMr>) -> c_int {
    number(|| {
        lock(&mr.get()?.verbs).deregister()?;
        mr.destroy();
        Ok(())
    })
}

/// What `ibv_rereg_mr` may change: `IBV_REREG_MR_CHANGE_TRANSLATION`, `_PD` and `_ACCESS`.
const TRANSLATION: c_int = 1;
const DOMAIN: c_int = 2;
const ACCESS: c_int = 4;

/// `IBV_REREG_MR_ERR_INPUT`: the arguments make no sense.
const REREG_INPUT: c_int = -1;
/// `IBV_REREG_MR_ERR_CMD`: it did not work, and the region is as it was.
const REREG_CMD: c_int = -4;

pub(crate) extern "C" fn rereg_mr(
    mr: Handle<IbvMr>,
    flags: c_int,
    pd: Handle<IbvPd>,
    start: Out<u8>,
    len: usize,
    new_access: c_int,
) -> c_int {
    let mut answer = REREG_INPUT;
    or((), || {
        let known = mr.get()?;
        let asked = flags & (TRANSLATION | DOMAIN | ACCESS);
        let is_memory = !start.is_null() && len > 0;
        if asked == 0 || asked != flags || (flags & TRANSLATION != 0 && !is_memory) {
            return Err(Errno::INVALID);
        }
        let other = if flags & DOMAIN != 0 { Some(pd.get()?) } else { None };
        let access = match flags & ACCESS {
            0 => None,
            _ => Some(access(new_access.cast_unsigned())?),
        };
        answer = REREG_CMD;
        let memory = match flags & TRANSLATION {
            0 => None,
            _ => Some((memory(start, len)?, None)),
        };
        let change = Rereg { memory, pd: other.map(|pd| &pd.verbs), access };
        lock(&known.verbs).rereg(change)?;
        if flags & TRANSLATION != 0 {
            known.c.addr.store(start.as_ptr().cast(), Ordering::Relaxed);
            known.c.length.store(len, Ordering::Relaxed);
            *lock(&known.of_dm) = None;
        }
        if flags & DOMAIN != 0 {
            known.c.pd.store(pd.as_ptr(), Ordering::Relaxed);
        }
        answer = 0;
        Ok(())
    });
    answer
}

pub(crate) extern "C" fn alloc_null_mr(pd: Handle<IbvPd>) -> Handle<IbvMr> {
    pointer(|| {
        let verbs = pd.get()?.verbs.alloc_null_mr()?;
        make_mr(pd, std::ptr::null_mut(), usize::MAX, verbs, None)
    })
}

/// `IBV_ADVISE_MR_FLAG_FLUSH`.
const ADVISE_FLUSH: u32 = 1;

pub(crate) extern "C" fn advise_mr(
    pd: Handle<IbvPd>,
    advice: c_uint,
    flags: u32,
    pieces: In<Sge>,
    count: u32,
) -> c_int {
    number(|| {
        let advice = match advice {
            0 => Advice::Prefetch,
            1 => Advice::PrefetchWrite,
            2 => Advice::PrefetchNoFault,
            _ => return Err(Errno::UNSUPPORTED),
        };
        if flags & !ADVISE_FLUSH != 0 || count == 0 {
            return Err(Errno::INVALID);
        }
        let count = usize::try_from(count).map_err(|_| Errno::INVALID)?;
        let pieces: Vec<_> = pieces.array(count)?.map(sge).collect();
        Ok(pd.get()?.verbs.advise_mr(advice, flags & ADVISE_FLUSH != 0, &pieces)?)
    })
}

/// A piece of memory.
pub(crate) fn sge(piece: Sge) -> verbs::Sge {
    verbs::Sge { addr: piece.addr, length: piece.length, lkey: Lkey(piece.lkey) }
}

pub(crate) extern "C" fn alloc_mw(pd: Handle<IbvPd>, mw_type: c_uint) -> Handle<IbvMw> {
    pointer(|| {
        let known = pd.get()?;
        let wanted = MwType::ALL.into_iter().find(|known| *known as c_uint == mw_type);
        let verbs = known.verbs.alloc_mw(wanted.ok_or(Errno::INVALID)?)?;
        let rkey = AtomicU32::new(verbs.rkey().0);
        let context = known.c.context;
        let c = IbvMw { context, pd, rkey, handle: next_handle(), mw_type };
        Ok(Handle::new(Mw { c, verbs }))
    })
}

pub(crate) extern "C" fn dealloc_mw(mw: Handle<IbvMw>) -> c_int {
    number(|| {
        mw.get()?;
        mw.destroy();
        Ok(())
    })
}

/// What a window is to open. Of no bytes it opens nothing.
pub(crate) fn bind_info(info: &MwBindInfo) -> Result<BindInfo, Errno> {
    if info.length == 0 {
        return Ok(BindInfo::NOTHING);
    }
    let lkey = lock(&info.mr.get()?.verbs).lkey();
    // Programs ask for what the host itself may do too, which no window has to do with.
    let access = access(info.access)?.difference(Access::LOCAL_WRITE);
    Ok(BindInfo { lkey, addr: info.addr, length: info.length, access })
}

pub(crate) extern "C" fn bind_mw(
    qp: Handle<IbvQpEx>,
    mw: Handle<IbvMw>,
    bind: In<MwBind>,
) -> c_int {
    number(|| {
        let (known, bind) = (mw.get()?, bind.read()?);
        let flags = send_flags(bind.send_flags)?;
        let info = bind_info(&bind.info)?;
        let rkey = qp.get()?.initiator()?.bind_mw(bind.wr_id, flags, &known.verbs, info)?;
        known.c.rkey.store(rkey.0, Ordering::Relaxed);
        Ok(())
    })
}

/// Flags of a request, without that of inline data. A checksum of IP (16) is made in any case.
pub(crate) fn send_flags(flags: c_uint) -> Result<SendFlags, Errno> {
    let known = flags & !(crate::abi::SEND_INLINE | 16);
    u8::try_from(known).ok().and_then(SendFlags::from_bits).ok_or(Errno::INVALID)
}

pub(crate) extern "C" fn alloc_dm(
    context: Handle<IbvContext>,
    attr: In<AllocDmAttr>,
) -> Handle<IbvDm> {
    pointer(|| {
        let attr = attr.read()?;
        if attr.comp_mask != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let verbs = context.get()?.verbs.alloc_dm(attr.length, attr.log_align_req)?;
        let handle = next_handle();
        let c = IbvDm { context, memcpy_to_dm, memcpy_from_dm, comp_mask: 0, handle };
        Ok(Handle::new(Dm { c, verbs, regions: Users::default() }))
    })
}

pub(crate) extern "C" fn free_dm(dm: Handle<IbvDm>) -> c_int {
    number(|| {
        let known = dm.get()?;
        debug_assert_eq!(known.c.comp_mask, 0);
        known.regions.check()?;
        dm.destroy();
        Ok(())
    })
}

pub(crate) extern "C" fn reg_dm_mr(
    pd: Handle<IbvPd>,
    dm: Handle<IbvDm>,
    offset: u64,
    len: usize,
    flags: c_uint,
) -> Handle<IbvMr> {
    pointer(|| {
        let offset = usize::try_from(offset).map_err(|_| Errno::INVALID)?;
        let dm = dm.get()?;
        let verbs = pd.get()?.verbs.reg_dm_mr(&dm.verbs, offset, len, access(flags)?)?;
        make_mr(pd, std::ptr::null_mut(), len, verbs, Some(dm.regions.join()))
    })
}

/// Where in device memory a program copies from or to. Adapters take whole words of four bytes: a program
/// that does not keep to it should not find that out there.
fn in_words(offset: u64, len: usize) -> Result<usize, Errno> {
    let offset = usize::try_from(offset).map_err(|_| Errno::INVALID)?;
    let whole = offset.is_multiple_of(4) && len.is_multiple_of(4);
    whole.then_some(offset).ok_or(Errno::INVALID)
}

extern "C" fn memcpy_to_dm(dm: Handle<IbvDm>, offset: u64, from: In<u8>, len: usize) -> c_int {
    number(|| {
        let offset = in_words(offset, len)?;
        let mut bytes = SmallVec::<[u8; 64]>::new();
        from.copy_to(len, &mut bytes)?;
        dm.get()?.verbs.memcpy_to_dm(offset, &bytes).map_err(|_| Errno::INVALID)
    })
}

extern "C" fn memcpy_from_dm(to: Out<u8>, dm: Handle<IbvDm>, offset: u64, len: usize) -> c_int {
    number(|| {
        let offset = in_words(offset, len)?;
        let dm = &dm.get()?.verbs;
        if len > dm.len() {
            return Err(Errno::INVALID);
        }
        let mut bytes = vec![0; len];
        dm.memcpy_from_dm(offset, &mut bytes).map_err(|_| Errno::INVALID)?;
        to.fill(&bytes);
        Ok(())
    })
}
