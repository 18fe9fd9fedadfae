//! Functions of address handles.

use std::ffi::c_int;

use softroce::verbs::{AddressVector, GRH_LEN};

use crate::abi::{AhAttr, Handle, IbvAh, IbvContext, IbvPd, In, Out, WC_GRH, Wc};
use crate::border::{Errno, handle_or_null, zero_or_errno};
use crate::convert::address::address;
use crate::convert::completion::received;
use crate::objects::ah::Ah;

pub(crate) extern "C" fn create_ah(pd: Handle<IbvPd>, attr: In<AhAttr>) -> Handle<IbvAh> {
    handle_or_null(|| {
        let attr = attr.read()?;
        if attr.port_num != 1 {
            return Err(Errno::invalid(format!(
                "port {} does not exist: the device has port 1",
                attr.port_num
            )));
        }
        Ah::create(pd, address(&attr)?)
    })
}

pub(crate) extern "C" fn destroy_ah(ah: Handle<IbvAh>) -> c_int {
    zero_or_errno(|| {
        ah.get()?;
        ah.destroy();
        Ok(())
    })
}

/// Returns the address of the sender of a message.
fn sender(
    context: Handle<IbvContext>,
    port: u8,
    wc: In<Wc>,
    grh: In<[u8; GRH_LEN]>,
) -> Result<AddressVector, Errno> {
    let wc = wc.read()?;
    if port != 1 {
        return Err(Errno::invalid(format!("port {port} does not exist: the device has port 1")));
    }
    if wc.wc_flags & WC_GRH == 0 {
        return Err(Errno::invalid(
            "the completion has no GRH (IBV_WC_GRH): it is not of a UD receive",
        ));
    }
    Ok(context.get()?.verbs.init_ah_from_wc(&received(&wc), &grh.read()?)?)
}

pub(crate) extern "C" fn init_ah_from_wc(
    context: Handle<IbvContext>,
    port: u8,
    wc: In<Wc>,
    grh: In<[u8; GRH_LEN]>,
    to: Out<AhAttr>,
) -> c_int {
    zero_or_errno(|| {
        to.write(sender(context, port, wc, grh)?.into());
        Ok(())
    })
}

pub(crate) extern "C" fn create_ah_from_wc(
    pd: Handle<IbvPd>,
    wc: In<Wc>,
    grh: In<[u8; GRH_LEN]>,
    port: u8,
) -> Handle<IbvAh> {
    handle_or_null(|| Ah::create(pd, sender(pd.get()?.c.context, port, wc, grh)?))
}
