//! Functions that copy structures of the kernel, for `librdmacm`. They have no result.

use crate::abi::{AhAttr, In, KernelAhAttr, KernelQpAttr, Out, QpAttr, SaPathRec, UserPathRec};
use crate::border::without_result;
use crate::convert::cm::path::{kernel_path, sa_path};
use crate::convert::cm::qp_attr::{ah_attr, qp_attr};

/// Copies attributes of a queue pair. `qp_state` and `rate_limit` do not change.
pub(crate) extern "C" fn copy_qp_attr(to: Out<QpAttr>, from: In<KernelQpAttr>) {
    without_result(|| {
        to.write(qp_attr(&from.read()?, &to.read()?));
        Ok(())
    });
}

pub(crate) extern "C" fn copy_ah_attr(to: Out<AhAttr>, from: In<KernelAhAttr>) {
    without_result(|| {
        to.write(ah_attr(&from.read()?));
        Ok(())
    });
}

pub(crate) extern "C" fn copy_path_rec(to: Out<SaPathRec>, from: In<UserPathRec>) {
    without_result(|| {
        to.write(sa_path(&from.read()?));
        Ok(())
    });
}

pub(crate) extern "C" fn copy_path_rec_to_kernel(to: Out<UserPathRec>, from: In<SaPathRec>) {
    without_result(|| {
        to.write(kernel_path(&from.read()?));
        Ok(())
    });
}
