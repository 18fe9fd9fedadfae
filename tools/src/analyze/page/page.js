"use strict";
// The page of `roce analyze --html`: the flows of a capture in words and tables, and one stream of one flow drawn at a
// time. Address, keys and print.

// ---- words and tables

function describe(flow, stream) {
  byId("ends").textContent = nameOf(flow);
  const facts = [flow.transport, flow.mtu && `MTU ${flow.mtu}`, flow.joined_how,
    `${size(flow.bytes)} in ${span(flow.duration_s * 1e9)}`, flow.goodput_gbit_per_s !== null && rate(flow.goodput_gbit_per_s)];
  byId("figures").textContent = facts.filter(Boolean).join(" · ");
  byId("spent").replaceChildren(...Object.entries(stream.time_s).filter(([, s]) => s > 0).map(([key, s]) => {
    const name = key.replaceAll("_", " ");
    const [color, dim] = SPENT[name];
    const share = s * 1e9 / (state.last - state.first);
    const part = node("div", { title: `${name}: ${percent(share)}, ${span(s * 1e9)}`, className: dim ?? "" }, share > 0.06 ? `${name} ${percent(share)}` : "");
    part.style.width = `${share * 100}%`;
    part.style.background = `var(--${color})`;
    return part;
  }));
  byId("reasons").replaceChildren(...flow.diagnosis.map((reason) => {
    const whose = flow.streams.length > 1 ? `${flow.streams[reason.stream].asker.ip}: ` : "";
    return node("li", {}, whose + reason.text);
  }));
  const directions = flow.streams.length < 2 ? [] : flow.streams.map((s, i) => {
    const button = node("button", { className: i === state.stream ? "on" : "", ariaPressed: String(i === state.stream) }, `${s.asker.ip} asks`);
    button.onclick = () => goTo({ flow: state.flow, stream: i }, true);
    return button;
  });
  byId("directions").replaceChildren(...directions);
  for (const row of byId("flows").querySelectorAll("tr.on")) row.classList.remove("on");
  const row = byId(`flow${state.flow}`);
  row?.classList.add("on");
  row?.scrollIntoView({ block: "nearest" });
  byId("tables").replaceChildren(...tables(flow, stream));
}

function tables(flow, stream) {
  const made = [];
  const us = (v) => digits(v);
  const operations = Object.entries(stream.operations);
  if (operations.length) {
    made.push(table("operations", ["", "messages", "bytes", "sizes"], operations.map(([name, of]) =>
      [name, of.messages, size(of.bytes), sizes(of)])));
  }
  const timed = operations.map(([name, of]) => [name, of.latency_us]);
  timed.push(["ACK round trip", stream.ack_rtt_us]);
  const latencies = timed.filter(([, of]) => of.count);
  if (latencies.length) {
    made.push(table("latency, µs", ["", "p50", "p90", "p99", "p99.9", "max", "of"], latencies.map(([name, of]) =>
      [name, us(of.p50), us(of.p90), us(of.p99), us(of.p99_9), us(of.max), of.count])));
  }
  const counts = { "requests": stream.requests, "answers": stream.answers };
  for (const [name, n] of Object.entries(stream.retransmitted)) counts[`retransmitted: ${name.replaceAll("_", " ")}`] = n;
  for (const [name, n] of Object.entries(stream.naks)) counts[`NAK: ${name.replaceAll("_", " ")}`] = n;
  Object.assign(counts, { "RNR NAKs": stream.rnr, "timeouts": stream.timeouts.count, "out of order": stream.out_of_order, "doubled": stream.duplicates });
  for (const [name, n] of Object.entries(stream.missing)) counts[name.replaceAll("_", " ")] = n;
  Object.assign(counts, { "CNPs": stream.cnps, "ECN marks": stream.ecn_marked });
  made.push(table("packets", ["", ""], Object.entries(counts).filter(([, n]) => n)));
  if (stream.in_flight.max_bytes) {
    const of = stream.in_flight;
    made.push(table("in flight", ["", "bytes", "packets"], [["median", of.median_bytes, of.median_packets], ["most", of.max_bytes, of.max_packets]]));
  }
  if (flow.cm) {
    for (const name of ["request", "reply"]) {
      const said = flow.cm[name];
      const told = Object.entries(said.fields).filter(([, v]) => v && !/^0x0+$/.test(v)).map(([k, v]) => `${k}=${v}`);
      if (said.private_data) told.push(`private_data=${said.private_data}`);
      made.push(node("div", {}, node("h3", {}, `connection manager: ${name}`), node("pre", {}, told.join("  "))));
    }
  }
  return made;
}
function sizes(of) {
  const told = Object.entries(of.sizes).sort((a, b) => b[1] - a[1]).slice(0, 4).map(([bytes, n]) => `${n} × ${bytes}`);
  if (of.other_sizes) told.push(`${of.other_sizes} of other or unknown size`);
  return told.join(", ");
}

function listFlows() {
  const rows = analysis.flows.map((flow, i) => {
    const link = node("a", { href: address({ flow: i, stream: 0 }) }, `${i + 1}: ${nameOf(flow)}`);
    return [link, flow.transport, size(flow.bytes), span(flow.duration_s * 1e9),
      flow.goodput_gbit_per_s === null ? "" : rate(flow.goodput_gbit_per_s), flow.retransmitted.total, flow.diagnosis[0]?.brief ?? ""];
  });
  const made = table("", ["flow", "service", "bytes", "time", "goodput", "retransmitted", "most of the time"], rows);
  [...made.tBodies[0].rows].forEach((row, i) => {
    row.id = `flow${i}`;
    row.onclick = (e) => { if (!(e.target instanceof HTMLAnchorElement)) goTo({ flow: i, stream: 0 }, true); };
  });
  byId("flows").append(made);
}

// ---- address

// Returns the address of a place: conn and side count from 1, t is a moment in seconds after the first packet of the
// capture, from and to are what is in sight; without them it is all, or what is around t.
function address(place) {
  const seconds = (t) => String(Number((t / 1e9).toFixed(9)));
  const parts = { conn: place.flow + 1 };
  if (place.stream) parts.side = place.stream + 1;
  for (const name of ["t", "from", "to"]) if (typeof place[name] === "number") parts[name] = seconds(place[name]);
  return `#${new URLSearchParams(parts)}`;
}
function here() {
  const edge = (state.last - state.first) * 0.01;
  const isWhole = state.t0 <= state.first - edge + 1 && state.t1 >= state.last + edge - 1;
  const range = isWhole ? {} : { from: state.t0, to: state.t1 };
  return { flow: state.flow, stream: state.stream, t: state.mark, ...range };
}

// The address follows what is shown, a moment later: browsers refuse hundreds of changes a minute.
let writing = 0;
function remember() {
  clearTimeout(writing);
  writing = setTimeout(() => history.replaceState(null, "", address(here())), 300);
}
// The place that is left stays in the history.
let pushed = -Infinity;
function push() {
  clearTimeout(writing);
  if (performance.now() - pushed < 300) return remember();
  history.replaceState(null, "", address(here()));
  history.pushState(null, "", location.href);
  pushed = performance.now();
}

// Shows a place. `isNew` adds it to the history; `length` is the duration of what happens there.
function goTo(place, isNew, length = 0) {
  if (isNew) push();
  if (place.flow !== state.flow || place.stream !== state.stream || !state.charts.length) choose(place.flow, place.stream);
  state.mark = place.t ?? null;
  if (place.from < place.to) return show(place.from, place.to);
  if (state.mark === null) return showAll();
  const whole = state.last - state.first, shown = state.t1 - state.t0;
  const wanted = Math.max(shown < whole ? shown : Math.max(whole / 20, 200e3), 3 * length);
  show(state.mark + length / 2 - wanted / 2, state.mark + length / 2 + wanted / 2);
}
function mark(t) {
  push();
  state.mark = t;
  remember();
  draw();
}

function readAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const number = (name) => parts.has(name) && Number.isFinite(Number(parts.get(name))) ? Number(parts.get(name)) : undefined;
  const time = (name) => number(name) === undefined ? undefined : number(name) * 1e9;
  const flow = analysis.flows[number("conn") - 1] ? number("conn") - 1 : 0;
  const stream = analysis.flows[flow]?.streams[number("side") - 1] ? number("side") - 1 : 0;
  goTo({ flow, stream, t: time("t"), from: time("from"), to: time("to") }, false);
}

// ---- keys

const KEYS = [
  [["ArrowLeft"], "←", "earlier", () => move(-0.2)],
  [["ArrowRight"], "→", "later", () => move(0.2)],
  [["+", "="], "+", "closer", () => zoom(0.7)],
  [["-"], "−", "farther", () => zoom(1 / 0.7)],
  [["0"], "0", "all of it", showAll],
  [["j"], "j", "next finding", () => nextFinding(1)],
  [["k"], "k", "finding before", () => nextFinding(-1)],
  [["n"], "n", "next connection", () => nextFlow(1)],
  [["p"], "p", "connection before", () => nextFlow(-1)],
  [["?"], "?", "this help", () => byId("help").showModal()],
];
function move(by) {
  show(state.t0 + by * (state.t1 - state.t0), state.t1 + by * (state.t1 - state.t0));
}
function nextFlow(by) {
  const flow = state.flow + by;
  if (!analysis.flows[flow]) return;
  goTo({ flow, stream: 0 }, true);
  tell(`flow ${flow + 1}: ${nameOf(analysis.flows[flow])}`);
}
function onKey(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || byId("help").open || !state.charts.length) return;
  const found = KEYS.find(([names]) => names.includes(e.key));
  if (!found) return;
  found[3]();
  e.preventDefault();
}
// For a screen reader, and below the charts.
function tell(text) {
  byId("told").textContent = text;
}

// ---- themes and print

let isDark = false;
function theme(dark) {
  document.documentElement.classList.toggle("dark", dark);
  colors.clear();
  forgetHeat();
}
// Paper is white, narrower than a screen, and has everything open.
let closed = [];
function toPaper() {
  document.documentElement.classList.add("paper");
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const details of closed) details.open = true;
  theme(false);
  drawNow();
}
function fromPaper() {
  document.documentElement.classList.remove("paper");
  for (const details of closed) details.open = false;
  theme(isDark);
  draw();
}

function begin() {
  byId("file").textContent = analysis.file;
  document.title = `roce analyze ${analysis.file}`;
  const icrc = analysis.icrc;
  byId("totals").textContent = `${analysis.packets} packets in ${span(analysis.duration_s * 1e9)}, ${analysis.roce_packets} of RoCEv2; ICRC: ${icrc.good} good, ${icrc.bad} bad, ${icrc.unknown} unknown`;
  byId("keys").append(table("", [], KEYS.map(([, key, text]) => [node("kbd", {}, key), text])));
  const system = matchMedia("(prefers-color-scheme: dark)");
  const darken = (on) => { isDark = on; theme(on); draw(); };
  system.addEventListener("change", () => darken(system.matches));
  byId("theme").onclick = () => darken(!isDark);
  byId("ask").onclick = () => byId("help").showModal();
  byId("reset").onclick = showAll;
  isDark = system.matches;
  theme(isDark);
  if (!analysis.flows.length) return;
  if (analysis.flows.length > 1) listFlows();
  makeOverview();
  addEventListener("resize", draw);
  addEventListener("keydown", onKey);
  addEventListener("popstate", readAddress);
  addEventListener("beforeprint", toPaper);
  addEventListener("afterprint", fromPaper);
  readAddress();
  drawNow();
  performance.mark("drawn");
}
begin();
