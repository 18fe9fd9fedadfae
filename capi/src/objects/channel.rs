//! Completion channels.

use std::sync::{Arc, Mutex};

use softroce::verbs::CompletionChannel;

use super::context::Objects;
use crate::abi::{Handle, IbvCompChannel, IbvCqEx};
use crate::border::Head;
use crate::gate::lock;

/// A completion channel.
#[repr(C)]
pub(crate) struct Channel {
    pub(crate) c: IbvCompChannel,
    pub(crate) verbs: CompletionChannel,
    pub(crate) objects: Arc<Mutex<Objects>>,
}

impl Head for IbvCompChannel {
    type Object = Channel;
}

impl Channel {
    /// Returns the completion queue with a number that an event names, or `None` while the queue is being
    /// destroyed.
    pub(crate) fn cq(&self, cq: u32) -> Option<Handle<IbvCqEx>> {
        lock(&self.objects).cqs.get(&cq).copied()
    }
}
