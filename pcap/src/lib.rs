//! Captures of RoCEv2 traffic.
