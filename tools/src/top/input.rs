//! Keys, and the view that they change.

use std::cmp::Ordering;

use softroce_cli::{SortKey, TopArgs};

use super::rates::{DeviceRow, QpRow, Rates};

/// A key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
}

/// Parses the bytes of a terminal.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// Bytes of a character that is not complete.
    rest: Vec<u8>,
}

/// Sequences of keys without a character.
const SEQUENCES: [(&[u8], Key); 8] = [
    (b"\x1b[A", Key::Up),
    (b"\x1b[B", Key::Down),
    (b"\x1bOA", Key::Up),
    (b"\x1bOB", Key::Down),
    (b"\x1b[5~", Key::PageUp),
    (b"\x1b[6~", Key::PageDown),
    (b"\x1b[H", Key::Home),
    (b"\x1b[1~", Key::Home),
];

/// Maximum length of a character in UTF-8.
const MAX_CHAR_BYTES: usize = 4;

impl Keys {
    /// Returns the keys in these bytes. A terminal sends the sequence of a key at once.
    pub(crate) fn parse(&mut self, bytes: &[u8]) -> Vec<Key> {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let (mut keys, mut at) = (Vec::new(), 0);
        while let Some(rest) = all.get(at..).filter(|rest| !rest.is_empty()) {
            let (key, len) = match key(rest) {
                Some(found) => found,
                None if rest.len() < MAX_CHAR_BYTES => {
                    self.rest = rest.to_vec();
                    break;
                }
                None => (None, 1),
            };
            keys.extend(key);
            at += len;
        }
        keys
    }
}

/// Returns the first key and the number of its bytes; `None` if its character is not complete or not valid.
fn key(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    if let Some((sequence, key)) =
        SEQUENCES.iter().find(|(sequence, _)| bytes.starts_with(sequence))
    {
        return Some((Some(*key), sequence.len()));
    }
    match bytes {
        [b'\r' | b'\n', ..] => Some((Some(Key::Enter), 1)),
        [0x7f | 0x08, ..] => Some((Some(Key::Backspace), 1)),
        [0x1b, b'[' | b'O', rest @ ..] => {
            // A key without a meaning here.
            let len = rest.iter().position(|byte| (0x40..0x7f).contains(byte));
            Some((None, 2 + len.map_or(rest.len(), |at| at + 1)))
        }
        [0x1b, ..] => Some((Some(Key::Escape), 1)),
        [0..0x20, ..] => Some((None, 1)),
        _ => {
            let chunk = bytes.get(..MAX_CHAR_BYTES).unwrap_or(bytes);
            let valid = match str::from_utf8(chunk) {
                Ok(text) => text,
                Err(error) => str::from_utf8(&chunk[..error.valid_up_to()]).unwrap_or_default(),
            };
            let first = valid.chars().next()?;
            Some((Some(Key::Char(first)), first.len_utf8()))
        }
    }
}

/// What the screen shows, and in which order.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) sort: SortKey,
    is_reversed: bool,
    pub(crate) filter: String,
    /// The filter is being typed.
    pub(crate) is_typing: bool,
    pub(crate) has_qps: bool,
    pub(crate) is_paused: bool,
    pub(crate) has_help: bool,
    pub(crate) is_over: bool,
    /// Number of lines above the first one that is shown.
    pub(crate) scroll: usize,
    /// Number of lines that the screen shows.
    pub(crate) page: usize,
}

/// Maximum length of a filter.
const MAX_FILTER_CHARS: usize = 64;

impl View {
    pub(crate) fn of(args: &TopArgs) -> Self {
        Self {
            sort: args.sort,
            is_reversed: false,
            filter: args.filter.clone(),
            is_typing: false,
            has_qps: true,
            is_paused: false,
            has_help: false,
            is_over: false,
            scroll: 0,
            page: 1,
        }
    }

    /// Handles a key.
    pub(crate) fn handle(&mut self, key: Key) {
        if self.is_typing {
            return self.edit(key);
        }
        if std::mem::take(&mut self.has_help) && key != Key::Char('q') {
            return;
        }
        match key {
            Key::Char('q') => self.is_over = true,
            Key::Char('?' | 'h') => self.has_help = true,
            Key::Char('s' | '>') => self.sort = self.sort.step(1),
            Key::Char('S' | '<') => self.sort = self.sort.step(-1),
            Key::Char('r') => self.is_reversed = !self.is_reversed,
            Key::Char('/') => self.is_typing = true,
            Key::Char('d') => self.has_qps = !self.has_qps,
            Key::Char(' ' | 'p') => self.is_paused = !self.is_paused,
            Key::Escape => self.filter.clear(),
            Key::Up | Key::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            Key::Down | Key::Char('j') => self.scroll = self.scroll.saturating_add(1),
            Key::PageUp => self.scroll = self.scroll.saturating_sub(self.page),
            Key::PageDown => self.scroll = self.scroll.saturating_add(self.page),
            Key::Home => self.scroll = 0,
            Key::Char(_) | Key::Enter | Key::Backspace => {}
        }
    }

    fn edit(&mut self, key: Key) {
        match key {
            Key::Char(c) if self.filter.chars().count() < MAX_FILTER_CHARS => self.filter.push(c),
            Key::Backspace => drop(self.filter.pop()),
            Key::Enter => self.is_typing = false,
            Key::Escape => {
                self.filter.clear();
                self.is_typing = false;
            }
            _ => {}
        }
        self.scroll = 0;
    }

    /// Returns the rows that match the filter, in order.
    pub(crate) fn select(&mut self, mut rows: Vec<DeviceRow>) -> Vec<DeviceRow> {
        let wanted = self.filter.to_lowercase();
        rows.retain_mut(|row| {
            if !device_text(row).contains(&wanted) {
                row.qps.retain(|qp| qp_text(qp).contains(&wanted));
                return !row.qps.is_empty();
            }
            true
        });
        let order = |a: &Rates, b: &Rates| {
            let order = compare(self.sort, a, b).reverse();
            if self.is_reversed { order.reverse() } else { order }
        };
        for row in &mut rows {
            row.qps.sort_by(|a, b| order(&a.rates, &b.rates));
            if !self.has_qps {
                row.qps.clear();
            }
        }
        rows.sort_by(|a, b| match self.sort {
            SortKey::Pid if self.is_reversed => b.pid.cmp(&a.pid),
            SortKey::Pid => a.pid.cmp(&b.pid),
            _ => order(&a.rates, &b.rates),
        });
        rows
    }
}

fn compare(key: SortKey, a: &Rates, b: &Rates) -> Ordering {
    let by = |of: fn(&Rates) -> f64| of(a).total_cmp(&of(b));
    match key {
        SortKey::Pid => Ordering::Equal,
        SortKey::Tx => by(|rates| rates.tx_bits_per_second),
        SortKey::Rx => by(|rates| rates.rx_bits_per_second),
        SortKey::Messages => by(|rates| rates.messages_per_second),
        SortKey::Size => by(|rates| rates.bytes_per_message),
        SortKey::Outstanding => a.outstanding_packets.cmp(&b.outstanding_packets),
        SortKey::Retransmitted => a.retransmitted.cmp(&b.retransmitted),
        SortKey::Rnr => a.rnr_naks.cmp(&b.rnr_naks),
        SortKey::Cnp => a.cnps.cmp(&b.cnps),
    }
}

fn device_text(row: &DeviceRow) -> String {
    format!("{} {} {} {} {}", row.pid, row.program, row.device, row.ip, row.via).to_lowercase()
}

fn qp_text(QpRow { status, .. }: &QpRow) -> String {
    let peer = status.peer.map_or(String::new(), |peer| peer.to_string());
    let (qp, peer_qp) = (status.qp, status.peer_qp.unwrap_or_default());
    format!("{} {} {qp} {qp:#08x} {peer} {peer_qp} {peer_qp:#08x}", status.qp_type, status.state)
        .to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_characters_and_sequences() {
        let mut keys = Keys::default();
        let found = keys.parse(b"q?\x1b[A\x1b[6~\r\x7f\x1b[15~\x01/\xc3");
        let expected =
            [Key::Char('q'), Key::Char('?'), Key::Up, Key::PageDown, Key::Enter, Key::Backspace];
        assert_eq!(found[..6], expected);
        assert_eq!(found[6..], [Key::Char('/')]);
        assert_eq!(keys.parse(b"\xbcx"), [Key::Char('ü'), Key::Char('x')]);
        assert_eq!(keys.parse(b"\x1b"), [Key::Escape]);
        assert_eq!(keys.parse(&[0xff; 8]).len(), 0);
    }

    #[test]
    fn keys_change_the_view() {
        let args = TopArgs {
            interval: 1,
            sort: SortKey::Pid,
            filter: String::new(),
            once: false,
            json: false,
        };
        let mut view = View::of(&args);
        let press = |view: &mut View, text: &str| {
            text.chars().for_each(|c| view.handle(Key::Char(c)));
        };
        press(&mut view, "ss");
        assert_eq!(view.sort, SortKey::Rx);
        press(&mut view, "SSS");
        assert_eq!(view.sort, SortKey::Cnp);
        press(&mut view, "/qd");
        view.handle(Key::Backspace);
        assert!(view.is_typing && view.filter == "q" && !view.is_over);
        view.handle(Key::Enter);
        press(&mut view, "?x");
        assert!(!view.has_help && view.filter == "q");
        press(&mut view, "d q");
        assert!(!view.has_qps && view.is_paused && view.is_over);
    }
}
