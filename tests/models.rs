//! Random programs on the simulated network, compared with models of what the specification permits.

#[path = "models/cm.rs"]
mod cm;
#[path = "models/copies.rs"]
mod copies;
#[path = "models/err.rs"]
mod err;
#[path = "models/merged.rs"]
mod merged;
#[path = "models/mixed.rs"]
mod mixed;
#[path = "models/pause.rs"]
mod pause;
#[path = "models/pause_ud.rs"]
mod pause_ud;
#[path = "models/peer.rs"]
mod peer;
#[path = "models/rc.rs"]
mod rc;
#[path = "models/srq.rs"]
mod srq;
#[path = "models/states.rs"]
mod states;
mod support;
#[path = "models/unreliable.rs"]
mod unreliable;
#[path = "models/windows.rs"]
mod windows;
