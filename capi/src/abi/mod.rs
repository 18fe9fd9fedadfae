//! The structures of `infiniband/verbs.h`, as rdma-core 64 has them on machines of 64 bits.
//!
//! They are those of the newest release. Programs that were built against rdma-core 28 or later have the
//! same structures, or the beginning of them. The compiler checks sizes and offsets.
//!
//! A field that the program may write at any time is atomic here. A C enumeration is an integer.

mod attr;
mod cm;
mod events;
mod info;
mod objects;
mod opaque;
mod pointer;
mod post;
mod signals;

pub(crate) use attr::*;
pub(crate) use cm::*;
pub(crate) use events::*;
pub(crate) use info::*;
pub(crate) use objects::*;
pub(crate) use opaque::*;
pub(crate) use pointer::*;
pub(crate) use post::*;
pub(crate) use signals::*;

/// Checks the size of a structure and the offsets of its fields, in bytes.
macro_rules! layout {
    ($type:ty, $size:literal $(, $field:ident: $offset:literal)* $(,)?) => {
        const _: () = {
            assert!(size_of::<$type>() == $size);
            $(assert!(std::mem::offset_of!($type, $field) == $offset);)*
        };
    };
}
use layout;
