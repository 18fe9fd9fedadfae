//! State that the handles of a completion queue and its channel share.

use std::sync::Arc;

use crate::ids::CqId;
use crate::runtime::Ring;
use crate::verbs::context::ContextInner;
use crate::verbs::pd::PdInner;
use crate::verbs::subject::Subject;
use crate::verbs::usage::{Unacknowledged, User, Users};

#[derive(Debug)]
pub(in crate::verbs) struct CqInner {
    pub(in crate::verbs) id: CqId,
    pub(in crate::verbs) ring: Arc<Ring>,
    pub(in crate::verbs) context: Arc<ContextInner>,
    _channel_user: Option<User>,
    _parent_domain: Option<Arc<PdInner>>,
    /// Queue pairs and shared receive queues that complete here.
    pub(in crate::verbs) users: Users,
    /// Announcements that the channel has returned.
    pub(in crate::verbs) announcements: Unacknowledged,
    pub(in crate::verbs) async_events: Arc<Unacknowledged>,
}

impl CqInner {
    pub(in crate::verbs) fn new(
        id: CqId,
        ring: Ring,
        context: Arc<ContextInner>,
        channel_user: Option<User>,
        parent_domain: Option<Arc<PdInner>>,
    ) -> Self {
        Self {
            id,
            ring: Arc::new(ring),
            async_events: context.subjects.enter(Subject::Cq(id)),
            context,
            _channel_user: channel_user,
            _parent_domain: parent_domain,
            users: Users::default(),
            announcements: Unacknowledged::default(),
        }
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        let device = &self.context.device;
        let mut shards = device.shards.iter();
        let removed = shards.try_for_each(|shard| shard.with(|core, _| core.rings.remove(self.id)));
        // A failed device assigns no more numbers.
        if removed.is_ok() {
            self.context.remove_subject(Subject::Cq(self.id));
            device.cqs.give_back(self.id);
        }
    }
}
