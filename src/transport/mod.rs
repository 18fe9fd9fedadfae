//! The transport services.

pub mod work;
