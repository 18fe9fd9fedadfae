"use strict";
// The data of the page, figures as people read them, and the making of elements.

const byId = (id) => document.getElementById(id);
const analysis = JSON.parse(byId("data").textContent);

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
const nameOf = (flow) => `${end(flow.a)} › ${end(flow.b)}`;
const packets = (n) => `${Number(n.toFixed(2)).toLocaleString("en")}`;

function node(name, props, ...children) {
  const made = Object.assign(document.createElement(name), props);
  made.append(...children);
  return made;
}
// A cell is text, a number or a node. The first of a row is its heading.
function table(title, head, rows) {
  const cell = (name, scope, of) => node(name, scope ? { scope } : {}, of instanceof Node ? of : String(of));
  const row = ([first, ...rest]) => node("tr", {}, cell("th", "row", first), ...rest.map((of) => cell("td", null, of)));
  const heading = head.some(Boolean) ? [node("thead", {}, node("tr", {}, ...head.map((of) => cell("th", "col", of))))] : [];
  return node("table", {}, ...title ? [node("caption", {}, title)] : [], ...heading, node("tbody", {}, ...rows.map(row)));
}
