//! The structures of `infiniband/verbs.h`, as rdma-core 64 has them on machines of 64 bits.
//!
//! They are the newest there are: programs that were built against rdma-core 28 or later know the
//! same, or a beginning of it. Sizes and places are checked when this is compiled.
//!
//! What the program may write while we look at it is atomic here; a C enumeration is a number.

mod attr;
mod events;
mod info;
mod objects;
mod pointer;
mod post;

pub(crate) use attr::*;
pub(crate) use events::*;
pub(crate) use info::*;
pub(crate) use objects::*;
pub(crate) use pointer::*;
pub(crate) use post::*;

/// Checks the size of a structure, and where its fields are.
macro_rules! layout {
    ($type:ty, $size:literal $(, $field:ident: $offset:literal)* $(,)?) => {
        const _: () = {
            assert!(size_of::<$type>() == $size);
            $(assert!(std::mem::offset_of!($type, $field) == $offset);)*
        };
    };
}
use layout;
