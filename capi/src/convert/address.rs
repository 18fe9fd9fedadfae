//! Addresses of peers.

use softroce::verbs::{AddressVector, Gid};

use crate::abi::AhAttr;
use crate::border::Errno;

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

/// Returns the address vector of `attr`.
///
/// # Errors
///
/// `EINVAL` for an address that has only a LID, which Ethernet does not route.
pub(crate) fn address(attr: &AhAttr) -> Result<AddressVector, Errno> {
    if attr.is_global == 0 {
        return Err(Errno::invalid(
            "the address has no GID (is_global is 0), and RoCE needs one: give the program a GID index, such as -g 0",
        ));
    }
    Ok(attr.into())
}
