//! Incomplete types. A C program declares a structure without fields like this: `struct ibv_qp;`.
//!
//! A [`Handle`](super::Handle) points to one. [`objects`](super::objects) has the fields.

/// Declares incomplete types.
macro_rules! incomplete {
    ($($name:ident: $c:literal)*) => {$(
        #[doc = concat!("`", $c, "`, without its fields.")]
        pub(crate) enum $name {}
    )*};
}

incomplete! {
    IbvDevice: "ibv_device"
    IbvContext: "ibv_context"
    IbvPd: "ibv_pd"
    IbvTd: "ibv_td"
    IbvMr: "ibv_mr"
    IbvMw: "ibv_mw"
    IbvDm: "ibv_dm"
    IbvAh: "ibv_ah"
    IbvCompChannel: "ibv_comp_channel"
    IbvCq: "ibv_cq"
    IbvSrq: "ibv_srq"
    IbvXrcd: "ibv_xrcd"
    IbvQp: "ibv_qp"
}
