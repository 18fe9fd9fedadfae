//! Counters of devices and queue pairs, for programs and for Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use softroce::port::impair::Impairments;
use softroce::verbs::*;
use tempfile::TempDir;

use crate::node::{Node, fresh_ip, open, open_with, single_attempt};

/// Returns the names and contents of the files in a directory.
fn files(directory: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    entries.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect()
}

#[test]
fn device_counters_are_the_sum_of_its_queue_pairs() {
    let (a, b) = Node::pair();
    let idle = a.pd.create_qp(&QpConfig::ud(&a.cq)).unwrap();
    a.run(SendRequest::write(1, a.mr.sge(..9000), b.mr.remote(0)));
    let mine = a.qp.counters().unwrap();
    assert_eq!((mine.writes_completed, mine.tx_packets), (1, 3));
    assert_eq!(b.qp.counters().unwrap().rx_write_requests, 1);
    assert_eq!(idle.counters().unwrap(), Counters::default());
    let device = a.ctx.counters().unwrap();
    assert_eq!(device.protocol, mine);
    let by_qp: BTreeMap<_, _> = device.by_qp.iter().copied().collect();
    assert_eq!(by_qp, [(a.qp.qpn(), mine), (idle.qpn(), Counters::default())].into());
    assert_eq!((device.port.tx_datagrams, device.link.link_downed), (3, 0));
    let Node { qp, ctx, .. } = a;
    drop((qp, idle));
    let after = ctx.counters().unwrap();
    assert_eq!((after.protocol, after.by_qp), (mine, Vec::new()));
}

/// Parses a line of the text format: metric, labels, value.
fn parsed(line: &str) -> (&str, Vec<&str>, u64) {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (metric, labels) = series.strip_suffix('}').unwrap().split_once('{').unwrap();
    assert!(metric.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_'));
    (metric, labels.split(',').collect(), value.parse().unwrap())
}

/// Each metric has one help line and one type line before its samples, and each sample occurs once.
#[test]
fn prometheus_text_is_well_formed_and_has_all_counters() {
    let (a, b) = Node::pair_on(open_with(OpenOptions::default().name("one\"of\\us")), open());
    a.run(SendRequest::write(1, a.mr.sge(..100), b.mr.remote(0)));
    let counters = a.ctx.counters().unwrap();
    let text = counters.prometheus();
    assert!(text.ends_with('\n'));
    let (mut metrics, mut series) = (BTreeSet::new(), BTreeMap::new());
    let mut lines = text.lines().peekable();
    while let Some(help) = lines.next() {
        let (metric, help) = help.strip_prefix("# HELP ").unwrap().split_once(' ').unwrap();
        assert!(!help.is_empty() && metrics.insert(metric.to_owned()), "{metric}");
        assert_eq!(lines.next(), Some(&*format!("# TYPE {metric} counter")));
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (of, labels, value) = parsed(line);
            assert_eq!(of, metric);
            assert!(series.insert((metric.to_owned(), labels.join(",")), value).is_none());
        }
    }
    let device = format!("device=\"one\\\"of\\\\us\",ip=\"{}\"", a.ctx.ip());
    let qp = format!("{device},qp=\"{}\"", a.qp.qpn());
    let metric = |prefix, name| format!("{prefix}_{name}_total");
    let of_device =
        counters.iter().map(|c| ((metric("softroce", c.name), device.clone()), c.value));
    let of_qp = counters.by_qp[0].1.iter();
    let of_qp = of_qp.map(|c| ((metric("softroce_qp", c.name), qp.clone()), c.value));
    assert_eq!(series, of_device.chain(of_qp).collect());
    assert_eq!(series[&(metric("softroce_qp", "writes_completed"), qp)], 1);
}

#[test]
fn device_writes_its_counters_to_a_file() {
    let directory = TempDir::new().unwrap();
    let lossy: Impairments = "loss=1".parse().unwrap();
    let ctx =
        open_with(OpenOptions::default().name("net/0").counters(directory.path()).impair(lossy));
    let name = format!("net_0-{}.prom", ctx.ip());
    // The file is readable as soon as the device is open, and the directory contains no other file.
    assert_eq!(
        files(directory.path()).into_keys().collect::<Vec<_>>(),
        std::slice::from_ref(&name)
    );
    let a = Node::on(ctx);
    let missing = Endpoint { gid: fresh_ip().into(), ..a.qp.endpoint() };
    let options = ConnectOptions { timeout: AckTimeout::new(1).unwrap(), ..single_attempt() };
    a.qp.connect(&missing, &options).unwrap();
    a.send(SendRequest::write(1, a.mr.sge(..8), a.mr.remote(0)));
    assert_eq!(a.end(), (1, WcStatus::RetryExcErr));
    let qpn = a.qp.qpn();
    let device = format!("device=\"net/0\",ip=\"{}\"", a.ctx.ip());
    drop(a);
    let files = files(directory.path());
    assert_eq!(files.keys().collect::<Vec<_>>(), [&name]);
    for series in [
        format!("softroce_retries_exceeded_total{{{device}}} 1"),
        format!("softroce_qp_retries_exceeded_total{{{device},qp=\"{qpn}\"}} 1"),
    ] {
        assert!(files[&name].lines().any(|line| line == series), "{series}: {}", files[&name]);
    }
}

#[test]
fn missing_counter_directory_is_an_error_with_its_name() {
    let options = OpenOptions::default().ip(fresh_ip()).counters("/nowhere/at all");
    let refused = Context::open(options).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "counters cannot be written to directory /nowhere/at all: No such file or directory (os error 2)"
    );
}

/// Page that lists every counter.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/COUNTERS.md");

/// The page has a row for each counter. With `SNAPSHOTS=write` this test writes the page.
#[test]
fn counters_page_lists_every_counter() {
    let page = fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once("|---|---|---|---|\n").unwrap();
    let (rows, after) = rest.split_once("\n\n").unwrap();
    let names = |counter: &Counter, driver: &str| {
        let named = counter.also.iter().filter(|(whose, _)| *whose == driver);
        named.map(|(_, name)| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    let expected: Vec<_> = open()
        .counters()
        .unwrap()
        .iter()
        .map(|c| {
            format!("| `{}` | {} | {} | {} |", c.name, c.help, names(&c, "rxe"), names(&c, "mlx5"))
        })
        .collect();
    let expected = expected.join("\n");
    if std::env::var_os("SNAPSHOTS").is_some_and(|what| what == "write") {
        fs::write(PAGE, format!("{before}|---|---|---|---|\n{expected}\n\n{after}")).unwrap();
    } else {
        let differs =
            rows.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
        assert_eq!(
            (differs, rows.lines().count()),
            (None, expected.lines().count()),
            "{PAGE} is old"
        );
    }
}
