//! perftest: every program, over every service and with every option that it has.

use super::both;

/// Programs for bandwidth, and programs for latency.
const BANDWIDTH: [&str; 4] = ["ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw"];
const LATENCY: [&str; 4] = ["ib_write_lat", "ib_read_lat", "ib_send_lat", "ib_atomic_lat"];

/// Runs a program on both sides; the client must print this number of results.
fn perftest(program: &str, options: &[&str], results: usize) {
    measured(&[&[program], options].concat(), results);
}

fn measured(command: &[&str], results: usize) {
    let [_, client] = both(command);
    // Rows of a table of numbers: bytes, iterations, and results.
    let is_result = |line: &&str| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.len() >= 4 && words.iter().all(|word| word.parse::<f64>().is_ok())
    };
    let found: Vec<_> = client.lines().filter(is_result).collect();
    assert_eq!(found.len(), results, "{command:?}: {client}");
}

/// Runs several programs, each for a moment.
fn briefly<'a>(programs: impl IntoIterator<Item = &'a str>, options: &[&str]) {
    for program in programs {
        perftest(program, &[&["-n", "200"], options].concat(), 1);
    }
}

fn all() -> impl Iterator<Item = &'static str> {
    BANDWIDTH.into_iter().chain(LATENCY)
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn over_reliable_connections() {
    briefly(all(), &[]);
    briefly(["ib_atomic_bw", "ib_atomic_lat"], &["-A", "CMP_AND_SWAP"]);
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn over_extended_reliable_connections() {
    briefly(all(), &["-c", "XRC"]);
    briefly(["ib_send_bw"], &["-c", "XRC", "-q", "8"]);
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn over_unreliable_services() {
    briefly(["ib_write_bw", "ib_write_lat", "ib_send_bw", "ib_send_lat"], &["-c", "UC"]);
    briefly(["ib_send_bw", "ib_send_lat"], &["-c", "UD"]);
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn through_shared_memory() {
    let services = [("ib_write_bw", "UC"), ("ib_send_lat", "UC"), ("ib_send_bw", "UD")];
    for (program, service) in all().map(|program| (program, "RC")).chain(services) {
        measured(&["env", "SOFTROCE_VIA=shm", program, "-n", "200", "-c", service], 1);
    }
    measured(&["env", "SOFTROCE_VIA=shm", "ib_send_lat", "-n", "200", "-e"], 1);
}

/// WRITEs have no events.
#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn with_events() {
    briefly(all().filter(|program| !program.contains("write")), &["-e"]);
    briefly(["ib_send_lat"], &["-e", "-c", "UD"]);
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn with_several_queue_pairs_and_both_ways() {
    briefly(BANDWIDTH, &["-q", "8"]);
    briefly(BANDWIDTH, &["-b"]);
    briefly(["ib_write_bw"], &["-q", "4", "-b"]);
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn with_inline_data_and_shared_receive_queues() {
    briefly(["ib_write_bw", "ib_write_lat", "ib_send_bw", "ib_send_lat"], &["-I", "64"]);
    briefly(["ib_send_bw", "ib_send_lat"], &["--use-srq"]);
}

#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn for_two_seconds() {
    for program in all() {
        perftest(program, &["-D", "2"], 1);
    }
}

/// From 2 bytes to 8 MiB. Before each row perftest measures the speed of the processor.
#[test]
#[ignore = "needs Debian's packages: tools/ci.sh dropin"]
fn of_every_size() {
    perftest("ib_write_bw", &["-a", "-n", "20"], 23);
    perftest("ib_read_bw", &["-a", "-n", "20"], 23);
}
