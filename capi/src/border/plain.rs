//! Structures that C may fill with any bytes.

use crate::abi::{self, Handle, In, Out};

/// A structure of numbers and pointers. Every pattern of bits is a valid value, so bytes that C has written
/// can be read as one.
///
/// # Safety
///
/// No field is a reference, a `bool`, an enumeration of Rust, or a pointer to a function.
pub(crate) unsafe trait Plain: Copy + 'static {}

macro_rules! plain {
    ($($type:ty)*) => {$(
        // SAFETY: its fields are integers, handles and pointers.
        unsafe impl Plain for $type {}
    )*};
}

plain! {
    u8 u16 u32 u64 i8 i32 [u8; 16] [u8; 40] abi::UserData
    abi::AhAttr abi::AllocDmAttr abi::AsyncEvent abi::CqInitAttrEx abi::DataBuf abi::DeviceAttr
    abi::DeviceAttrEx abi::GidEntry abi::ModifyCqAttr abi::MwBind abi::MwBindInfo
    abi::ParentDomainInitAttr abi::PollCqAttr abi::PortAttr abi::ProgramAction abi::QpAttr abi::QpInitAttr
    abi::QpInitAttrEx abi::QpOpenAttr abi::RateLimitAttr abi::RecvWr abi::SendWr abi::Sge
    abi::SrqAttr abi::SrqInitAttr abi::SrqInitAttrEx abi::TdInitAttr abi::ValuesEx abi::Wc
    abi::XrcdInitAttr
    abi::AddressAnswer abi::ArgumentEvent abi::BindAny abi::BindIp abi::CmAccept abi::CmConnect abi::CmHeader
    abi::CmListen abi::CmNotify abi::CmQuery abi::CmReject abi::ConnEvent abi::CreateId abi::DestroyId
    abi::JoinIpMcast abi::JoinMcast abi::KernelAhAttr abi::KernelQpAttr abi::MigrateId
    abi::PathAnswer abi::PathData abi::ResolveAddr abi::ResolveIp abi::ResolveRoute
    abi::RouteAnswer abi::SaPathRec abi::SetOption abi::UdParam abi::UserPathRec abi::WriteEvent
}

// SAFETY: its fields are integers, and a value without others.
unsafe impl<P: Plain> Plain for abi::EventAnswer<P> {}

// SAFETY: a pointer.
unsafe impl<T: 'static> Plain for In<T> {}
// SAFETY: a pointer.
unsafe impl<T: 'static> Plain for Handle<T> {}
// SAFETY: a pointer.
unsafe impl<T: 'static> Plain for Out<T> {}
