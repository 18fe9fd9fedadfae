//! Contexts: an open device, and the objects that events name.

use std::collections::HashMap;
use std::mem::offset_of;
use std::sync::{Arc, Mutex};

use softroce::verbs::{self, Qpn, Srqn};

use crate::abi::{Handle, IbvContext, IbvCq, IbvQp, IbvSrq, VerbsContext};
use crate::border::Pointee;

/// A context. `ibv_context` is inside of `verbs_context`, which is the beginning of this structure.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) c: VerbsContext,
    pub(crate) verbs: verbs::Context,
    /// Shared with the objects of the context: programs close a device before they destroy its objects.
    pub(crate) objects: Arc<Mutex<Objects>>,
}

impl Pointee for IbvContext {
    type Object = Context;
    const OFFSET: usize = offset_of!(Context, c) + offset_of!(VerbsContext, context);
}

/// Objects that events may name, by the numbers that the library has for them.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) cqs: HashMap<u32, Handle<IbvCq>>,
    pub(crate) qps: HashMap<Qpn, Handle<IbvQp>>,
    pub(crate) srqs: HashMap<Srqn, Handle<IbvSrq>>,
}
