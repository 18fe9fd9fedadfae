//! Environment variables: the table for the library, the command, and other programs that open devices.

use std::env;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use thiserror::Error;

use crate::port::PortKind;
use crate::port::impair::Impairments;
use crate::runtime::{PostPolicy, may_be_shards};
use crate::sys::is_privileged;

/// An environment variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variable {
    /// The name.
    pub name: &'static str,
    /// Description of valid values.
    pub value: &'static str,
    /// Description of the effect.
    pub meaning: &'static str,
}

/// All environment variables. An empty one counts as not set.
pub const VARIABLES: [Variable; 15] = [
    Variable {
        name: "SOFTROCE_IP",
        value: "an IP address of this machine, or several with commas between",
        meaning: "the addresses of the device; default: the first free of 127.0.0.1, 127.0.0.2, ...",
    },
    Variable {
        name: "SOFTROCE_NAME",
        value: "a name",
        meaning: "the name of the device; default: softroce0",
    },
    Variable {
        name: "SOFTROCE_PCAP",
        value: "a file name",
        meaning: "the pcapng file that gets every packet sent and received",
    },
    Variable {
        name: "SOFTROCE_COUNTERS",
        value: "a directory",
        meaning: "the directory in which each device writes its counters, every second, when it is closed and when the process ends, as NAME-ADDRESS.prom for Prometheus",
    },
    Variable {
        name: "SOFTROCE_CONTROL",
        value: "on or off",
        meaning: "whether other programs of the same user, such as roce top, roce capture and Wireshark, may read the counters of the device and capture its packets while it is in use; default: on",
    },
    Variable {
        name: "SOFTROCE_IMPAIR",
        value: "a list such as loss=0.01,delay=1ms,seed=7",
        meaning: "impairments of the network, as in docs/IMPAIRMENTS.md",
    },
    Variable {
        name: "SOFTROCE_RCVBUF",
        value: "a number of bytes",
        meaning: "the size of the socket's receive buffer, as the kernel counts it; default: as large as allowed, up to 8 MiB",
    },
    Variable {
        name: "SOFTROCE_REORDER",
        value: "a number of bytes",
        meaning: "the size of the out-of-order buffer of a connection; 0 drops packets behind a lost one, as kernel rxe does; default: the size of the receive buffer",
    },
    Variable {
        name: "SOFTROCE_POST",
        value: "coalesce or immediate",
        meaning: "when posted send requests leave: coalesce lets requests that are posted one after the other leave together, with the next poll of a completion queue at the latest if the program polls; immediate sends each at once; default: coalesce",
    },
    Variable {
        name: "SOFTROCE_LOG",
        value: "off, error, warn, info, debug or trace",
        meaning: "the level of messages on standard error; info reports why each call of a C program was refused; default: warn, and the first refused call",
    },
    Variable {
        name: "SOFTROCE_SOURCE_PORT",
        value: "a UDP port",
        meaning: "the UDP source port of all packets, for firewalls; 4791 is allowed; default: a port for each flow",
    },
    Variable {
        name: "SOFTROCE_VIA",
        value: "udp, shm, packet or tap:NAME,ip=ADDRESS/PREFIX",
        meaning: "the kind of port: UDP sockets; shared memory to programs of this machine that use it too, and UDP sockets to others; packet sockets (needs CAP_NET_RAW); a TAP interface, which makes the device a host of its own; default: udp",
    },
    Variable {
        name: "SOFTROCE_SHARDS",
        value: "1, 2, 4, 8, 16, 32 or 64",
        meaning: "the number of shards of the device, each with a lock, a thread and a socket, so that its packets are processed on several CPUs; default: 1",
    },
    Variable {
        name: "SOFTROCE_EXPLAIN",
        value: "a file name",
        meaning: "the existing file to which each C program appends its first refused call and its first completion with an error, for roce run --explain",
    },
    Variable {
        name: "SOFTROCE_PATHS",
        value: "a directory",
        meaning: "the directory for the files that programs under roce run find below /sys/class/infiniband and /dev/infiniband; default: one below XDG_RUNTIME_DIR or the directory for temporary files",
    },
];

/// Configuration from the environment.
///
/// [`Context::open`](crate::verbs::Context::open) applies it where its options leave a choice; programs write the
/// capture.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Environment {
    /// `SOFTROCE_IP`, in order; empty if it is not set.
    pub ips: Vec<IpAddr>,
    /// `SOFTROCE_NAME`.
    pub name: Option<String>,
    /// `SOFTROCE_PCAP`.
    pub pcap: Option<PathBuf>,
    /// `SOFTROCE_COUNTERS`.
    pub counters: Option<PathBuf>,
    /// `SOFTROCE_CONTROL`.
    pub control: Option<bool>,
    /// `SOFTROCE_IMPAIR`.
    pub impair: Option<Impairments>,
    /// `SOFTROCE_RCVBUF`.
    pub receive_buffer: Option<usize>,
    /// `SOFTROCE_REORDER`.
    pub reorder_buffer: Option<u64>,
    /// `SOFTROCE_POST`.
    pub post_policy: Option<PostPolicy>,
    /// `SOFTROCE_LOG`.
    pub log: Option<LogLevel>,
    /// `SOFTROCE_SOURCE_PORT`.
    pub source_port: Option<u16>,
    /// `SOFTROCE_VIA`.
    pub via: Option<PortKind>,
    /// `SOFTROCE_SHARDS`.
    pub shards: Option<u8>,
    /// `SOFTROCE_EXPLAIN`.
    pub explain: Option<PathBuf>,
    /// `SOFTROCE_PATHS`.
    pub paths: Option<PathBuf>,
}

/// Level of messages, in increasing detail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// Failures.
    Error,
    /// Possible mistakes.
    Warn,
    /// Summaries of events.
    Info,
    /// Events.
    Debug,
    /// Every packet.
    Trace,
}

impl Environment {
    /// Reads the environment of this process. For a set-uid program, or another with privileges of its own, no
    /// variable is set (`secure_getenv`).
    ///
    /// # Errors
    ///
    /// A variable has an invalid value.
    pub fn read() -> Result<Self, EnvError> {
        let trusted = !is_privileged();
        Self::from_variables(|name| env::var_os(name).filter(|_| trusted))
    }

    /// Parses the values that `lookup` returns for each variable.
    ///
    /// # Errors
    ///
    /// A variable has an invalid value.
    ///
    /// ```
    /// use softroce::runtime::Environment;
    ///
    /// let odd = |name: &str| (name == "SOFTROCE_RCVBUF").then(|| "4M".into());
    /// assert_eq!(
    ///     Environment::from_variables(odd).unwrap_err().to_string(),
    ///     "SOFTROCE_RCVBUF=4M: expected a number of bytes"
    /// );
    /// ```
    pub fn from_variables(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, EnvError> {
        let mut found = Self::default();
        for variable in &VARIABLES {
            let Some(value) = lookup(variable.name).filter(|value| !value.is_empty()) else {
                continue;
            };
            found.set(variable, value)?;
        }
        Ok(found)
    }

    fn set(&mut self, variable: &Variable, value: OsString) -> Result<(), EnvError> {
        let text = value.to_string_lossy();
        let wrong = |reason: String| EnvError {
            name: variable.name,
            value: text.clone().into_owned(),
            reason,
        };
        let unlike = || wrong(format!("expected {}", variable.value));
        match variable.name {
            "SOFTROCE_IP" => {
                let ips = text.split(',').map(str::parse).collect::<Result<_, _>>();
                self.ips = ips.map_err(|_| unlike())?;
            }
            "SOFTROCE_NAME" => self.name = Some(text.into_owned()),
            "SOFTROCE_IMPAIR" => {
                self.impair = Some(text.parse().map_err(|error| wrong(format!("{error}")))?);
            }
            "SOFTROCE_RCVBUF" => self.receive_buffer = Some(text.parse().map_err(|_| unlike())?),
            "SOFTROCE_REORDER" => self.reorder_buffer = Some(text.parse().map_err(|_| unlike())?),
            "SOFTROCE_POST" => {
                self.post_policy = Some(match &*text {
                    "coalesce" => PostPolicy::Coalesce,
                    "immediate" => PostPolicy::Immediate,
                    _ => return Err(unlike()),
                });
            }
            "SOFTROCE_CONTROL" => {
                self.control = Some(match &*text {
                    "on" => true,
                    "off" => false,
                    _ => return Err(unlike()),
                });
            }
            "SOFTROCE_LOG" => self.log = Some(LogLevel::named(&text).ok_or_else(unlike)?),
            "SOFTROCE_SOURCE_PORT" => {
                self.source_port = Some(text.parse().map_err(|_| unlike())?);
            }
            "SOFTROCE_SHARDS" => {
                let count = text.parse().ok().filter(|count| may_be_shards(*count));
                self.shards = Some(count.ok_or_else(unlike)?);
            }
            "SOFTROCE_VIA" => {
                self.via = Some(text.parse().map_err(|error| wrong(format!("{error}")))?)
            }
            "SOFTROCE_EXPLAIN" => self.explain = Some(value.into()),
            "SOFTROCE_PATHS" => self.paths = Some(value.into()),
            "SOFTROCE_COUNTERS" => self.counters = Some(value.into()),
            _ => self.pcap = Some(value.into()),
        }
        Ok(())
    }
}

impl LogLevel {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "off" => Self::Off,
            "error" => Self::Error,
            "warn" => Self::Warn,
            "info" => Self::Info,
            "debug" => Self::Debug,
            "trace" => Self::Trace,
            _ => return None,
        })
    }
}

/// Error for an environment variable with an invalid value.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{name}={value}: {reason}")]
pub struct EnvError {
    /// The variable.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Reason.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn read(name: &str, value: &str) -> Result<Environment, String> {
        let lookup = |asked: &str| (asked == name).then(|| value.into());
        Environment::from_variables(lookup).map_err(|error| error.to_string())
    }

    #[test]
    fn every_variable_has_a_place_of_its_own() {
        let values = [
            "::1,127.0.0.1",
            "rdma",
            "a.pcap",
            "metrics",
            "off",
            "loss=0.5",
            "4096",
            "0",
            "immediate",
            "warn",
            "4791",
            "udp",
            "4",
            "/run/explain",
            "/run/paths",
        ];
        let all = VARIABLES.iter().zip(values);
        let lookup = |name: &str| {
            all.clone().find(|(variable, _)| variable.name == name).map(|(_, value)| value.into())
        };
        let expected = Environment {
            ips: vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()],
            name: Some("rdma".into()),
            pcap: Some("a.pcap".into()),
            counters: Some("metrics".into()),
            control: Some(false),
            impair: "loss=0.5".parse().ok(),
            receive_buffer: Some(4096),
            reorder_buffer: Some(0),
            post_policy: Some(PostPolicy::Immediate),
            log: Some(LogLevel::Warn),
            source_port: Some(4791),
            via: Some(PortKind::Udp),
            shards: Some(4),
            explain: Some("/run/explain".into()),
            paths: Some("/run/paths".into()),
        };
        assert_eq!(Environment::from_variables(lookup), Ok(expected));
    }

    #[test]
    fn empty_variable_is_not_set() {
        assert_eq!(read("SOFTROCE_IP", ""), Ok(Environment::default()));
    }

    #[test]
    fn errors_say_what_is_expected() {
        let error = |name, value| read(name, value).unwrap_err();
        let addresses = "expected an IP address of this machine, or several with commas between";
        for text in ["localhost", "127.0.0.1,", "127.0.0.1 127.0.0.2"] {
            assert_eq!(error("SOFTROCE_IP", text), format!("SOFTROCE_IP={text}: {addresses}"));
        }
        for count in ["0", "3", "128", "two"] {
            assert_eq!(
                error("SOFTROCE_SHARDS", count),
                format!("SOFTROCE_SHARDS={count}: expected 1, 2, 4, 8, 16, 32 or 64")
            );
        }
        assert_eq!(
            error("SOFTROCE_LOG", "loud"),
            "SOFTROCE_LOG=loud: expected off, error, warn, info, debug or trace"
        );
        assert_eq!(
            error("SOFTROCE_IMPAIR", "loss=2"),
            "SOFTROCE_IMPAIR=loss=2: bad value in `loss=2`: expected a probability, 0 to 1"
        );
    }
}
