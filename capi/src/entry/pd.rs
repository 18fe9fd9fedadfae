//! Protection domains, thread domains and address handles.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use softroce::verbs::{
    AddressHandle, AddressVector, Completion, GRH_LEN, Gid, ProtectionDomain, Qpn, ThreadDomain,
    WcOpcode, WcStatus,
};

use crate::abi::{
    AhAttr, Handle, IbvAh, IbvContext, IbvPd, IbvTd, In, Out, ParentDomainInitAttr, TdInitAttr,
    WC_GRH, Wc,
};
use crate::border::{Errno, Head, number, pointer};
use crate::objects::users::{User, Users};

/// `ibv_pd`.
#[repr(C)]
pub(crate) struct Pd {
    pub(crate) c: IbvPd,
    pub(crate) verbs: ProtectionDomain,
    /// Its address handles.
    ahs: Users,
}

impl Head for IbvPd {
    type Object = Pd;
}

/// `ibv_td`.
#[repr(C)]
pub(crate) struct Td {
    c: IbvTd,
    verbs: ThreadDomain,
}

impl Head for IbvTd {
    type Object = Td;
}

/// `ibv_ah`.
#[repr(C)]
pub(crate) struct Ah {
    c: IbvAh,
    pub(crate) verbs: AddressHandle,
    _of_pd: User,
}

impl Head for IbvAh {
    type Object = Ah;
}

/// A number for `handle`, by which some programs tell objects apart.
pub(crate) fn next_handle() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn make_pd(context: Handle<IbvContext>, verbs: ProtectionDomain) -> Handle<IbvPd> {
    Handle::new(Pd { c: IbvPd { context, handle: next_handle() }, verbs, ahs: Users::default() })
}

pub(crate) extern "C" fn alloc_pd(context: Handle<IbvContext>) -> Handle<IbvPd> {
    pointer(|| Ok(make_pd(context, context.get()?.verbs.alloc_pd())))
}

pub(crate) extern "C" fn dealloc_pd(pd: Handle<IbvPd>) -> c_int {
    number(|| {
        let known = pd.get()?;
        known.ahs.check()?;
        known.verbs.clone().dealloc().map_err(|(_, error)| error)?;
        pd.destroy();
        Ok(())
    })
}

pub(crate) extern "C" fn alloc_td(
    context: Handle<IbvContext>,
    attr: In<TdInitAttr>,
) -> Handle<IbvTd> {
    pointer(|| {
        if attr.read()?.comp_mask != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let verbs = context.get()?.verbs.alloc_td();
        Ok(Handle::new(Td { c: IbvTd { context }, verbs }))
    })
}

pub(crate) extern "C" fn dealloc_td(td: Handle<IbvTd>) -> c_int {
    number(|| {
        let known = td.get()?;
        debug_assert!(!known.c.context.is_null());
        known.verbs.clone().dealloc().map_err(|(_, error)| error)?;
        td.destroy();
        Ok(())
    })
}

/// `IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS`, which are not needed, and `_PD_CONTEXT` for them.
const KNOWN_OF_PARENTS: u32 = 3;

pub(crate) extern "C" fn alloc_parent_domain(
    context: Handle<IbvContext>,
    attr: In<ParentDomainInitAttr>,
) -> Handle<IbvPd> {
    pointer(|| {
        let attr = attr.read()?;
        if attr.comp_mask & !KNOWN_OF_PARENTS != 0 {
            return Err(Errno::UNSUPPORTED);
        }
        let td = attr.td.optional()?.map(|td| &td.verbs);
        let verbs = &context.get()?.verbs;
        Ok(make_pd(context, verbs.alloc_parent_domain(&attr.pd.get()?.verbs, td)?))
    })
}

impl From<&AhAttr> for AddressVector {
    fn from(attr: &AhAttr) -> Self {
        Self {
            gid: Gid(attr.dgid),
            sgid_index: attr.sgid_index,
            traffic_class: attr.traffic_class,
            hop_limit: attr.hop_limit,
            flow_label: attr.flow_label,
        }
    }
}

impl From<AddressVector> for AhAttr {
    fn from(av: AddressVector) -> Self {
        Self {
            dgid: av.gid.0,
            flow_label: av.flow_label,
            sgid_index: av.sgid_index,
            hop_limit: av.hop_limit,
            traffic_class: av.traffic_class,
            dlid: 0,
            sl: 0,
            src_path_bits: 0,
            static_rate: 0,
            is_global: 1,
            port_num: 1,
        }
    }
}

/// The way that C describes. A LID leads nowhere on Ethernet: there must be a GID.
pub(crate) fn address(attr: &AhAttr) -> Result<AddressVector, Errno> {
    if attr.is_global == 0 { Err(Errno::INVALID) } else { Ok(attr.into()) }
}

fn make_ah(pd: Handle<IbvPd>, av: AddressVector) -> Result<Handle<IbvAh>, Errno> {
    let known = pd.get()?;
    let verbs = known.verbs.create_ah(av)?;
    let c = IbvAh { context: known.c.context, pd, handle: next_handle() };
    Ok(Handle::new(Ah { c, verbs, _of_pd: known.ahs.join() }))
}

pub(crate) extern "C" fn create_ah(pd: Handle<IbvPd>, attr: In<AhAttr>) -> Handle<IbvAh> {
    pointer(|| {
        let attr = attr.read()?;
        if attr.port_num != 1 {
            return Err(Errno::INVALID);
        }
        make_ah(pd, address(&attr)?)
    })
}

pub(crate) extern "C" fn destroy_ah(ah: Handle<IbvAh>) -> c_int {
    number(|| {
        let known = ah.get()?;
        debug_assert!(!known.c.pd.is_null());
        ah.destroy();
        Ok(())
    })
}

/// The way back to who has sent a message.
fn back(
    context: Handle<IbvContext>,
    port: u8,
    wc: In<Wc>,
    grh: In<[u8; GRH_LEN]>,
) -> Result<AddressVector, Errno> {
    let wc = wc.read()?;
    if port != 1 || wc.wc_flags & WC_GRH == 0 {
        return Err(Errno::INVALID);
    }
    let completion = Completion {
        wr_id: wc.wr_id,
        status: if wc.status == 0 { WcStatus::Success } else { WcStatus::GeneralErr },
        opcode: WcOpcode::Recv,
        byte_len: wc.byte_len,
        imm: None,
        invalidated: None,
        qpn: Qpn::new(wc.qp_num),
        source_qp: Some(Qpn::new(wc.src_qp)),
        ip_version: None,
        solicited: false,
    };
    Ok(context.get()?.verbs.init_ah_from_wc(&completion, &grh.read()?)?)
}

pub(crate) extern "C" fn init_ah_from_wc(
    context: Handle<IbvContext>,
    port: u8,
    wc: In<Wc>,
    grh: In<[u8; GRH_LEN]>,
    to: Out<AhAttr>,
) -> c_int {
    number(|| {
        to.write(back(context, port, wc, grh)?.into());
        Ok(())
    })
}

pub(crate) extern "C" fn create_ah_from_wc(
    pd: Handle<IbvPd>,
    wc: In<Wc>,
    grh: In<[u8; GRH_LEN]>,
    port: u8,
) -> Handle<IbvAh> {
    pointer(|| make_ah(pd, back(pd.get()?.c.context, port, wc, grh)?))
}
