//! Resource usage of a process, and names it leaves in the system, and whether they grow.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// A measurement that must not grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Measurement {
    pub(crate) name: &'static str,
    /// Permitted increase over the first value.
    pub(crate) tolerance: i64,
    pub(crate) value: i64,
}

/// All measurements at one time.
pub(crate) type Measurements = Vec<Measurement>;

const fn measurement(name: &'static str, tolerance: i64, value: i64) -> Measurement {
    Measurement { name, tolerance, value }
}

/// Returns the measurements of this process. The allocator keeps freed memory and maps more for each thread, so
/// mappings and resident memory vary.
pub(crate) fn of_this_process() -> Measurements {
    // Reading the directory needs a descriptor.
    let descriptors = count("/proc/self/fd") - 1;
    vec![
        measurement("descriptors", 0, descriptors),
        measurement("threads", 0, count("/proc/self/task")),
        measurement("mappings", 24, lines("/proc/self/maps").count() as i64),
        measurement("resident KiB", 16 << 10, sum("/proc/self/smaps_rollup", "Rss:")),
        measurement("proportional KiB", 16 << 10, sum("/proc/self/smaps_rollup", "Pss:")),
    ]
}

/// SystemNames where programs may leave names behind.
pub(crate) struct SystemNames {
    addresses: BTreeSet<Ipv4Addr>,
    folders: Vec<PathBuf>,
}

impl SystemNames {
    /// Creates the places of programs with devices at these addresses and files below these directories.
    pub(crate) fn new(
        addresses: impl IntoIterator<Item = Ipv4Addr>,
        folders: impl IntoIterator<Item = PathBuf>,
    ) -> Self {
        Self { addresses: addresses.into_iter().collect(), folders: folders.into_iter().collect() }
    }

    /// Measures the names left by any process.
    pub(crate) fn measure(&self) -> Measurements {
        let shm = names_below(Path::new("/dev/shm"));
        vec![
            measurement("UDP sockets", 0, self.udp_sockets()),
            measurement("abstract names", 0, self.abstract_names()),
            measurement(
                "files",
                0,
                self.folders.iter().map(|path| names_below(path).len()).sum::<usize>() as i64,
            ),
            measurement(
                "names in /dev/shm",
                0,
                shm.iter().filter(|name| name.contains("roce")).count() as i64,
            ),
        ]
    }

    /// Counts rows such as `  12: 0100007F:12B7 00000000:0000 07 …`.
    fn udp_sockets(&self) -> i64 {
        let is_ours = |line: &String| {
            let local = line.split_whitespace().nth(1).unwrap_or_default();
            let address = local.split(':').next().unwrap_or_default();
            let address = u32::from_str_radix(address, 16).map(|bits| bits.to_ne_bytes());
            address.is_ok_and(|bytes| self.addresses.contains(&Ipv4Addr::from(bytes)))
        };
        lines("/proc/net/udp").filter(is_ours).count() as i64
    }

    /// Counts rows that end with a name such as `@softroce/127.0.0.1/shm`.
    fn abstract_names(&self) -> i64 {
        let is_ours = |line: &String| {
            let name = line.rsplit_once("@softroce/").map(|(_, name)| name);
            let address = name.and_then(|name| name.split('/').next()?.parse().ok());
            address.is_some_and(|address| self.addresses.contains(&address))
        };
        lines("/proc/net/unix").filter(is_ours).count() as i64
    }
}

fn lines(path: &str) -> impl Iterator<Item = String> {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().map(str::to_owned).collect::<Vec<_>>().into_iter()
}

fn count(directory: &str) -> i64 {
    fs::read_dir(directory).unwrap().count() as i64
}

/// Returns the number after a word.
fn sum(path: &str, word: &str) -> i64 {
    let line = lines(path).find(|line| line.starts_with(word)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Returns the paths of all files below a directory.
pub(crate) fn names_below(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        found.push(entry.path().display().to_string());
        if entry.file_type().is_ok_and(|file_type| file_type.is_dir()) {
            found.extend(names_below(&entry.path()));
        }
    }
    found
}

/// Measurements of one program, the first of them after warm-up.
#[derive(Default)]
pub(crate) struct MeasurementSeries(Vec<(String, Measurements)>);

impl MeasurementSeries {
    pub(crate) fn push(&mut self, when: impl Into<String>, census: Measurements) {
        self.0.push((when.into(), census));
    }

    /// Returns the measurements that exceed their first value by more than their tolerance.
    pub(crate) fn grown(&self) -> Vec<String> {
        let (Some((_, first)), Some((_, last))) = (self.0.first(), self.0.last()) else {
            return Vec::new();
        };
        grown(first, last)
    }

    /// Returns a table with a row per measurement and a column per time.
    pub(crate) fn table(&self) -> String {
        let mut table = format!("{:<20}", "");
        for (when, _) in &self.0 {
            write!(table, "{when:>14}").unwrap();
        }
        writeln!(table, "{:>14}", "may grow by").unwrap();
        for (row, figure) in self.0.last().map_or(&[][..], |(_, last)| last).iter().enumerate() {
            write!(table, "{:<20}", figure.name).unwrap();
            for (_, census) in &self.0 {
                write!(table, "{:>14}", census[row].value).unwrap();
            }
            writeln!(table, "{:>14}", figure.tolerance).unwrap();
        }
        table
    }
}

/// Returns the measurements of `last` that exceed those of `first` by more than their tolerance.
pub(crate) fn grown(first: &[Measurement], last: &[Measurement]) -> Vec<String> {
    let pairs = first.iter().zip(last);
    let pairs = pairs.filter(|(first, last)| last.value > first.value + last.tolerance);
    pairs
        .map(|(first, last)| format!("{}: {} to {}", first.name, first.value, last.value))
        .collect()
}
