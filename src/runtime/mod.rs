//! Engine, port, clock and threads joined.
