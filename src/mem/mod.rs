//! Registered memory.
