//! Names of numbers, for programs to print.

use std::ffi::{CStr, c_int, c_uint};

use crate::abi::Text;

/// Returns the text with an index, or `other`.
fn text(texts: &'static [&'static CStr], index: usize, other: &'static CStr) -> Text {
    Text(texts.get(index).unwrap_or(&other).as_ptr())
}

fn index(number: c_uint) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

pub(crate) extern "C" fn node_type_str(node_type: c_int) -> Text {
    const TEXTS: [&CStr; 6] = [
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
    ];
    let at = usize::try_from(node_type).ok().and_then(|number| number.checked_sub(1));
    text(&TEXTS, at.unwrap_or(usize::MAX), c"unknown")
}

pub(crate) extern "C" fn port_state_str(state: c_uint) -> Text {
    const TEXTS: [&CStr; 6] = [
        c"PORT_NOP",
        c"PORT_DOWN",
        c"PORT_INIT",
        c"PORT_ARMED",
        c"PORT_ACTIVE",
        c"PORT_ACTIVE_DEFER",
    ];
    text(&TEXTS, index(state), c"invalid state")
}

pub(crate) extern "C" fn event_type_str(event: c_uint) -> Text {
    const TEXTS: [&CStr; 20] = [
        c"CQ error",
        c"local work queue catastrophic error",
        c"invalid request local work queue error",
        c"local access violation work queue error",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration request error",
        c"local catastrophic error",
        c"port active",
        c"port error",
        c"LID change",
        c"P_Key change",
        c"SM change",
        c"SRQ catastrophic error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration",
        c"GID table change",
        c"work queue catastrophic error",
    ];
    text(&TEXTS, index(event), c"unknown")
}

pub(crate) extern "C" fn wc_status_str(status: c_uint) -> Text {
    const TEXTS: [&CStr; 24] = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory management operation error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation error",
        c"remote invalid RD request",
        c"aborted error",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout error",
        c"general error",
        c"TM error",
        c"TM software rendezvous",
    ];
    text(&TEXTS, index(status), c"unknown")
}
