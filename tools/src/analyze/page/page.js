"use strict";
// The page of `roce analyze --html`: the flows of a capture in words and tables, and one stream of one
// flow drawn at a time.

const byId = (id) => document.getElementById(id);
const analysis = JSON.parse(byId("data").textContent);

// ---- figures as people read them

function digits(x) {
  const size = Math.abs(x);
  return String(Number(x.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2)));
}
function scaled(x, steps) {
  const [unit, scale] = steps.find(([, scale]) => Math.abs(x) >= scale) ?? steps.at(-1);
  return `${digits(x / scale)} ${unit}`;
}
const span = (ns) => ns === 0 ? "0 s" : scaled(ns, [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]]);
// As exact as it must be for steps to differ.
function moment(ns, step) {
  const [unit, scale] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]].find(([, scale]) => Math.abs(ns) >= scale) ?? ["s", 1];
  const decimals = Math.min(Math.max(Math.ceil(Math.log10(scale / step) - 1e-9), 0), 12);
  return ns === 0 ? "0" : `${(ns / scale).toFixed(decimals)} ${unit}`;
}
const size = (bytes) => scaled(bytes, [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 1024], ["B", 1]]);
const rate = (gbit) => scaled(gbit * 1e9, [["Gbit/s", 1e9], ["Mbit/s", 1e6], ["kbit/s", 1e3], ["bit/s", 1]]);
const percent = (share) => `${digits(share * 100)} %`;
const end = (end) => `${end.ip} qp ${end.qp === null ? "?" : "0x" + end.qp.toString(16).padStart(6, "0")}`;
const packets = (n) => `${Number(n.toFixed(2)).toLocaleString("en")}`;

function node(name, props, ...children) {
  const made = Object.assign(document.createElement(name), props);
  made.append(...children);
  return made;
}
function table(title, head, rows) {
  const row = (cells, name) => node("tr", {}, ...cells.map((cell) => node(name, {}, String(cell))));
  return node("div", {}, node("h3", {}, title),
    node("table", {}, row(head, "th"), ...rows.map((cells) => row(cells, "td"))));
}

// ---- words and tables

function describe(flow, stream) {
  byId("ends").textContent = `${end(flow.a)} › ${end(flow.b)}`;
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
    const button = node("button", { className: i === state.stream ? "on" : "" }, `${s.asker.ip} asks`);
    button.onclick = () => choose(state.flow, i);
    return button;
  });
  byId("directions").replaceChildren(...directions);
  for (const row of byId("flows").querySelectorAll("tr[data-flow]")) {
    row.classList.toggle("on", Number(row.dataset.flow) === state.flow);
  }
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

function begin() {
  byId("file").textContent = analysis.file;
  document.title = `roce analyze ${analysis.file}`;
  const icrc = analysis.icrc;
  byId("totals").textContent = `${analysis.packets} packets in ${span(analysis.duration_s * 1e9)}, ${analysis.roce_packets} of RoCEv2; ICRC: ${icrc.good} good, ${icrc.bad} bad, ${icrc.unknown} unknown`;
  if (analysis.flows.length > 1) {
    const rows = analysis.flows.map((flow, i) => {
      const cells = [`${end(flow.a)} › ${end(flow.b)}`, flow.transport, size(flow.bytes), span(flow.duration_s * 1e9),
        flow.goodput_gbit_per_s === null ? "" : rate(flow.goodput_gbit_per_s), flow.retransmitted.total, flow.diagnosis[0]?.brief ?? ""];
      const row = node("tr", {}, ...cells.map((cell) => node("td", {}, String(cell))));
      row.dataset.flow = i;
      row.onclick = () => choose(i, 0);
      return row;
    });
    const head = ["flow", "service", "bytes", "time", "goodput", "retransmitted", "most of the time"];
    byId("flows").append(node("table", {}, node("tr", {}, ...head.map((name) => node("th", {}, name))), ...rows));
  }
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = (on) => { document.documentElement.classList.toggle("dark", on); draw(); };
  dark.addEventListener("change", () => theme(dark.matches));
  byId("theme").onclick = () => theme(!document.documentElement.classList.contains("dark"));
  byId("reset").onclick = showAll;
  addEventListener("resize", draw);
  addEventListener("keydown", (e) => {
    const move = (by) => show(state.t0 + by * (state.t1 - state.t0), state.t1 + by * (state.t1 - state.t0));
    const keys = { "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7), "ArrowLeft": () => move(-0.2), "ArrowRight": () => move(0.2), "0": showAll };
    if (keys[e.key] && !e.ctrlKey && !e.metaKey) { keys[e.key](); e.preventDefault(); }
  });
  document.documentElement.classList.toggle("dark", dark.matches);
  // The address keeps what is in sight, so that it can be passed on.
  const place = new URLSearchParams(location.hash.slice(1));
  choose(Number(place.get("flow")), Number(place.get("stream")));
  if (place.has("from") && place.has("to")) show(place.get("from") * 1e9, place.get("to") * 1e9);
}
begin();
