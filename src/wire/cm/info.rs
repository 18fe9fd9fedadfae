//! Additional information in REJ and SIDR_REP.

use super::field::{BitField, Value};

/// Additional information of a REJ or SIDR_REP, 72 bytes, of which the message tells the number in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Info(pub [u8; Self::LEN]);

impl Info {
    /// Length in bytes.
    pub const LEN: usize = 72;

    /// Returns the information with these bytes, without those past the length.
    pub fn new(bytes: &[u8]) -> Self {
        let mut info = Self::default();
        for (to, from) in info.0.iter_mut().zip(bytes) {
            *to = *from;
        }
        info
    }

    /// Returns the first `len` bytes, or all of them.
    pub fn used(&self, len: u8) -> &[u8] {
        self.0.get(..usize::from(len)).unwrap_or(&self.0)
    }
}

impl Default for Info {
    fn default() -> Self {
        Self([0; Self::LEN])
    }
}

/// Has no value for display: the meaning of the bytes depends on the reason.
impl BitField for Info {
    fn read(bytes: &[u8], at: usize, len: usize) -> Self {
        Self::new(bytes.get(at / 8..(at + len) / 8).unwrap_or_default())
    }

    fn write(&self, bytes: &mut [u8], at: usize, _len: usize) {
        for (to, from) in bytes.iter_mut().skip(at / 8).zip(self.0) {
            *to = from;
        }
    }

    fn show(&self, _name: &'static str, _show: &mut dyn FnMut(&'static str, Value)) {}
}
