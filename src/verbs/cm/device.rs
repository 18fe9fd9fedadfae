//! The device of an id: which one a bind, a route or a listener opens.
//!
//! A process without `SOFTROCE_IP` has one device, at the address that its first call needs. A client of a loopback
//! address leaves that address to its server, also if it names the address as its own. A bind to an address of a network
//! does not decide: libfabric binds to every address of the machine to find those with a device.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use crate::port::udp::Route;
use crate::runtime::{OwnAddress, find_device};
use crate::sync::Mutex;
use crate::sys::is_of_host;
use crate::verbs::cm::Error;
use crate::verbs::context::ContextInner;
use crate::verbs::{self, Context, Mtu, OpenOptions};

/// A function that opens the device of a process. The argument returns the options, which the function may add to.
pub type Opener = fn(&dyn Fn() -> OpenOptions) -> Result<Context, verbs::Error>;

/// The device of a process that names no address, as the ids of a channel have it: an id opens it, and the later ones share
/// the context.
#[derive(Debug)]
pub(super) struct OwnDevice {
    opener: Opener,
    context: Mutex<Weak<ContextInner>>,
}

impl OwnDevice {
    pub(super) const fn new(opener: Opener) -> Self {
        Self { opener, context: Mutex::new(Weak::new()) }
    }

    /// Opens the device, or returns a handle on it.
    fn open(&self, address: OwnAddress) -> Result<Context, verbs::Error> {
        let known = self.context().upgrade();
        let is_usable = |inner: &Arc<ContextInner>| inner.device.shards.first().check().is_ok();
        if let Some(inner) = known.filter(is_usable) {
            return Ok(Context { inner });
        }
        let opened = (self.opener)(&|| OpenOptions::default().own(address))?;
        *self.context() = Arc::downgrade(&opened.inner);
        Ok(opened)
    }

    fn context(&self) -> MutexGuard<'_, Weak<ContextInner>> {
        self.context.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How an id gets its device.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    /// The device that the program has chosen.
    pub(super) chosen: Option<Context>,
    /// Opens the device otherwise.
    pub(super) own: Arc<OwnDevice>,
}

impl Choice {
    /// Opens the device of a process that names no address, or returns another handle on it.
    fn open_own(&self, address: OwnAddress) -> Result<Context, verbs::Error> {
        self.own.open(address)
    }
}

/// Returns the device for a bind to `ip`, which is not unspecified. `destination` is the address of the peer, if it is
/// known. `None` for a loopback address if the device has none: such a bind stands for every address, as in Linux.
pub(super) fn for_bind(
    choice: &Choice,
    ip: IpAddr,
    destination: Option<IpAddr>,
) -> Result<Option<Context>, Error> {
    let context = match (&choice.chosen, find_device(ip)) {
        (Some(chosen), _) => chosen.clone(),
        (None, Some(device)) => Context::of(device)?,
        (None, None) if ip.is_loopback() && destination == Some(ip) => for_destination(choice, ip)?,
        (None, None) => open_at(choice, ip)?,
    };
    if has(&context, ip) {
        return Ok(Some(context));
    }
    if ip.is_loopback() {
        return Ok(Some(context).filter(|context| has_loopback(context, ip)));
    }
    let os = |source| Error::Os { what: "the list of interfaces", source };
    if is_of_host(ip).map_err(os)? {
        return Err(Error::NotOfDevice { ip, device: context.ip() });
    }
    Err(Error::NotLocal { ip })
}

/// Opens the own device at `ip` if that is a loopback address, or elsewhere if it is in use.
fn open_at(choice: &Choice, ip: IpAddr) -> Result<Context, Error> {
    if !ip.is_loopback() {
        return Ok(choice.open_own(OwnAddress::Any)?);
    }
    match choice.open_own(OwnAddress::At(ip)) {
        Err(error) if error.errno() == libc::EADDRINUSE => {
            Ok(choice.open_own(OwnAddress::Except(ip))?)
        }
        result => Ok(result?),
    }
}

/// Returns the device for a connection to `destination`.
pub(super) fn for_destination(choice: &Choice, destination: IpAddr) -> Result<Context, Error> {
    if let Some(chosen) = &choice.chosen {
        return Ok(chosen.clone());
    }
    let address = if destination.is_loopback() || destination.is_unspecified() {
        OwnAddress::Except(destination)
    } else {
        match Route::to(destination, None) {
            Ok(route) => OwnAddress::At(route.source),
            // A device with an IP stack of its own needs no route of the system.
            Err(source) => {
                return choice
                    .open_own(OwnAddress::Open)
                    .map_err(|_| Error::NoRoute { destination, source });
            }
        }
    };
    Ok(choice.open_own(address)?)
}

/// Returns the device for a listener without a device.
pub(super) fn for_listener(choice: &Choice) -> Result<Context, Error> {
    match &choice.chosen {
        Some(chosen) => Ok(chosen.clone()),
        None => Ok(choice.open_own(OwnAddress::Any)?),
    }
}

/// Checks that requests to `ip` arrive at the device of a listener: another device has each other loopback address.
pub(super) fn check_listener(context: &Context, ip: IpAddr) -> Result<(), Error> {
    if ip.is_loopback() && has_loopback(context, ip) && !has(context, ip) {
        return Err(Error::ForeignLoopback { ip, device: context.ip() });
    }
    Ok(())
}

/// Returns whether the device has a loopback address of the IP version of `ip`.
fn has_loopback(context: &Context, ip: IpAddr) -> bool {
    let own = context.inner.device.gids.iter().map(|gid| gid.ip());
    own.filter(|own| own.is_ipv4() == ip.is_ipv4()).any(|own| own.is_loopback())
}

/// Returns the source address of a device for a connection to `destination`, and the destination: this device itself for
/// an unspecified address, and for a loopback address if the device has none.
pub(super) fn route(
    context: &Context,
    destination: SocketAddr,
) -> Result<(IpAddr, SocketAddr), Error> {
    let ip = destination.ip();
    let of_version = |gid: IpAddr| gid.is_ipv4() == ip.is_ipv4();
    let gids = &context.inner.device.gids;
    let mut ips = gids.iter().map(|gid| gid.ip()).filter(|ip| of_version(*ip));
    let first = ips.clone().next().ok_or(Error::NoSource { destination: ip })?;
    let is_ours =
        ip.is_unspecified() || (ip.is_loopback() && !ips.clone().any(|ip| ip.is_loopback()));
    let mut source = first;
    // A table of few addresses repeats them.
    if ips.clone().any(|ip| ip != first)
        && let Ok(route) = Route::to(ip, None)
        && ips.any(|ip| ip == route.source)
    {
        source = route.source;
    }
    let mut destination = destination;
    if is_ours {
        destination.set_ip(first);
        source = first;
    }
    Ok((source, destination))
}

/// Returns whether the device has the address.
pub(super) fn has(context: &Context, ip: IpAddr) -> bool {
    context.inner.device.gids.iter().any(|gid| gid.ip() == ip)
}

/// Returns the largest path MTU of the device.
pub(super) fn active_mtu(context: &Context) -> Result<Mtu, Error> {
    let first = context.inner.device.shards.first();
    Ok(first.with_old_time(|core, _| core.engine.config().active_mtu)?)
}

/// Checks that the device has queue pair 1 of its address.
pub(super) fn check_gsi(context: &Context) -> Result<(), Error> {
    let first = context.inner.device.shards.first();
    let shard = first.with_old_time(|core, _| core.engine.config().shard)?;
    if shard == 0 { Ok(()) } else { Err(Error::NoGsi { ip: context.ip() }) }
}
