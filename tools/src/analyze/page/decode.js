"use strict";
// Series of numbers: unpacked when they are needed, and made coarser where many points share a pixel.

function bytesOf(base64) {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

// Reads integers of seven bits a byte, the lowest first. Shifts would cut them to 32 bits.
function integers(base64) {
  const bytes = bytesOf(base64);
  let at = 0;
  return () => {
    let value = 0, scale = 1;
    for (; at < bytes.length && bytes[at] > 127; at++, scale *= 128) value += (bytes[at] & 127) * scale;
    return value + (bytes[at++] ?? 0) * scale;
  };
}

const empty = (n, bin) => ({ n, bin, at: new Float64Array(n), low: new Float64Array(n),
  high: new Float64Array(n), points: new Float64Array(n), levels: new Map() });

// A trace is stored as time and lowest value, both less those of the point before, height, and number of points.
function unpack(trace) {
  const cells = empty(trace.count, trace.bin_ns), next = integers(trace.points);
  let at = 0, low = 0;
  for (let i = 0; i < cells.n; i++) {
    at += next();
    const change = next();
    low += change % 2 ? -(change - 1) / 2 : change / 2;
    cells.at[i] = at;
    cells.low[i] = low;
    cells.high[i] = low + next();
    cells.points[i] = next();
  }
  return cells;
}

// Bytes over time as rates in Gbit/s.
function unpackRates(bins) {
  const next = integers(bins.bytes);
  return { start: bins.start_ns, width: bins.bin_ns, values: Float64Array.from({ length: bins.count }, () => next() * 8 / bins.bin_ns) };
}

// Returns the first index whose time is not before t.
function from(cells, t) {
  let low = 0, high = cells.n;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (cells.at[middle] < t) low = middle + 1; else high = middle;
  }
  return low;
}

// Cells in sight, with one on either side. When there are more than `most`, those within a stretch of time become one cell
// with their extremes. A stretch is between half of the time in sight / `most` and all of it.
function inSight(cells, t0, t1, most) {
  const range = (of) => [of, Math.max(from(of, t0) - 1, 0), Math.min(from(of, t1) + 1, of.n)];
  const [, start, until] = range(cells);
  if (until - start <= most) return [cells, start, until];
  const level = Math.floor(Math.log2((t1 - t0) / most));
  if (!(2 ** level > (cells.bin ?? 0))) return [cells, start, until];
  if (!cells.levels.has(level)) cells.levels.set(level, coarser(cells, 2 ** level));
  return range(cells.levels.get(level));
}

function coarser(cells, width) {
  const made = empty(cells.n, width);
  let n = 0, before = NaN;
  for (let i = 0; i < cells.n; i++) {
    const bin = Math.floor(cells.at[i] / width);
    if (bin === before) {
      made.low[n - 1] = Math.min(made.low[n - 1], cells.low[i]);
      made.high[n - 1] = Math.max(made.high[n - 1], cells.high[i]);
      made.points[n - 1] += cells.points[i];
      continue;
    }
    before = bin;
    made.at[n] = cells.at[i];
    made.low[n] = cells.low[i];
    made.high[n] = cells.high[i];
    made.points[n++] = cells.points[i];
  }
  for (const name of ["at", "low", "high", "points"]) made[name] = made[name].slice(0, n);
  made.n = n;
  return made;
}
