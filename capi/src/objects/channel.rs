//! Completion channels.

use std::sync::{Arc, Mutex};

use softroce::verbs::CompletionChannel;

use super::context::Objects;
use crate::abi::{ChannelHead, Handle, IbvCompChannel, IbvCq};
use crate::border::Pointee;
use crate::gate::lock;

/// A completion channel.
#[repr(C)]
pub(crate) struct Channel {
    pub(crate) c: ChannelHead,
    pub(crate) verbs: CompletionChannel,
    pub(crate) objects: Arc<Mutex<Objects>>,
}

impl Pointee for IbvCompChannel {
    type Object = Channel;
}

impl Channel {
    /// Returns the completion queue with a number that an event names, or `None` while the queue is being
    /// destroyed.
    pub(crate) fn cq(&self, cq: u32) -> Option<Handle<IbvCq>> {
        lock(&self.objects).cqs.get(&cq).copied()
    }
}
