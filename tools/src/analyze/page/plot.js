"use strict";
// Charts over time that share what is in sight, drawn on canvases. Times are nanoseconds since the
// capture began.

// Kinds of points over PSNs: how each is drawn, and what it is called.
const KINDS = [
  ["read", "bar", "READ request"],
  ["sent", "bar", "sent"],
  ["response", "bar", "READ answer"],
  ["acknowledged", "step", "acknowledged"],
  ["again_nak", "bar", "again, for a NAK"],
  ["again_timeout", "bar", "again, timeout"],
  ["again_rnr", "bar", "again, RNR"],
  ["again_other", "bar", "again, why?"],
  ["astray", "bar", "overtaken or doubled"],
  ["nak", "cross", "NAK"],
  ["rnr", "diamond", "RNR NAK"],
  ["cnp", "down", "CNP"],
  ["marked", "up", "ECN mark"],
];
const WAITS = [["wait_timeout", "timeout"], ["wait_rnr", "receiver not ready"]];
const SPENT = {
  "sending": ["sending"], "receiving": ["receiving"], "waiting for answers": ["waiting", "dim"],
  "nothing under way": ["idle", "dim"], "retransmitting": ["repeating"], "timeouts": ["timeouts"],
  "receiver not ready": ["notready"],
};

// What is shown: a stream, a stretch of time, and a marked moment of it.
const state = { flow: 0, stream: 0, traces: {}, findings: [], base: 0, first: 0, last: 1, t0: 0, t1: 1, mark: null, chosen: null,
  hidden: new Set(), charts: [] };

function choose(flow, stream) {
  const chosen = analysis.flows[flow]?.streams[stream];
  if (!chosen) return;
  Object.assign(state, { flow, stream, traces: {}, mark: null });
  for (const [name, trace] of Object.entries(chosen.series.traces)) state.traces[name] = unpack(trace);
  state.findings = findingsOf(state.traces);
  const firsts = ["sent", "read"].map((name) => state.traces[name]).filter((cells) => cells?.n);
  state.base = firsts.length ? Math.min(...firsts.map((cells) => cells.low[0])) : 0;
  state.first = chosen.first_s * 1e9;
  state.last = Math.max(chosen.last_s * 1e9, state.first + 1000);
  state.hidden.clear();
  describe(analysis.flows[flow], chosen);
  listFindings();
  makeCharts(chosen);
  showAll();
}

// ---- charts

// Whose values are PSNs is shown from the first one on; no number is lost in the tip.
const sequenceChart = () => ({
  title: [["PSN, packets since the first", "text"]], height: 430, ticks: packets, least: 1,
  kinds: KINDS.map(([name, how]) => ({ name, how, cells: state.traces[name] })),
  value: (v) => v - state.base,
  tip: (kind, cells, i) => {
    const psn = (v) => v % 2 ** 24;
    const [low, high] = [cells.low[i], cells.high[i]];
    const what = KINDS.find(([name]) => name === kind.name)[2];
    const which = low === high ? `PSN ${psn(low)}` : `PSN ${psn(low)} to ${psn(high)}`;
    return `${what}: ${which}${many(cells, i)}\n${packets(low - state.base)} after the first`;
  },
});
function binsChart(title, ticks, series) {
  return { title, height: 130, ticks, zero: true, value: (v) => v, bins: series };
}
function pointsChart(title, ticks, names, labels, options) {
  return { title, ticks, height: 150, value: (v) => v, ...options,
    kinds: names.map((name) => ({ name, how: options.how, cells: state.traces[name] })),
    tip: (kind, cells, i) => {
      const [low, high] = [cells.low[i], cells.high[i]];
      const range = low === high ? ticks(low) : `${ticks(low)} to ${ticks(high)}`;
      return `${labels[kind.name]}: ${range}${many(cells, i)}`;
    } };
}
const many = (cells, i) => cells.points[i] > 1 ? ` (${cells.points[i]} of them)` : "";

function makeCharts(stream) {
  const rates = [["carried", "on the wire"], ["delivered", "goodput"]];
  const charts = [
    sequenceChart(),
    binsChart([["goodput", "delivered"], [" and all payload on the wire", "carried"]], rate,
      rates.map(([name, label]) => ({ name, label, ...unpackRates(stream.series[name]) }))),
    pointsChart([["bytes in flight", "in_flight"]], size, ["in_flight"], { in_flight: "in flight" },
      { how: "area", zero: true, binary: true }),
    pointsChart([["latency of messages", "latency"], [" and round trip of acknowledgements", "ack_rtt"]], span, ["latency", "ack_rtt"],
      { latency: "message", ack_rtt: "ACK round trip" }, { how: "dot", log: true }),
  ];
  const holds = (chart) => (chart.bins ?? chart.kinds).some((s) => chart.bins ? s.values.length : s.cells?.n);
  state.charts = charts.filter(holds);
  byId("charts").replaceChildren(...state.charts.map((chart) => {
    chart.canvas = node("canvas", { ariaLabel: `${chart.title.map(([text]) => text).join("")} over time; the tables have the figures` });
    chart.canvas.setAttribute("role", "img");
    chart.canvas.style.height = `${chart.height}px`;
    listen(chart);
    return chart.canvas;
  }), byId("cursor"), byId("selection"));
  const legend = KINDS.filter(([name]) => state.traces[name]?.n).map(([name, , label]) => {
    const patch = node("i", {});
    patch.style.background = `var(--${name})`;
    const button = node("button", { title: "show or hide", ariaPressed: "true" }, patch, label);
    button.onclick = () => {
      state.hidden.has(name) ? state.hidden.delete(name) : state.hidden.add(name);
      button.ariaPressed = String(!button.classList.toggle("off"));
      draw();
    };
    return button;
  });
  byId("legend").replaceChildren(...legend);
}

const LEFT = 78, RIGHT = 8, TOP = 20, BOTTOM = 20;
// Colors by name, until the theme changes.
const colors = new Map();
function css(name) {
  if (!colors.has(name)) colors.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return colors.get(name);
}

// Lowest and highest value in sight, with room around them.
function extent(chart) {
  let low = Infinity, high = -Infinity;
  const take = (a, b) => { low = Math.min(low, a); high = Math.max(high, b); };
  for (const kind of chart.kinds ?? []) {
    if (!kind.sight || state.hidden.has(kind.name)) continue;
    const [cells, start, until] = kind.sight;
    for (let i = start; i < until; i++) {
      if (cells.at[i] >= state.t0 && cells.at[i] <= state.t1) take(chart.value(cells.low[i]), chart.value(cells.high[i]));
    }
    // A line goes on from before.
    if (start < until && cells.at[start] < state.t0 && (kind.how === "step" || kind.how === "area")) take(chart.value(cells.high[start]), chart.value(cells.high[start]));
  }
  for (const s of chart.bins ?? []) {
    for (let i = 0; i < s.values.length; i++) {
      const t = s.start + i * s.width;
      if (t + s.width >= state.t0 && t <= state.t1) take(s.values[i], s.values[i]);
    }
  }
  if (low > high) return chart.log ? [1, 10] : [0, 1];
  // What takes next to no time would press the rest together.
  if (chart.log) return [Math.max(low, high / 1e5, 1) / 1.5, Math.max(high, 2) * 1.5];
  if (chart.zero) return [0, high * 1.08 || 1];
  const room = Math.max((high - low) * 0.04, 0.8);
  return [low - room, high + 1 + room];
}

// Places for ticks: 1, 2 or 5 times a power of ten,
// or for bytes powers of two.
function* ticks(low, high, about, binary, least = 0) {
  const raw = Math.max((high - low) / about, least);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = binary ? 2 ** Math.ceil(Math.log2(raw)) : power * [1, 2, 5, 10].find((m) => m * power >= raw);
  for (let i = Math.ceil(low / step); i * step <= high; i++) yield i * step;
}
function* decades(low, high) {
  for (let p = Math.floor(Math.log10(low)); p <= Math.log10(high); p++) {
    if (10 ** p >= low) yield 10 ** p;
  }
}

// Draws before the browser shows its next frame, however often it is called until then.
let isDue = false;
function draw() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => { if (isDue) drawNow(); });
}
function drawNow() {
  isDue = false;
  for (const chart of state.charts) drawChart(chart);
  drawOverview();
  const [t0, t1] = [Math.max(state.t0, state.first), Math.min(state.t1, state.last)].map((t) => t - state.first);
  byId("range").textContent = `${exact(t0)} to ${exact(t1)} after the first packet`;
}

// A time, to a thousandth of what is in sight.
const exact = (ns) => moment(ns, (state.t1 - state.t0) / 1000);

// An empty canvas with as many pixels as the screen has there, or twice as many for paper, and its size as the page
// measures it.
function surface(canvas) {
  const isPaper = document.documentElement.classList.contains("paper");
  const ratio = isPaper ? 2 : devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across || canvas.height !== down) Object.assign(canvas, { width: across, height: down });
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, width, height);
  return { g, width, height };
}

function drawChart(chart) {
  const { g, width, height } = surface(chart.canvas);
  // Two cells a pixel.
  for (const kind of chart.kinds ?? []) kind.sight = kind.cells?.n ? inSight(kind.cells, state.t0, state.t1, kind.how === "dot" ? Infinity : 2 * width) : null;
  const [low, high] = extent(chart);
  const scale = chart.log ? Math.log : (v) => v;
  const perY = (height - TOP - BOTTOM) / (scale(high) - scale(low));
  const perX = (width - LEFT - RIGHT) / (state.t1 - state.t0);
  const x = (t) => LEFT + (t - state.t0) * perX;
  const y = (v) => height - BOTTOM - (scale(v) - scale(low)) * perY;
  Object.assign(chart, { x, y });
  axes(g, chart, width, height, low, high);
  g.save();
  g.beginPath();
  g.rect(LEFT, TOP, width - LEFT - RIGHT, height - TOP - BOTTOM);
  g.clip();
  for (const [name, label] of WAITS) waits(g, chart, name, label, height);
  for (const s of chart.bins ?? []) drawBins(g, s, x, y);
  for (const kind of chart.kinds ?? []) {
    if (kind.sight && !state.hidden.has(kind.name)) PAINT[kind.how](g, chart, kind.sight, css(kind.name));
  }
  if (state.mark !== null) line(g, css("text"), x(state.mark), TOP, x(state.mark), height - BOTTOM);
  g.restore();
}

function line(g, style, x0, y0, x1, y1) {
  g.strokeStyle = style;
  g.lineWidth = 1;
  g.beginPath();
  g.moveTo(x0, y0);
  g.lineTo(x1, y1);
  g.stroke();
}

function axes(g, chart, width, height, low, high) {
  g.font = '11px system-ui, "DejaVu Sans", sans-serif';
  g.textBaseline = "middle";
  g.textAlign = "right";
  for (const v of chart.log ? decades(low, high) : ticks(low, high, height / 42, chart.binary, chart.least)) {
    const at = Math.round(chart.y(v)) + 0.5;
    line(g, css("grid"), LEFT, at, width - RIGHT, at);
    g.fillStyle = css("faint");
    g.fillText(chart.ticks(v), LEFT - 6, at);
  }
  g.textBaseline = "top";
  g.textAlign = "center";
  const times = [...ticks(state.t0 - state.first, state.t1 - state.first, width / 130)];
  for (const t of times) {
    const at = Math.round(chart.x(t + state.first)) + 0.5;
    line(g, css("grid"), at, TOP, at, height - BOTTOM);
    g.fillStyle = css("faint");
    if (at > LEFT - 12 && at < width - 28) g.fillText(moment(t, times[1] - times[0] || t), at, height - BOTTOM + 5);
  }
  line(g, css("rule"), LEFT, height - BOTTOM + 0.5, width - RIGHT, height - BOTTOM + 0.5);
  line(g, css("rule"), LEFT + 0.5, TOP, LEFT + 0.5, height - BOTTOM);
  g.textAlign = "left";
  g.textBaseline = "middle";
  let at = LEFT + 2;
  for (const [text, color] of chart.title) {
    g.fillStyle = css(color);
    g.fillText(text, at, TOP / 2);
    at += g.measureText(text).width;
  }
}

// Waiting: a cell has begin and end as its values.
function waits(g, chart, name, label, height) {
  const cells = state.traces[name];
  if (!cells) return;
  g.textBaseline = "top";
  g.textAlign = "center";
  for (let i = 0; i < cells.n; i++) {
    const [x0, x1] = [chart.x(cells.low[i]), chart.x(cells.high[i])];
    if (x1 < LEFT || x0 > chart.canvas.clientWidth) continue;
    g.fillStyle = css(name);
    g.fillRect(x0, TOP, Math.max(x1 - x0, 1), height - TOP - BOTTOM);
    if (x1 - x0 > 90 && chart.height > 200) {
      g.fillStyle = css("faint");
      g.fillText(`${label} ${span(cells.high[i] - cells.low[i])}`, (x0 + x1) / 2, TOP + 4);
    }
  }
}

function drawBins(g, s, x, y) {
  g.beginPath();
  g.moveTo(x(s.start), y(0));
  s.values.forEach((v, i) => {
    g.lineTo(x(s.start + i * s.width), y(v));
    g.lineTo(x(s.start + (i + 1) * s.width), y(v));
  });
  g.lineTo(x(s.start + s.values.length * s.width), y(0));
  g.strokeStyle = css(s.name);
  g.lineWidth = 1.3;
  g.stroke();
  g.globalAlpha = 0.18;
  g.fillStyle = css(s.name);
  g.fill();
  g.globalAlpha = 1;
}

function* marks(chart, [cells, start, until]) {
  for (let i = start; i < until; i++) {
    yield [chart.x(cells.at[i]), (chart.y(chart.value(cells.low[i])) + chart.y(chart.value(cells.high[i] + 1))) / 2];
  }
}
function polygon(g, color, corners) {
  g.fillStyle = color;
  g.beginPath();
  corners.forEach(([x, y], i) => i ? g.lineTo(x, y) : g.moveTo(x, y));
  g.fill();
}

const PAINT = {
  // A packet is as high as the PSNs it takes, and has feet when there is room for them. Packets that touch in the same
  // half of a pixel are one bar.
  bar(g, chart, [cells, start, until], color) {
    g.fillStyle = color;
    let column = NaN, x = 0, top = 0, bottom = 0, joined = 0;
    const fill = () => {
      if (!joined) return;
      g.fillRect(x - 0.8, top, 1.6, bottom - top);
      if (joined === 1 && bottom - top > 7) {
        g.fillRect(x - 2.5, top, 5, 1);
        g.fillRect(x - 2.5, bottom - 1, 5, 1);
      }
    };
    for (let i = start; i < until; i++) {
      const at = chart.x(cells.at[i]), high = chart.y(chart.value(cells.high[i] + 1));
      const low = Math.max(chart.y(chart.value(cells.low[i])), high + 1.6), here = Math.floor(2 * at);
      if (here === column && high <= bottom && low >= top) {
        top = Math.min(top, high);
        bottom = Math.max(bottom, low);
        joined++;
        continue;
      }
      fill();
      [column, x, top, bottom, joined] = [here, at, high, low, 1];
    }
    fill();
  },
  step(g, chart, [cells, start, until], color) {
    g.strokeStyle = color;
    g.lineWidth = 1.4;
    g.beginPath();
    let before;
    for (let i = start; i < until; i++) {
      const x = chart.x(cells.at[i]);
      before === undefined ? g.moveTo(x, chart.y(chart.value(cells.low[i]))) : g.lineTo(x, before);
      before = chart.y(chart.value(cells.high[i]));
      g.lineTo(x, before);
    }
    if (before !== undefined) g.lineTo(Math.min(chart.x(state.last), chart.canvas.clientWidth), before);
    g.stroke();
  },
  area(g, chart, sight, color) {
    PAINT.step(g, chart, sight, color);
    const [cells, start] = sight;
    g.lineTo(Math.min(chart.x(state.last), chart.canvas.clientWidth), chart.y(0));
    g.lineTo(chart.x(cells.at[start] ?? 0), chart.y(0));
    g.globalAlpha = 0.15;
    g.fillStyle = color;
    g.fill();
    g.globalAlpha = 1;
  },
  // Points of which a pixel has one already are not drawn again.
  dot(g, chart, [cells, start, until], color) {
    g.fillStyle = color;
    const width = Math.ceil(chart.canvas.clientWidth), taken = new Uint8Array(width * Math.ceil(chart.canvas.clientHeight));
    for (let i = start; i < until; i++) {
      const x = chart.x(cells.at[i]), top = chart.y(cells.high[i]), bottom = chart.y(Math.max(cells.low[i], 1));
      const pixel = Math.round(top) * width + Math.round(x);
      if (bottom - top < 1 && taken[pixel]) continue;
      taken[pixel] = 1;
      g.fillRect(x - 1.2, top - 1.2, 2.4, bottom - top + 2.4);
    }
  },
  cross(g, chart, sight, color) {
    for (const [x, y] of marks(chart, sight)) {
      g.strokeStyle = color;
      g.lineWidth = 1.6;
      g.beginPath();
      g.moveTo(x - 3.5, y - 3.5); g.lineTo(x + 3.5, y + 3.5);
      g.moveTo(x - 3.5, y + 3.5); g.lineTo(x + 3.5, y - 3.5);
      g.stroke();
    }
  },
  diamond(g, chart, sight, color) {
    for (const [x, y] of marks(chart, sight)) polygon(g, color, [[x, y - 5], [x + 5, y], [x, y + 5], [x - 5, y]]);
  },
  down(g, chart, sight, color) {
    for (const [x, y] of marks(chart, sight)) polygon(g, color, [[x - 4, y - 10], [x + 4, y - 10], [x, y - 2]]);
  },
  up(g, chart, sight, color) {
    for (const [x, y] of marks(chart, sight)) polygon(g, color, [[x - 3, y + 9], [x + 3, y + 9], [x, y + 3]]);
  },
};

// ---- moving about

function show(t0, t1) {
  const whole = state.last - state.first, edge = whole * 0.01;
  const length = Math.min(Math.max(t1 - t0, 100), whole + 2 * edge);
  state.t0 = Math.min(Math.max(t0, state.first - edge), state.last + edge - length);
  state.t1 = state.t0 + length;
  remember();
  draw();
}
function showAll() {
  const edge = (state.last - state.first) * 0.01;
  show(state.first - edge, state.last + edge);
}
function zoom(by, around = (state.t0 + state.t1) / 2) {
  show(around - (around - state.t0) * by, around + (state.t1 - around) * by);
}
const timeAt = (chart, x) => state.t0 + (x - LEFT) / (chart.canvas.clientWidth - LEFT - RIGHT) * (state.t1 - state.t0);

// A line, or a stretch, across all charts. It lies above them, so that they are not drawn again.
function overlay(name, from, to = from) {
  const { style } = byId(name);
  byId(name).hidden = from === undefined;
  if (from === undefined) return;
  style.transform = `translateX(${from}px)`;
  style.width = `${Math.max(to - from, 1)}px`;
}

function listen(chart) {
  const { canvas } = chart;
  let grip = null;
  canvas.addEventListener("wheel", (e) => {
    e.preventDefault();
    if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      const by = e.deltaX / canvas.clientWidth * (state.t1 - state.t0);
      show(state.t0 + by, state.t1 + by);
    } else {
      zoom(Math.exp(e.deltaY * 0.0015), timeAt(chart, e.offsetX));
    }
  }, { passive: false });
  canvas.addEventListener("pointerdown", (e) => {
    canvas.setPointerCapture(e.pointerId);
    grip = { x: e.offsetX, t0: state.t0, t1: state.t1, chooses: e.shiftKey, hasMoved: false };
  });
  canvas.addEventListener("pointermove", (e) => {
    if (grip) grip.hasMoved ||= Math.abs(e.offsetX - grip.x) > 2;
    if (grip?.chooses) {
      const ends = [grip.x, e.offsetX].sort((a, b) => a - b);
      state.chosen = ends.map((x) => timeAt(chart, x));
      overlay("selection", ...ends);
    } else if (grip?.hasMoved) {
      const by = (grip.x - e.offsetX) / (canvas.clientWidth - LEFT - RIGHT) * (grip.t1 - grip.t0);
      show(grip.t0 + by, grip.t1 + by);
    } else if (!grip) {
      overlay("cursor", e.offsetX >= LEFT ? e.offsetX : undefined);
      tip(chart, e);
    }
  });
  const release = (e) => {
    if (grip?.chooses && state.chosen) show(...state.chosen);
    else if (grip && !grip.hasMoved && e.type === "pointerup") mark(timeAt(chart, e.offsetX));
    grip = null;
    state.chosen = null;
    overlay("selection");
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => {
    overlay("cursor");
    byId("tip").hidden = true;
  });
  canvas.addEventListener("dblclick", showAll);
}

// The point next to the pointer, in words.
function tip(chart, e) {
  const now = timeAt(chart, e.offsetX);
  const told = [`${exact(now - state.first)} after the first packet`];
  for (const s of chart.bins ?? []) {
    const v = s.values[Math.floor((now - s.start) / s.width)];
    if (v !== undefined) told.push(`${s.label}: ${rate(v)}`);
  }
  const near = chart.kinds ? nearest(chart, now, e.offsetX, e.offsetY) : null;
  if (near) told.push(`${exact(near.cells.at[near.i] - state.first)}: ${chart.tip(near.kind, near.cells, near.i)}`);
  tellBox(e, told);
}
function tellBox(e, lines) {
  const box = byId("tip");
  box.textContent = lines.join("\n");
  box.hidden = false;
  const right = e.clientX + 16 + box.offsetWidth > innerWidth;
  box.style.left = `${right ? e.clientX - 12 - box.offsetWidth : e.clientX + 16}px`;
  box.style.top = `${Math.min(e.clientY + 12, innerHeight - box.offsetHeight - 4)}px`;
}
function nearest(chart, now, x, y) {
  let best = null, closest = 400;
  for (const kind of chart.kinds) {
    const cells = kind.cells;
    if (!cells?.n || state.hidden.has(kind.name)) continue;
    const reach = 20 / (chart.canvas.clientWidth - LEFT - RIGHT) * (state.t1 - state.t0);
    const until = from(cells, now + reach);
    for (let i = from(cells, now - reach); i < until; i++) {
      const dx = chart.x(cells.at[i]) - x;
      const top = chart.y(chart.value(cells.high[i])), bottom = chart.y(chart.value(cells.low[i]));
      const dy = Math.max(top - y, y - bottom, 0);
      // What is drawn on top is meant.
      if (dx * dx + dy * dy <= closest) {
        closest = dx * dx + dy * dy;
        best = { kind, cells, i };
      }
    }
  }
  return best;
}
