//! Network namespaces, which have any addresses, and pairs of a server and a client in one.

use std::path::Path;
use std::process::Command;

use super::text;
use crate::roce::{alone, scratch};

/// Returns the command that runs a script of bash in a network namespace of its own. There `$0` is `roce`, and arguments
/// follow.
pub(super) fn namespace(script: &str) -> Command {
    let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    let mut namespace = Command::new("unshare");
    namespace.arg(if is_root { "-n" } else { "-rn" });
    namespace.args(["bash", "-e", "-c", script, env!("CARGO_BIN_EXE_roce")]);
    for variable in softroce::runtime::VARIABLES {
        namespace.env_remove(variable.name);
    }
    namespace
}

/// Addresses of a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Network {
    /// The loopback addresses that the sides choose.
    #[default]
    Loopback,
    /// `fd00::1` and `fd00::2`, of the loopback interface.
    Ipv6,
    /// 10.9.8.1 and 10.9.8.2, of a virtual Ethernet link: libfabric uses no loopback interface.
    Ethernet,
}

/// Commands that make a link with the addresses of [`Network::Ethernet`].
pub(super) const ETHERNET: &str = "
ip link set lo up
ip link add near type veth peer name far
ip addr add 10.9.8.1/24 dev near
ip addr add 10.9.8.2/24 dev near
ip link set near up
ip link set far up
";

impl Network {
    /// Returns the commands that make the addresses.
    fn commands(self) -> &'static str {
        match self {
            Self::Loopback => "ip link set lo up",
            Self::Ipv6 => {
                "ip link set lo up\n\
                 ip addr add fd00::1/128 dev lo nodad\n\
                 ip addr add fd00::2/128 dev lo nodad"
            }
            Self::Ethernet => ETHERNET,
        }
    }

    /// Returns the options of `roce run` for the server and the client.
    fn options(self) -> [&'static str; 2] {
        match self {
            Self::Loopback => ["", ""],
            Self::Ipv6 => ["--ip=fd00::1", "--ip=fd00::2"],
            Self::Ethernet => ["--ip=10.9.8.1", "--ip=10.9.8.2"],
        }
    }
}

/// The sign that a server accepts clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Ready {
    /// Its device has a listener of the connection manager.
    #[default]
    Listener,
    /// It listens at a TCP port.
    Tcp(u16),
    /// It has joined an IPv4 group.
    Group(&'static str),
}

impl Ready {
    /// Returns the arguments of `ready.py`.
    fn arguments(self) -> String {
        match self {
            Self::Listener => "listener".to_owned(),
            Self::Tcp(port) => format!("tcp {port}"),
            Self::Group(address) => format!("group {address}"),
        }
    }
}

/// The end of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum End {
    /// It ends after its client, and must succeed.
    #[default]
    Alone,
    /// It ends by a signal once the client has ended. It has no check, because a signal ends that too.
    Signal(&'static str),
}

/// Runs the server, and once it is ready the client. Prints the output of the client, then that of the server.
const PAIR: &str = r#"
server=$1 client=$2 script=$3 ready=$4 file=$5 preload=$6 signal=$7
LD_PRELOAD=$preload "$0" run $server > "$file" 2>&1 & pid=$!
trap 'kill $pid 2> /dev/null || :; cat "$file"' EXIT
python3 "$script" $pid $ready
LD_PRELOAD=$preload "$0" run $client
[ -z "$signal" ] || kill -$signal $pid
wait $pid || [ -n "$signal" ]
"#;

/// How the packets of a program travel, and whether `roce run` checks them.
const WAYS: [&str; 3] = ["", "--via=shm", "--check"];

/// Attempts of a pair with a [`race`](Pair::race).
const MAX_ATTEMPTS: u32 = 20;

/// A server and a client in a network namespace of their own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pair<'a> {
    pub(super) server: &'a str,
    pub(super) client: &'a str,
    pub(super) network: Network,
    pub(super) ready: Ready,
    pub(super) end: End,
    /// A library to preload.
    pub(super) preload: &'a str,
    /// Lines of a side that fails by a race of its own although the server was ready: the pair runs again.
    pub(super) race: &'a [&'a str],
}

impl Pair<'_> {
    /// Runs the pair with options of `roce run`. Both sides must succeed. Returns what they print.
    pub(super) fn run(&self, options: &str) -> String {
        let (mut succeeds, mut said) = self.run_once(options);
        for _ in 1..MAX_ATTEMPTS {
            let is_race = self.race.iter().any(|race| said.contains(race));
            if succeeds || !is_race {
                break;
            }
            (succeeds, said) = self.run_once(options);
        }
        assert!(succeeds, "{options} {self:?}: {said}");
        said
    }

    /// Runs the pair over UDP, through shared memory, and with a check, which must find no violation. Returns what the
    /// sides print each time.
    pub(super) fn run_each_way(&self) -> [String; WAYS.len()] {
        WAYS.map(|way| {
            let said = self.run(way);
            let checked: Vec<_> =
                said.lines().filter(|line| line.contains(" violations, ")).collect();
            let sides = if self.end == End::Alone { 2 } else { 1 };
            assert!(way != "--check" || checked.len() >= sides, "{self:?}: {said}");
            let is_good = |line: &&str| line.contains(" 0 bad, 0 unknown; 0 violations, ");
            assert!(checked.iter().all(is_good), "{self:?}: {said}");
            said
        })
    }

    /// Returns whether both sides succeed, and what they print.
    pub(super) fn run_once(&self, options: &str) -> (bool, String) {
        // Two polling sides have the processors to themselves.
        let _alone = alone();
        let [server_options, client_options] = self.network.options();
        let (of_server, signal) = match self.end {
            End::Alone => (options, ""),
            End::Signal(signal) => (options.trim_start_matches("--check"), signal),
        };
        let side = |options: &str, address: &str, program: &str| {
            format!("{address} {options} -- timeout 60 {program}")
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dropin/ready.py");
        let mut pair = namespace(&[self.network.commands(), PAIR].join("\n"));
        pair.arg(side(of_server, server_options, self.server))
            .arg(side(options, client_options, self.client))
            .arg(script)
            .arg(self.ready.arguments())
            .arg(scratch("pair-server.txt"))
            .args([self.preload, signal]);
        let ended = pair.output().unwrap();
        (ended.status.success(), text(&ended.stdout) + &text(&ended.stderr))
    }
}
