//! Names of perftest's programs and of rdma-core's examples, each of which stands for a subcommand.
//!
//! The name is the first argument (`roce ib_write_bw`), or that of the command itself when it is started through a
//! link (`ln -s roce ib_write_bw`).

use std::ffi::OsString;
use std::path::Path;

use clap::builder::Resettable;
use clap::{Arg, Command, Id};

use crate::extcap::EXTCAP_NAME;

/// A name and the words that it stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alias {
    pub(crate) name: &'static str,
    words: &'static [&'static str],
}

impl Alias {
    /// Every name.
    pub(crate) const ALL: [Self; 14] = [
        Self { name: "ib_write_bw", words: &["perf", "write-bw"] },
        Self { name: "ib_read_bw", words: &["perf", "read-bw"] },
        Self { name: "ib_send_bw", words: &["perf", "send-bw"] },
        Self { name: "ib_atomic_bw", words: &["perf", "atomic-bw"] },
        Self { name: "ib_write_lat", words: &["perf", "write-lat"] },
        Self { name: "ib_read_lat", words: &["perf", "read-lat"] },
        Self { name: "ib_send_lat", words: &["perf", "send-lat"] },
        Self { name: "ib_atomic_lat", words: &["perf", "atomic-lat"] },
        Self { name: "ibv_rc_pingpong", words: &["pingpong", "--connection=rc"] },
        Self { name: "ibv_uc_pingpong", words: &["pingpong", "--connection=uc"] },
        Self { name: "ibv_ud_pingpong", words: &["pingpong", "--connection=ud"] },
        Self { name: "ibv_srq_pingpong", words: &["pingpong", "--use-srq"] },
        Self { name: "ibv_xsrq_pingpong", words: &["pingpong", "--connection=xrc"] },
        Self { name: "ibv_devinfo", words: &["devinfo"] },
    ];

    /// Replaces a name in a command line by the words that it stands for.
    pub(crate) fn expand(mut line: Vec<OsString>) -> (Option<Self>, Vec<OsString>) {
        let find = |word: &OsString| {
            let name = Path::new(word).file_name();
            Self::ALL.into_iter().find(|alias| name.is_some_and(|name| name == alias.name))
        };
        // Options of `roce` itself may stand before the subcommand.
        let first = (1..line.len()).find(|&at| !line[at].as_encoded_bytes().starts_with(b"-"));
        let named = first.filter(|&at| line[at].as_encoded_bytes().starts_with(b"ib"));
        if line.first().and_then(|word| Path::new(word).file_name()) == Some(EXTCAP_NAME.as_ref()) {
            line[0] = "roce".into();
            line.insert(1, "extcap".into());
            return (None, line);
        }
        if let Some(alias) = line.first().and_then(find) {
            line[0] = "roce".into();
            line.splice(1..1, alias.words.iter().map(Into::into));
            return (Some(alias), line);
        }
        let Some((at, alias)) = named.and_then(|at| Some((at, find(&line[at])?))) else {
            return (None, line);
        };
        line.splice(at..=at, alias.words.iter().map(Into::into));
        (Some(alias), line)
    }

    /// Gives options of a parser the meaning that the program with this name gives them.
    pub(crate) fn adapt(self, command: Command) -> Command {
        if self.words[0] == "perf" {
            // Without HOST these programs listen.
            return command.mut_subcommand("perf", |perf| {
                ["announce", "clients"].into_iter().fold(perf, |perf, option| {
                    perf.mut_arg(option, |arg| arg.requires(Resettable::<Id>::Reset))
                })
            });
        }
        if self.words[0] != "pingpong" {
            return command;
        }
        let checks = self.name != "ibv_xsrq_pingpong";
        command.mut_subcommand("pingpong", |pingpong| {
            let pingpong = pingpong.mut_arg("connection", |arg| arg.short(None));
            match checks {
                true => pingpong.mut_arg("chk", |arg: Arg| arg.short('c')),
                false => pingpong,
            }
        })
    }

    /// Returns the words as a user would type them.
    pub(crate) fn meaning(self) -> String {
        let words = self.words.join(" ");
        match self.words[0] {
            "perf" => format!("roce {words}, and --listen without HOST"),
            _ => format!("roce {words}"),
        }
    }
}
