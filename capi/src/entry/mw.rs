//! Functions of memory windows.

use std::ffi::{c_int, c_uint};

use softroce::verbs::MwType;

use crate::abi::{Handle, IbvMw, IbvPd, IbvQp, In, MwBind};
use crate::border::{Errno, handle_or_null, zero_or_errno};
use crate::convert::memory::bind_info;
use crate::convert::request::send_flags;
use crate::objects::mw::Mw;

pub(crate) extern "C" fn alloc_mw(pd: Handle<IbvPd>, mw_type: c_uint) -> Handle<IbvMw> {
    handle_or_null(|| {
        let domain = pd.get()?;
        let found = MwType::ALL.into_iter().find(|known| *known as c_uint == mw_type);
        let unknown = || {
            Errno::invalid(format!("memory window type {mw_type} is unknown: there are 1 and 2"))
        };
        let verbs = domain.verbs.alloc_mw(found.ok_or_else(unknown)?)?;
        Mw::create(pd, mw_type, verbs)
    })
}

pub(crate) extern "C" fn dealloc_mw(mw: Handle<IbvMw>) -> c_int {
    zero_or_errno(|| {
        mw.get()?;
        mw.destroy();
        Ok(())
    })
}

pub(crate) extern "C" fn bind_mw(qp: Handle<IbvQp>, mw: Handle<IbvMw>, bind: In<MwBind>) -> c_int {
    zero_or_errno(|| {
        let (object, bind) = (mw.get()?, bind.read()?);
        let flags = send_flags(bind.send_flags)?;
        let info = bind_info(&bind.info)?;
        let rkey = qp.get()?.initiator()?.bind_mw(bind.wr_id, flags, &object.verbs, info)?;
        object.set_rkey(rkey);
        Ok(())
    })
}
