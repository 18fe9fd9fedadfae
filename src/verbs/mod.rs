//! The objects applications hold.
