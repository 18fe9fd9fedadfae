//! State of channels and ids, which refer to each other.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Waker;

use crate::cm::{BindId, CmPath, ConnId, PortSpace};
use crate::engine::QpType;
use crate::ids::QKey;
use crate::runtime::cm::{Attachment, CmEvents};
use crate::runtime::{Device, EventFd, Queue, ShardSet};
use crate::sync::Mutex;
use crate::sync::wakers::Wakers;
use crate::time::AckTimeout;
use crate::verbs::Context;
use crate::verbs::cm::device::{Choice, OwnDevice};
use crate::verbs::cm::event::{EventKind, MulticastGroup, MulticastId};

/// An event that waits in a channel.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    pub(super) of: Owner,
    /// Number of the id that counts the event: the listener, for a request.
    pub(super) counted: u64,
    pub(super) kind: EventKind,
}

/// The id of an event.
#[derive(Clone, Debug)]
pub(super) enum Owner {
    /// An id that the program has.
    Id(Weak<IdInner>),
    /// A new id, which the event owns, and the listener.
    Request(Id, Weak<IdInner>),
}

#[derive(Debug)]
pub(super) struct ChannelInner {
    pub(super) events: Queue<Queued>,
    pub(super) event_fd: OnceLock<Arc<EventFd>>,
    pub(super) wakers: Wakers,
    /// The device of ids without one.
    pub(super) own: Arc<OwnDevice>,
    pub(super) receivers: Mutex<Receivers>,
}

/// Devices of a channel's ids. Their threads receive while threads or tasks wait for events of the channel.
#[derive(Debug, Default)]
pub(super) struct Receivers {
    devices: Vec<Weak<Device>>,
    /// Number of waiting threads and tasks. Each of them is registered at each of the devices.
    waiters: usize,
}

impl Receivers {
    /// Returns the devices that are still open.
    fn devices(&mut self) -> Vec<Arc<Device>> {
        self.devices.retain(|device| device.strong_count() > 0);
        self.devices.iter().filter_map(Weak::upgrade).collect()
    }
}

impl ChannelInner {
    /// Appends an event, and wakes threads and tasks.
    pub(super) fn push(&self, event: Queued) {
        self.events.push(event);
        if self.wakers.is_waiting() {
            let mut wakers = Vec::new();
            self.wakers.take(&mut wakers);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// Removes the events that an id counts, and returns them: they may own ids, so the caller drops them without a lock.
    pub(super) fn withdraw(&self, id: u64) -> Vec<Queued> {
        let mut withdrawn = Vec::new();
        self.events.retain(|event| {
            let is_of_id = event.counted == id;
            if is_of_id {
                withdrawn.push(event.clone());
            }
            !is_of_id
        });
        withdrawn
    }

    /// Adds a device. Threads that wait already rely on its thread too.
    pub(super) fn add_device(&self, device: &Arc<Device>) {
        let mut receivers = lock(&self.receivers);
        if receivers.devices.iter().any(|known| known.as_ptr() == Arc::as_ptr(device)) {
            return;
        }
        receivers.devices.push(Arc::downgrade(device));
        (0..receivers.waiters).for_each(|_| device.shards.register_waiter(ShardSet::of(0)));
    }

    /// Registers a thread or task that waits for events.
    pub(super) fn register_waiter(&self) {
        let mut receivers = lock(&self.receivers);
        receivers.waiters += 1;
        let devices = receivers.devices();
        devices.iter().for_each(|device| device.shards.register_waiter(ShardSet::of(0)));
        // Before the handles on devices, one of which may be the last.
        drop(receivers);
    }

    /// Ends [`register_waiter`](Self::register_waiter).
    pub(super) fn unregister_waiter(&self) {
        let mut receivers = lock(&self.receivers);
        receivers.waiters -= 1;
        let devices = receivers.devices();
        devices.iter().for_each(|device| device.shards.unregister_waiter(ShardSet::of(0)));
        drop(receivers);
    }
}

/// State of an id before its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Idle,
    Bound,
    AddrResolved,
    RouteResolved,
    Connect,
    Listen,
    Destroyed,
}

impl Phase {
    /// Returns the state in words.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Bound => "bound",
            Self::AddrResolved => "resolved by address",
            Self::RouteResolved => "resolved by route",
            Self::Connect => "connected or connecting",
            Self::Listen => "listening",
            Self::Destroyed => "destroyed",
        }
    }
}

/// Options of an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct IdOptions {
    pub(super) traffic_class: u8,
    pub(super) reuse_address: bool,
    pub(super) family_only: bool,
    pub(super) ack_timeout: Option<AckTimeout>,
}

#[derive(Debug)]
pub(super) struct IdState {
    pub(super) phase: Phase,
    pub(super) options: IdOptions,
    pub(super) bind: Option<BindId>,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) context: Option<Context>,
    /// Registration at the device of `context`, from a bind or an address on.
    pub(super) attachment: Option<Attachment>,
    pub(super) path: Option<CmPath>,
    pub(super) qkey: QKey,
    pub(super) groups: Vec<Membership>,
    pub(super) next_group: u32,
}

/// Membership of an id in a multicast group.
#[derive(Debug)]
pub(super) struct Membership {
    pub(super) group: MulticastGroup,
    /// Number of its events that the program has got.
    pub(super) reported: u32,
}

/// A connection, listener or service request in the agent of a device.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) context: Context,
    pub(super) events: Arc<CmEvents>,
    pub(super) id: ConnId,
}

/// An identifier of the connection manager: a listener, a connection or a service request, as in Linux' rdma_cm.
///
/// It has the calls of `librdmacm` with their states and errors. Each call that waits for the network ends with an
/// [`Event`](super::Event) in the [`EventChannel`](super::EventChannel) of the id. [`Listener`](super::Listener) and
/// [`connect`](super::connect) are simpler.
///
/// Dropping the last handle destroys the id, and tells the peer.
#[derive(Clone, Debug)]
#[doc(alias = "rdma_cm_id")]
pub struct Id {
    pub(super) inner: Arc<IdInner>,
    _handle: Arc<Handle>,
}

/// Counts the handles of an id. Threads that deliver events own `inner` for a moment: the last handle ends the id, in the
/// thread of the program.
#[derive(Debug)]
pub(super) struct Handle(pub(super) Arc<IdInner>);

impl Id {
    /// Returns the first handle of an id.
    pub(super) fn of_new(inner: IdInner) -> Self {
        let inner = Arc::new(inner);
        let handle = Arc::new(Handle(Arc::clone(&inner)));
        // Called once.
        let _ = inner.handle.set(Arc::downgrade(&handle));
        Self { inner, _handle: handle }
    }
}

#[derive(Debug)]
pub(super) struct IdInner {
    /// Number of the id in the process, never used again.
    pub(super) number: u64,
    /// Value that the program has set.
    pub(super) tag: AtomicU64,
    pub(super) port_space: PortSpace,
    pub(super) qp_type: QpType,
    /// The device that the program has chosen.
    pub(super) chosen: Mutex<Option<Context>>,
    handle: OnceLock<Weak<Handle>>,
    pub(super) channel: Mutex<Arc<ChannelInner>>,
    pub(super) state: Mutex<IdState>,
    conn: Mutex<Option<Arc<Conn>>>,
    /// A request that the program has not accepted: it has no events.
    pub(super) is_silent: AtomicBool,
    /// Number of its events that the program has got.
    pub(super) reported: AtomicU32,
    /// The id has ended in the agent.
    pub(super) is_ended: AtomicBool,
    /// The id has reported the failure of its device.
    pub(super) is_removed: AtomicBool,
}

impl IdInner {
    /// Returns an id in its first state.
    pub(super) fn new(
        channel: Arc<ChannelInner>,
        port_space: PortSpace,
        qp_type: QpType,
        chosen: Option<Context>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            tag: AtomicU64::new(0),
            port_space,
            qp_type,
            chosen: Mutex::new(chosen),
            handle: OnceLock::new(),
            channel: Mutex::new(channel),
            state: Mutex::new(IdState {
                phase: Phase::Idle,
                options: IdOptions::default(),
                bind: None,
                local: None,
                peer: None,
                context: None,
                attachment: None,
                path: None,
                qkey: DEFAULT_QKEY,
                groups: Vec::new(),
                next_group: 0,
            }),
            conn: Mutex::new(None),
            is_silent: AtomicBool::new(false),
            reported: AtomicU32::new(0),
            is_ended: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
        }
    }

    /// Returns how this id gets its device.
    pub(super) fn choice(&self) -> Choice {
        let own = Arc::clone(&lock(&self.channel).own);
        Choice { chosen: lock(&self.chosen).clone(), own }
    }

    /// Returns another handle, unless the last one has been dropped.
    pub(super) fn id(self: &Arc<Self>) -> Option<Id> {
        let handle = self.handle.get()?.upgrade()?;
        Some(Id { inner: Arc::clone(self), _handle: handle })
    }

    /// Returns the connection, listener or service request of the id.
    pub(super) fn conn(&self) -> Option<Arc<Conn>> {
        lock(&self.conn).clone()
    }

    /// Sets the connection, listener or service request of the id.
    pub(super) fn set_conn(&self, conn: Conn) {
        *lock(&self.conn) = Some(Arc::new(conn));
    }

    /// Takes the connection, listener or service request of the id.
    pub(super) fn take_conn(&self) -> Option<Arc<Conn>> {
        lock(&self.conn).take()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, IdState> {
        lock(&self.state)
    }

    /// Appends an event of this id to its channel.
    pub(super) fn report(self: &Arc<Self>, kind: EventKind) {
        let channel = lock(&self.channel);
        let of = Owner::Id(Arc::downgrade(self));
        channel.push(Queued { of, counted: self.number, kind });
    }

    /// Counts an event that the program has got.
    pub(super) fn count_reported(&self, kind: &EventKind) {
        self.reported.fetch_add(1, Ordering::Relaxed);
        if let EventKind::MulticastJoined(group) = kind {
            self.count_group(group.id);
        }
    }

    fn count_group(&self, id: MulticastId) {
        let mut state = self.state();
        if let Some(member) = state.groups.iter_mut().find(|member| member.group.id == id) {
            member.reported += 1;
        }
    }
}

/// Queue key of UD ids of rdma_cm (`RDMA_UDP_QKEY`).
pub(super) const DEFAULT_QKEY: QKey = QKey(0x0123_4567);

/// Locks a mutex that no panic leaves inconsistent.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
