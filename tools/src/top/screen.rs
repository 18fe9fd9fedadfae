//! Lines of the screen.

use std::fmt::Write;

use softroce_cli::SortKey;

use crate::output::{Paint, Palette};

use super::input::View;
use super::rates::{DeviceRow, QpRow, Rates};

/// Width of the table with the narrowest first column.
const TABLE_WIDTH: usize = 80;

/// Width of the column of names in a table of [`TABLE_WIDTH`].
const NAME_WIDTH: usize = 17;

/// Columns behind the name: heading, width and sort key.
const COLUMNS: [(&str, usize, Option<SortKey>); 10] = [
    ("KIND", 4, None),
    ("STATE", 5, None),
    ("TXb/s", 5, Some(SortKey::Tx)),
    ("RXb/s", 5, Some(SortKey::Rx)),
    ("MSG/s", 5, Some(SortKey::Messages)),
    ("SIZE", 5, Some(SortKey::Size)),
    ("OUT", 4, Some(SortKey::Outstanding)),
    ("RETR", 4, Some(SortKey::Retransmitted)),
    ("RNR", 4, Some(SortKey::Rnr)),
    ("CNP", 4, Some(SortKey::Cnp)),
];

/// Help, which replaces the table.
const HELP: [&str; 18] = [
    "Keys",
    "  q        quit                          ?  this help",
    "  s  S     next, previous sort key       r  reverse the order",
    "  /        filter; Enter ends it, Escape clears it",
    "  d        hide or show queue pairs      space  pause",
    "  arrows, PgUp, PgDn, Home               scroll",
    "",
    "Columns",
    "  PID      process and its program; below it, queue pair > peer:queue pair",
    "  KIND     kind of port; transport of a queue pair",
    "  STATE    number of queue pairs; state of a queue pair",
    "  TX RX    bits of UDP payload per second",
    "  MSG SIZE messages per second, and mean bytes of UDP payload of each",
    "  OUT      request packets without acknowledgement",
    "  RETR     packets retransmitted since the start",
    "  RNR      RNR NAKs sent and received since the start",
    "  CNP      congestion notification packets received since the start",
    "  Numbers that have grown in the last interval are colored.",
];

/// A part of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Part {
    text: String,
    paint: Option<Paint>,
}

/// A line of the screen.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Line(Vec<Part>);

impl Line {
    fn plain(text: impl Into<String>) -> Self {
        Self(vec![Part { text: text.into(), paint: None }])
    }

    fn painted(text: impl Into<String>, paint: Paint) -> Self {
        Self(vec![Part { text: text.into(), paint: Some(paint) }])
    }

    fn push(&mut self, text: String, paint: Option<Paint>) {
        self.0.push(Part { text, paint });
    }

    /// Returns the text with colors.
    pub(crate) fn text(&self, palette: Palette) -> String {
        let mut line = String::new();
        for Part { text, paint } in &self.0 {
            // A string takes whatever is written to it.
            let _ = match paint {
                Some(paint) => write!(line, "{}", palette.paint(*paint, text)),
                None => write!(line, "{text}"),
            };
        }
        line
    }

    /// Cuts the line behind `width` characters.
    fn cut(mut self, width: usize) -> Self {
        let mut left = width;
        for part in &mut self.0 {
            part.text = part.text.chars().take(left).collect();
            left -= part.text.chars().count();
        }
        self
    }
}

/// Returns the lines of a screen of this size.
pub(crate) fn screen(
    devices: &[DeviceRow],
    view: &mut View,
    width: usize,
    height: usize,
) -> Vec<Line> {
    let mut lines = vec![title(devices, view)];
    if view.has_help {
        lines.extend(HELP.map(Line::plain));
    } else {
        let mut table = table(devices, view.has_qps, Some((view.sort, width))).into_iter();
        lines.extend(table.next());
        view.page = height.saturating_sub(lines.len()).max(1);
        view.scroll = view.scroll.min(table.len().saturating_sub(view.page));
        if devices.is_empty() {
            lines.push(Line::plain(match view.filter.is_empty() {
                true => "No program of this user has a softroce device here.",
                false => "No device or queue pair matches the filter.",
            }));
        }
        lines.extend(table.skip(view.scroll).take(view.page));
    }
    lines.truncate(height);
    lines.into_iter().map(|line| line.cut(width)).collect()
}

fn title(devices: &[DeviceRow], view: &View) -> Line {
    let qps: usize = devices.iter().map(|device| device.qps.len()).sum();
    let some = |count: usize, what: &str| {
        let s = if count == 1 { "" } else { "s" };
        format!("{count} {what}{s}")
    };
    let mut title = format!("roce top: {}", some(devices.len(), "device"));
    if view.has_qps {
        title.push_str(&format!(", {}", some(qps, "queue pair")));
    }
    title.push_str(match (view.is_paused, view.has_help) {
        (_, true) => "   any key returns",
        (true, _) => "   paused",
        _ => "   q quits, ? helps",
    });
    if view.is_typing {
        title.push_str(&format!("   filter: {}_", view.filter));
    } else if !view.filter.is_empty() {
        title.push_str(&format!("   filter: {}", view.filter));
    }
    Line::painted(title, Paint::Name)
}

/// Returns the heading and the lines of the table; the column that it is sorted by is marked. The first column takes
/// what a screen is wider than the table.
pub(crate) fn table(
    devices: &[DeviceRow],
    has_qps: bool,
    sorted: Option<(SortKey, usize)>,
) -> Vec<Line> {
    let width = sorted.map_or(TABLE_WIDTH, |(_, width)| width.max(TABLE_WIDTH));
    let name_width = NAME_WIDTH + width - TABLE_WIDTH;
    let sort = sorted.map(|(sort, _)| sort);
    let mut heading = Line::default();
    let first = format!("{:>7} {:<name_width$}", "PID", "PROGRAM");
    heading.push(first, paint_heading(sort == Some(SortKey::Pid)));
    for (name, width, key) in COLUMNS {
        heading.push(" ".into(), None);
        heading.push(cell(name, width), paint_heading(key.is_some() && key == sort));
    }
    let mut lines = vec![heading];
    for device in devices {
        let place = format!("{} {}", device.program, device.ip);
        let name = format!("{:>7} {}", device.pid, fit(&place, name_width));
        let state = match device.qps.len() {
            _ if !has_qps => String::new(),
            count => format!("{count} qp"),
        };
        lines.push(row(name, [&device.via, &state], &device.rates, Some(Paint::Name)));
        for qp in &device.qps {
            let name = format!("{:>7} {}", "", fit(&qp_name(qp), name_width));
            lines.push(row(name, [&qp.status.qp_type, &qp.status.state], &qp.rates, None));
        }
    }
    lines
}

fn paint_heading(is_sorted: bool) -> Option<Paint> {
    Some(if is_sorted { Paint::Event } else { Paint::Heading })
}

fn qp_name(QpRow { status, .. }: &QpRow) -> String {
    match (status.peer, status.peer_qp) {
        (Some(peer), Some(qp)) => format!("{:#x} > {peer}:{qp:#x}", status.qp),
        _ => format!("{:#x}", status.qp),
    }
}

fn row(name: String, [kind, state]: [&str; 2], rates: &Rates, paint: Option<Paint>) -> Line {
    let mut line = Line::default();
    line.push(name, paint);
    let numbers = [
        rates.tx_bits_per_second,
        rates.rx_bits_per_second,
        rates.messages_per_second,
        rates.bytes_per_message,
        rates.outstanding_packets as f64,
        rates.retransmitted as f64,
        rates.rnr_naks as f64,
        rates.cnps as f64,
    ];
    let words = [kind, state].map(|word| word.to_owned()).into_iter();
    let mut cells = words.chain(numbers.map(short));
    let [retransmitted, rnr, cnp] = rates.grown;
    for (name, width, _) in COLUMNS {
        let is_grown = match name {
            "RETR" => retransmitted,
            "RNR" => rnr,
            "CNP" => cnp,
            _ => false,
        };
        line.push(" ".into(), None);
        let text = cells.next().unwrap_or_default();
        line.push(cell(&text, width), is_grown.then_some(Paint::Caution));
    }
    line
}

/// Returns a text of this width, at its right end; a longer one is cut.
fn cell(text: &str, width: usize) -> String {
    let cut: String = text.chars().take(width).collect();
    format!("{cut:>width$}")
}

/// Returns a text of this width, at its left end; a longer one ends with an ellipsis. Control characters are replaced.
fn fit(text: &str, width: usize) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    if text.chars().count() <= width {
        return format!("{text:<width$}");
    }
    let cut: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{cut}…")
}

/// Returns a number in four characters: 0, 999, 1.2k, 12k, 123k, 1.2M.
pub(super) fn short(value: f64) -> String {
    let mut value = value;
    for unit in ["", "k", "M", "G", "T", "P"] {
        if unit.is_empty() && value < 999.5 {
            return format!("{value:.0}");
        }
        if value < 9.95 {
            return format!("{value:.1}{unit}");
        }
        if value < 999.5 {
            return format!("{value:.0}{unit}");
        }
        value /= 1000.0;
    }
    "lots".into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::live::QpStatus;
    use softroce_cli::TopArgs;

    fn rates(scale: f64) -> Rates {
        Rates {
            tx_bits_per_second: 1.25e9 * scale,
            rx_bits_per_second: 3e6 * scale,
            messages_per_second: 38_147.0,
            bytes_per_message: 4136.0,
            outstanding_packets: 12,
            posted_sends: 3,
            retransmitted: 1234,
            rnr_naks: 0,
            cnps: 7,
            grown: [true, false, false],
        }
    }

    fn devices() -> Vec<DeviceRow> {
        let qp = |number, peer: Option<&str>| QpRow {
            status: QpStatus {
                qp: number,
                qp_type: if peer.is_some() { "RC" } else { "UD" }.into(),
                state: "RTS".into(),
                peer: peer.map(|ip| ip.parse().unwrap()),
                peer_qp: peer.map(|_| 0x12),
                posted_sends: 3,
                outstanding_packets: 12,
                counters: BTreeMap::new(),
            },
            rates: rates(f64::from(number)),
        };
        let device = |pid, program: &str, ip: &str, qps| DeviceRow {
            pid,
            program: program.into(),
            device: "softroce0".into(),
            ip: ip.parse().unwrap(),
            via: "udp".into(),
            shards: 1,
            captures: 0,
            rates: rates(f64::from(pid)),
            counters: BTreeMap::new(),
            listeners: Vec::new(),
            qps,
        };
        vec![
            device(1, "ib_write_bw", "127.0.0.1", vec![qp(1, Some("10.0.0.2")), qp(2, None)]),
            device(3, "evil\u{1b}[2J", "fd00::1", vec![]),
        ]
    }

    fn view(filter: &str) -> View {
        View::of(&TopArgs {
            interval: 1,
            sort: SortKey::Tx,
            filter: filter.into(),
            once: false,
            json: false,
        })
    }

    fn shown(view: &mut View, height: usize) -> Vec<String> {
        let rows = view.select(devices());
        let lines = screen(&rows, view, 80, height);
        lines.iter().map(|line| line.text(Palette::PLAIN)).collect()
    }

    #[test]
    fn screen_fits_80_by_24() {
        let lines = shown(&mut view(""), 24);
        let expected = [
            "roce top: 2 devices, 2 queue pairs   q quits, ? helps",
            "    PID PROGRAM           KIND STATE TXb/s RXb/s MSG/s  SIZE  OUT RETR  RNR  CNP",
            "      3 evil?[2J fd00::1   udp  0 qp  3.8G  9.0M   38k  4.1k   12 1.2k    0    7",
            "      1 ib_write_bw 127.…  udp  2 qp  1.2G  3.0M   38k  4.1k   12 1.2k    0    7",
            "        0x2                 UD   RTS  2.5G  6.0M   38k  4.1k   12 1.2k    0    7",
            "        0x1 > 10.0.0.2:0…   RC   RTS  1.2G  3.0M   38k  4.1k   12 1.2k    0    7",
        ];
        assert_eq!(lines, expected);
        let mut help = view("");
        help.has_help = true;
        for lines in [lines, shown(&mut help, 24)] {
            assert!(lines.len() <= 24 && lines.iter().all(|line| line.chars().count() <= 80));
        }
    }

    #[test]
    fn filter_keeps_devices_and_queue_pairs_with_the_text() {
        let first_words = |filter: &str| {
            let lines = shown(&mut view(filter), 24).into_iter().skip(2);
            let word = |line: String| line.split_whitespace().next().unwrap_or_default().to_owned();
            lines.map(word).collect::<Vec<_>>()
        };
        assert_eq!(first_words("WRITE"), ["1", "0x2", "0x1"]);
        assert_eq!(first_words("10.0.0.2"), ["1", "0x1"]);
        assert_eq!(first_words("fd00"), ["3"]);
        assert_eq!(first_words("nothing"), ["No"]);
    }

    #[test]
    fn scrolling_ends_with_the_last_line() {
        let mut view = view("");
        view.scroll = 100;
        let lines = shown(&mut view, 4);
        assert_eq!((lines.len(), view.scroll), (4, 2));
        assert!(lines[3].contains("0x1 > 10.0.0.2"));
        assert_eq!(shown(&mut view, 1).len(), 1);
    }

    #[test]
    fn numbers_have_four_characters() {
        let cases = [
            (0.0, "0"),
            (999.4, "999"),
            (999.6, "1.0k"),
            (9949.0, "9.9k"),
            (9951.0, "10k"),
            (999_400.0, "999k"),
            (1e18, "lots"),
        ];
        for (value, expected) in cases {
            assert_eq!(short(value), expected, "{value}");
        }
    }
}
