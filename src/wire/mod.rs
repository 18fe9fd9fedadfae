//! Packets as bytes.
