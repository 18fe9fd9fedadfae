//! Functions of memory windows.

use std::ffi::{c_int, c_uint};

use softroce::verbs::MwType;

use crate::abi::{Handle, IbvMw, IbvPd, IbvQpEx, In, MwBind};
use crate::border::{Errno, number, pointer};
use crate::convert::memory::bind_info;
use crate::convert::request::send_flags;
use crate::objects::mw::Mw;

pub(crate) extern "C" fn alloc_mw(pd: Handle<IbvPd>, mw_type: c_uint) -> Handle<IbvMw> {
    pointer(|| {
        let known = pd.get()?;
        let wanted = MwType::ALL.into_iter().find(|known| *known as c_uint == mw_type);
        let verbs = known.verbs.alloc_mw(wanted.ok_or(Errno::INVALID)?)?;
        Mw::create(pd, mw_type, verbs)
    })
}

pub(crate) extern "C" fn dealloc_mw(mw: Handle<IbvMw>) -> c_int {
    number(|| {
        mw.get()?;
        mw.destroy();
        Ok(())
    })
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
        known.set_rkey(rkey);
        Ok(())
    })
}
