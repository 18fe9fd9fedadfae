//! The list of all fields.

use super::cm_fields::CM_FIELDS;
use super::field::Field;
use super::packet_fields::PACKET_FIELDS;

const ALL: [Field; PACKET_FIELDS.len() + CM_FIELDS.len()] = {
    let mut all = [PACKET_FIELDS[0]; PACKET_FIELDS.len() + CM_FIELDS.len()];
    let mut at = 0;
    while at < PACKET_FIELDS.len() {
        all[at] = PACKET_FIELDS[at];
        at += 1;
    }
    while at < all.len() {
        all[at] = CM_FIELDS[at - PACKET_FIELDS.len()];
        at += 1;
    }
    all
};

impl Field {
    /// Every field.
    pub const ALL: &'static [Self] = &ALL;

    /// Returns the field with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|field| field.name() == name).copied()
    }
}
