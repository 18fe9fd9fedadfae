//! The header of a management datagram (MAD), the payload of UD packets between queue pairs 1.
//!
//! ```text
//!      ┌─────────────────┬─────────────────┬─────────────────┬─────────────────┐
//!   0  │ base version    │ management class│ class version   │ R, method 7     │
//!      ├─────────────────┴─────────────────┼─────────────────┴─────────────────┤
//!   4  │ status 16                         │ class specific 16                 │
//!      ├───────────────────────────────────┴───────────────────────────────────┤
//!   8  │ transaction id 64                                                     │
//!      ├───────────────────────────────────┬───────────────────────────────────┤
//!  16  │ attribute id 16                   │ reserved 16                       │
//!      ├───────────────────────────────────┴───────────────────────────────────┤
//!  20  │ attribute modifier 32                                                 │
//!      └───────────────────────────────────────────────────────────────────────┘
//! ```

/// The header of a management datagram (IBTA vol 1, §13.4.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Mad {
    /// Version of the MAD format, always 1.
    pub base_version: u8,
    /// Management class, for example [`CM`](Self::CM).
    pub class: u8,
    /// Version of the class's messages.
    pub class_version: u8,
    /// Method, always [`SEND`](Self::SEND) for the connection manager.
    pub method: u8,
    /// Status, 0 for success.
    pub status: u16,
    /// Field defined by the class.
    pub class_specific: u16,
    /// Transaction ID, which associates requests and responses.
    pub transaction_id: u64,
    /// Attribute ID, which selects the message of the class.
    pub attribute: u16,
    /// Attribute modifier.
    pub modifier: u32,
}

impl Mad {
    /// Length in bytes.
    pub const LEN: usize = 24;
    /// Length in bytes of a management datagram: this header and the data of the class.
    pub const DATAGRAM_LEN: usize = 256;
    /// Version of the MAD format.
    pub const BASE_VERSION: u8 = 1;
    /// Management class of the connection manager.
    pub const CM: u8 = 7;
    /// Version of the messages of the connection manager.
    pub const CM_VERSION: u8 = 2;
    /// Method `Get`: a request for an attribute.
    pub const GET: u8 = 1;
    /// Method `Set`: a request to change an attribute.
    pub const SET: u8 = 2;
    /// Method `GetResp`: the response to `Get` and `Set`.
    pub const GET_RESP: u8 = 0x81;
    /// Status of a response: the combination of method and attribute is not supported.
    pub const STATUS_UNSUPPORTED: u16 = 0x0c;
    /// Method `Send`, for messages that are neither requests nor responses.
    pub const SEND: u8 = 3;

    /// Parses the header.
    #[rustfmt::skip]
    pub const fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let [
            base_version, class, class_version, method,
            s0, s1, c0, c1,
            t0, t1, t2, t3, t4, t5, t6, t7,
            a0, a1, _, _,
            m0, m1, m2, m3,
        ] = *bytes;
        Self {
            base_version,
            class,
            class_version,
            method,
            status: u16::from_be_bytes([s0, s1]),
            class_specific: u16::from_be_bytes([c0, c1]),
            transaction_id: u64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
            attribute: u16::from_be_bytes([a0, a1]),
            modifier: u32::from_be_bytes([m0, m1, m2, m3]),
        }
    }

    /// Writes the header.
    #[rustfmt::skip]
    pub const fn write(&self, bytes: &mut [u8; Self::LEN]) {
        let [s0, s1] = self.status.to_be_bytes();
        let [c0, c1] = self.class_specific.to_be_bytes();
        let [t0, t1, t2, t3, t4, t5, t6, t7] = self.transaction_id.to_be_bytes();
        let [a0, a1] = self.attribute.to_be_bytes();
        let [m0, m1, m2, m3] = self.modifier.to_be_bytes();
        *bytes = [
            self.base_version, self.class, self.class_version, self.method,
            s0, s1, c0, c1,
            t0, t1, t2, t3, t4, t5, t6, t7,
            a0, a1, 0, 0,
            m0, m1, m2, m3,
        ];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let bytes = [1, 7, 2, 3, 0, 4, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0x10, 0, 0x15, 0, 0, 0, 0, 0, 9];
        let mad = Mad {
            base_version: 1,
            class: Mad::CM,
            class_version: 2,
            method: Mad::SEND,
            status: 4,
            class_specific: 5,
            transaction_id: 0x1_0000_0010,
            attribute: 0x15,
            modifier: 9,
        };
        assert_eq!(Mad::parse(&bytes), mad);
        let mut out = [0xaa; Mad::LEN];
        mad.write(&mut out);
        assert_eq!(out, bytes);
    }
}
