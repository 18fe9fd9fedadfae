//! The transport services as options name them.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A transport service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection: each message names a shared receive queue.
    Xrc,
}

impl Transport {
    /// Returns the name on the command line and in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rc => "rc",
            Self::Uc => "uc",
            Self::Ud => "ud",
            Self::Xrc => "xrc",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for transport in Transport::value_variants() {
            assert_eq!(Transport::from_str(transport.name(), false), Ok(*transport));
        }
    }
}
