//! Values over time, and how values are distributed, in memory that does not grow with the capture.

use hdrhistogram::Histogram;

/// Points in the order of their times.
///
/// Every point is kept until there are more than a limit. From then on time is cut into bins, and a
/// bin keeps its first time, its lowest and highest value and how many points it stands for. The
/// bins are 1.024 µs wide at first, and double when there are too many again.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Zero as long as every point is kept.
    width: u64,
    cells: Vec<Cell>,
}

/// A point, or what is kept of several within a bin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// Nanoseconds since the capture began.
    pub at: u64,
    /// The lowest value.
    pub low: u64,
    /// The highest.
    pub high: u64,
    /// How many points.
    pub points: u32,
}

/// The width of the first bins in nanoseconds.
const FIRST_BIN_NS: u64 = 1 << 10;

impl Trace {
    /// What is kept.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// The width of its bins in nanoseconds; `None` when every point is kept.
    pub fn bin(&self) -> Option<u64> {
        (self.width > 0).then_some(self.width)
    }

    /// Appends a point that stands for the values from `low` to `high`.
    pub(super) fn push(&mut self, at: u64, low: u64, high: u64, most: usize) {
        // So that the widest bin holds every time.
        let at = at.min(u64::MAX - 1);
        let cell = Cell { at, low, high, points: 1 };
        match self.cells.last_mut() {
            Some(last) if self.width > 0 && last.at / self.width == at / self.width => {
                last.join(&cell);
            }
            _ => {
                self.cells.push(cell);
                self.thin(most);
            }
        }
    }

    /// Widens the bins until there are no more than `most`, which is not zero.
    pub(super) fn thin(&mut self, most: usize) {
        while self.cells.len() > most {
            self.width = self.width.saturating_mul(2).max(FIRST_BIN_NS);
            let width = self.width;
            self.cells.dedup_by(|next, cell| {
                let same = next.at / width == cell.at / width;
                if same {
                    cell.join(next);
                }
                same
            });
        }
    }
}

impl Cell {
    fn join(&mut self, other: &Self) {
        self.low = self.low.min(other.low);
        self.high = self.high.max(other.high);
        self.points = self.points.saturating_add(other.points);
    }
}

/// A sum, or the highest value, in each of up to [`Bins::MAX_BINS`] equal stretches of time, which double
/// when there would be more of them.
#[derive(Clone, Debug)]
pub struct Bins {
    start: u64,
    width: u64,
    values: Vec<u64>,
    is_highest: bool,
}

impl Bins {
    /// How many there are at most.
    pub const MAX_BINS: usize = 512;

    pub(super) fn sums(start: u64) -> Self {
        Self { start, width: 1000, values: Vec::new(), is_highest: false }
    }

    pub(super) fn highest(start: u64) -> Self {
        Self { is_highest: true, ..Self::sums(start) }
    }

    /// When the first begins, in nanoseconds since the capture began.
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// How long each of them is, in nanoseconds.
    pub const fn width(&self) -> u64 {
        self.width
    }

    /// Their values. All bins after the last are zero.
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    pub(super) fn add(&mut self, at: u64, value: u64) {
        let since = at.saturating_sub(self.start);
        while since / self.width >= Self::MAX_BINS as u64 {
            self.width = self.width.saturating_mul(2);
            let highest = self.is_highest;
            let halves = self.values.chunks(2);
            self.values = halves
                .map(|two| two.iter().fold(0, |sum, value| combine(highest, sum, *value)))
                .collect();
        }
        let at = usize::try_from(since / self.width).unwrap_or(Self::MAX_BINS - 1);
        if self.values.len() <= at {
            self.values.resize(at + 1, 0);
        }
        if let Some(slot) = self.values.get_mut(at) {
            *slot = combine(self.is_highest, *slot, value);
        }
    }
}

fn combine(highest: bool, one: u64, other: u64) -> u64 {
    if highest { one.max(other) } else { one.saturating_add(other) }
}

/// How values are distributed: percentiles to 1 %, and the exact lowest, highest and mean.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    histogram: Option<Box<Histogram<u32>>>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

/// The reported percentiles.
pub const QUANTILES: [(&str, f64); 4] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999)];

/// Values beyond it are taken for it: 18 minutes, when they are nanoseconds.
const MAX_RECORDED_NS: u64 = 1 << 40;

impl Distribution {
    pub(super) fn record(&mut self, value: u64) {
        self.record_weighted(value, 1);
    }

    /// A value that counts as `weight` of them.
    pub(super) fn record_weighted(&mut self, value: u64, weight: u32) {
        let value = value.min(MAX_RECORDED_NS);
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += u64::from(weight);
        self.sum += u128::from(value) * u128::from(weight);
        if self.histogram.is_none() {
            self.histogram = Histogram::new(2).ok().map(Box::new);
        }
        if let Some(histogram) = &mut self.histogram {
            // It grows to hold any value up to `MAX_RECORDED_NS`, so this does not fail.
            let _ = histogram.record_n(value, weight);
        }
    }

    /// Adds the values of another.
    pub fn merge(&mut self, other: &Self) {
        let Some(others) = &other.histogram else { return };
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum += other.sum;
        match &mut self.histogram {
            // It grows to hold what the other holds.
            Some(histogram) => drop(histogram.add(&**others)),
            None => self.histogram = Some(others.clone()),
        }
    }

    /// How many values there are.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The lowest; zero without values, as everything below.
    pub const fn min(&self) -> u64 {
        self.min
    }

    /// The highest.
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// The mean.
    pub fn mean(&self) -> u64 {
        let mean = self.sum.checked_div(u128::from(self.count)).unwrap_or_default();
        u64::try_from(mean).unwrap_or(u64::MAX)
    }

    /// The value that a share of all does not exceed.
    pub fn quantile(&self, share: f64) -> u64 {
        let found = self.histogram.as_ref().map_or(0, |all| all.value_at_quantile(share));
        found.clamp(self.min, self.max)
    }

    /// The value in the middle.
    pub fn median(&self) -> u64 {
        self.quantile(0.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_keeps_every_point_up_to_its_limit_then_the_extremes_of_bins() {
        let mut trace = Trace::default();
        for n in 0..4 {
            trace.push(n * 600, 100 - n, 100 + n, 4);
        }
        assert_eq!((trace.cells().len(), trace.bin()), (4, None));
        trace.push(5 * 600, 7, 8, 4);
        // 0 and 600; 1200 and 1800; 3000.
        let cell = |at, low, high, points| Cell { at, low, high, points };
        let expected = [cell(0, 99, 101, 2), cell(1200, 97, 103, 2), cell(3000, 7, 8, 1)];
        assert_eq!((trace.cells(), trace.bin()), (&expected[..], Some(1024)));
    }

    #[test]
    fn a_trace_holds_its_limit_whatever_the_times_are() {
        let mut trace = Trace::default();
        for n in 0..100_000_u64 {
            trace.push(n.wrapping_mul(n).wrapping_mul(n) << 20, n, n, 16);
            assert!(trace.cells().len() <= 16);
        }
        let points: u64 = trace.cells().iter().map(|cell| u64::from(cell.points)).sum();
        assert_eq!(points, 100_000);
        trace.push(u64::MAX, 1, 1, 1);
        assert_eq!(trace.cells().len(), 1);
    }

    #[test]
    fn bins_double_and_keep_sums_and_maxima() {
        let (mut sums, mut highest) = (Bins::sums(5000), Bins::highest(5000));
        for n in 0..1500 {
            sums.add(5000 + n * 1000, 2);
            highest.add(5000 + n * 1000, n);
        }
        assert_eq!((sums.width(), sums.values().len()), (4000, 375));
        assert!(sums.values().iter().all(|sum| *sum == 8));
        assert_eq!(highest.values()[..3], [3, 7, 11]);
        sums.add(u64::MAX, 1);
        assert_eq!(sums.values().iter().sum::<u64>(), 3001);
        assert!(sums.values().len() <= Bins::MAX_BINS);
    }

    #[test]
    fn a_distribution_knows_its_extremes_exactly_and_percentiles_to_a_hundredth() {
        let mut all = Distribution::default();
        assert_eq!((all.median(), all.max(), all.mean(), all.count()), (0, 0, 0, 0));
        for n in 1..=10_000_u64 {
            all.record(n * 1003);
        }
        assert_eq!((all.min(), all.max(), all.mean()), (1003, 10_030_000, 5_015_501));
        for (share, exact) in [(0.5, 5_015_000.0), (0.999, 10_019_970.0)] {
            let found = all.quantile(share) as f64;
            assert!((found / exact - 1.0).abs() < 0.01, "{share}: {found}");
        }
        let mut more = Distribution::default();
        more.record(7);
        more.merge(&all);
        more.merge(&Distribution::default());
        assert_eq!((more.count(), more.min(), more.max()), (10_001, 7, 10_030_000));
        assert_eq!(more.median(), all.median());
        all.record(u64::MAX);
        assert_eq!(all.max(), 1 << 40);
    }
}
