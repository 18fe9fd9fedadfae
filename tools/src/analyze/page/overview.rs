//! The overview of a page: all flows over the time of the capture, as a heat map.

use serde_json::{Value, json};
use softroce_pcap::analyze::{Analysis, Bins, Flow, Line, Trace};

use super::packed::base64;

/// Number of columns: equal stretches of the capture's time.
const COLUMNS: usize = 240;
/// Fewest flows with an overview. The table shows fewer at a glance.
const MIN_FLOWS: usize = 9;

/// Highest level of traffic: the largest amount of payload in any cell. Each level below is half as much.
const MAX_TRAFFIC: u8 = 15;
/// Level of a connection without payload in this column.
const OPEN: u8 = 1;
/// Level of a column in which a timer ran the whole time. Lower levels, above [`MAX_RETRANSMITTED`], are shares of it.
const MAX_WAIT: u8 = 15;
/// Highest level of retransmissions, of which each level below is half as many.
const MAX_RETRANSMITTED: u8 = 7;

/// Returns the heat map, or null for few flows. A row is a flow, in the order of the flows. A cell is a byte: the level
/// of traffic, and sixteen times the level of trouble.
pub(super) fn of(analysis: &Analysis) -> Value {
    if analysis.flows.len() < MIN_FLOWS {
        return Value::Null;
    }
    let scale = Scale { duration: u128::from(analysis.duration.max(1)) };
    let payload: Vec<_> = analysis.flows.iter().map(|flow| scale.payload(flow)).collect();
    let most = payload.iter().flatten().copied().max().unwrap_or_default();
    let rows = analysis.flows.iter().zip(&payload).map(|(flow, payload)| {
        let mut row = scale.trouble(flow);
        let (first, last) =
            (scale.column(flow.first()), scale.column(flow.first() + flow.duration()));
        for (column, (cell, bytes)) in row.iter_mut().zip(payload).enumerate() {
            let is_open = (first..=last).contains(&column);
            *cell = *cell << 4 | traffic(*bytes, most).max(if is_open { OPEN } else { 0 });
        }
        base64(&row)
    });
    json!({ "columns": COLUMNS, "rows": rows.collect::<Vec<_>>() })
}

/// Returns the level of `bytes` when `most` is the largest amount.
fn traffic(bytes: u64, most: u64) -> u8 {
    let Some(halvings) = most.checked_div(bytes).and_then(u64::checked_ilog2) else { return 0 };
    let below = u8::try_from(halvings).unwrap_or(MAX_TRAFFIC);
    MAX_TRAFFIC.saturating_sub(below).max(OPEN + 1)
}

/// Columns over the time of a capture.
struct Scale {
    /// Nanoseconds, not zero.
    duration: u128,
}

impl Scale {
    /// Returns the column of a time; the last one for the end of the capture.
    fn column(&self, at: u64) -> usize {
        let column = u128::from(at) * COLUMNS as u128 / self.duration;
        usize::try_from(column).unwrap_or(COLUMNS).min(COLUMNS - 1)
    }

    /// Calls `add` for each column that a stretch of time touches, with the part of it within that column in
    /// 240ths of a nanosecond.
    fn split(&self, from: u64, to: u64, mut add: impl FnMut(usize, u128)) {
        let (from_scaled, to_scaled) =
            (u128::from(from) * COLUMNS as u128, u128::from(to) * COLUMNS as u128);
        for column in self.column(from)..=self.column(to) {
            let start = self.duration * column as u128;
            let part = to_scaled.min(start + self.duration).saturating_sub(from_scaled.max(start));
            add(column, part);
        }
    }

    /// Returns the payload of a flow in each column.
    fn payload(&self, flow: &Flow) -> Vec<u64> {
        let mut columns = vec![0_u64; COLUMNS];
        for bins in flow.streams.iter().map(|stream| &stream.over_time.carried) {
            self.add_bins(&mut columns, bins);
        }
        columns
    }

    fn add_bins(&self, columns: &mut [u64], bins: &Bins) {
        let width = u128::from(bins.width()) * COLUMNS as u128;
        let mut start = bins.start();
        for bytes in bins.values() {
            let end = start.saturating_add(bins.width());
            if *bytes > 0 {
                self.split(start, end, |column, part| {
                    let share = u128::from(*bytes) * part / width;
                    columns[column] =
                        columns[column].saturating_add(u64::try_from(share).unwrap_or_default());
                });
            }
            start = end;
        }
    }

    /// Returns the level of trouble in each column: retransmissions, or waits for a timer.
    fn trouble(&self, flow: &Flow) -> Vec<u8> {
        let mut retransmitted = vec![0_u64; COLUMNS];
        let mut waited = vec![0_u128; COLUMNS];
        for stream in &flow.streams {
            for line in [Line::AgainNak, Line::AgainTimeout, Line::AgainRnr, Line::AgainOther] {
                for cell in stream.trace(line).cells() {
                    retransmitted[self.column(cell.at)] += u64::from(cell.points);
                }
            }
            for line in [Line::WaitTimeout, Line::WaitRnr] {
                self.add_waits(&mut waited, stream.trace(line));
            }
        }
        let levels = retransmitted.iter().zip(&waited).map(|(packets, waited)| {
            let share = (waited * u128::from(MAX_WAIT - MAX_RETRANSMITTED)).div_ceil(self.duration);
            match u8::try_from(share) {
                Ok(0) => match packets.checked_ilog2() {
                    None => 0,
                    Some(doublings) => {
                        u8::try_from(doublings + 1).unwrap_or(u8::MAX).min(MAX_RETRANSMITTED)
                    }
                },
                Ok(share) => share.saturating_add(MAX_RETRANSMITTED).min(MAX_WAIT),
                Err(_) => MAX_WAIT,
            }
        });
        levels.collect()
    }

    /// Adds waits, of which a cell has begin and end as its values.
    fn add_waits(&self, columns: &mut [u128], waits: &Trace) {
        for cell in waits.cells() {
            self.split(cell.low, cell.high, |column, part| columns[column] += part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_of_traffic_is_half_of_the_next() {
        let levels = [1000, 501, 500, 250, 1, 0].map(|bytes| traffic(bytes, 1000));
        assert_eq!(levels, [15, 15, 14, 13, 6, 0]);
        assert_eq!((traffic(1, u64::MAX), traffic(0, 0)), (2, 0));
    }

    #[test]
    fn stretches_of_time_are_split_at_columns() {
        let scale = Scale { duration: 2400 };
        let parts = |from, to| {
            let mut parts = Vec::new();
            scale.split(from, to, |column, part| parts.push((column, part / 240)));
            parts
        };
        assert_eq!(parts(0, 5), [(0, 5)]);
        assert_eq!(parts(7, 25), [(0, 3), (1, 10), (2, 5)]);
        // The part behind the end belongs to no column.
        assert_eq!(parts(2395, 2500), [(239, 5)]);
        assert_eq!(scale.column(u64::MAX), 239);
    }
}
