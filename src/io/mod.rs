//! Ways onto the wire.
