//! The action of a signal, for `softroce-paths`.

/// Action of the program for a signal, and the handler in front of it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ProgramAction {
    /// Handler that `sigaction` returns in place of the program's.
    pub(crate) front: usize,
    pub(crate) handler: usize,
    /// `SA_…`, all of which are in 32 bits.
    pub(crate) flags: u32,
    pub(crate) restorer: usize,
    /// The kernel's set of signals.
    pub(crate) mask: u64,
}
