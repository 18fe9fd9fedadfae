"use strict";
// The heat map of all flows over the time of the capture: a row is a flow, a cell has its traffic and its trouble.

const overview = analysis.overview && { columns: analysis.overview.columns, rows: analysis.overview.rows.map(bytesOf) };
// Levels above it are waits for a timer, levels up to it retransmissions.
const MOST_RETRANSMITTED = 7;
const HIGHEST_LEVEL = 15;

const heat = { canvas: null, image: null, rowHeight: 1 };

function makeOverview() {
  if (!overview) return;
  const { length } = overview.rows;
  heat.rowHeight = Math.min(Math.max(Math.floor(320 / length), 1), 14);
  heat.canvas = node("canvas", { role: "img", ariaLabel: `traffic of ${length} flows over time; the table of flows has the same in numbers` });
  heat.canvas.setAttribute("role", "img");
  heat.canvas.style.height = `${length * heat.rowHeight}px`;
  byId("heat").append(heat.canvas);
  byId("overview").hidden = false;
  heat.canvas.addEventListener("pointermove", (e) => {
    const at = cellAt(e);
    if (at) tellBox(e, [`flow ${at.flow + 1}: ${nameOf(analysis.flows[at.flow])}`, `${span(at.t)} after the first packet of the capture`, ...toldOf(at)]);
  });
  heat.canvas.addEventListener("pointerleave", () => { byId("tip").hidden = true; });
  heat.canvas.addEventListener("click", (e) => {
    const at = cellAt(e);
    if (at) goTo({ flow: at.flow, stream: 0, t: at.t }, true);
  });
}

function cellAt(e) {
  const flow = Math.floor(e.offsetY / heat.rowHeight), share = e.offsetX / heat.canvas.clientWidth;
  if (!overview.rows[flow] || share < 0 || share >= 1) return null;
  return { flow, t: share * captured(), column: Math.floor(share * overview.columns) };
}
const captured = () => Math.max(analysis.duration_s * 1e9, 1);

function toldOf({ flow, column }) {
  const cell = overview.rows[flow][column], trouble = cell >> 4, traffic = cell & 15;
  const told = [traffic > 1 ? `traffic: 1/${2 ** (HIGHEST_LEVEL - traffic)} of the highest` : traffic ? "no payload" : "not open"];
  if (trouble > MOST_RETRANSMITTED) told.push(`waited for a timer ${percent((trouble - MOST_RETRANSMITTED) / (HIGHEST_LEVEL - MOST_RETRANSMITTED))} of this time`);
  else if (trouble) told.push(`${2 ** (trouble - 1)} retransmissions or more`);
  return told;
}

// A pixel for each cell; the canvas shows it enlarged.
function heatImage() {
  const { columns, rows } = overview;
  const image = new ImageData(columns, rows.length);
  const part = (name) => css(name).match(/[0-9a-f]{2}/gi).map((hex) => parseInt(hex, 16));
  const [back, sent, again, timer] = ["back", "sent", "again_nak", "again_timeout"].map(part);
  const colors = Array.from({ length: 256 }, (_, cell) => {
    const trouble = cell >> 4, traffic = cell & 15;
    const waits = trouble > MOST_RETRANSMITTED;
    const color = waits ? timer : trouble ? again : sent;
    const level = waits ? 0.4 + 0.6 * (trouble - MOST_RETRANSMITTED) / (HIGHEST_LEVEL - MOST_RETRANSMITTED)
      : trouble ? 0.4 + 0.6 * trouble / MOST_RETRANSMITTED : traffic / HIGHEST_LEVEL;
    return color.map((c, i) => Math.round(back[i] + (c - back[i]) * level));
  });
  rows.forEach((row, y) => {
    for (let x = 0; x < columns; x++) {
      const [r, g, b] = colors[row[x] ?? 0];
      image.data.set([r, g, b, 255], 4 * (y * columns + x));
    }
  });
  const canvas = node("canvas", { width: columns, height: rows.length });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

// Colors have changed.
function forgetHeat() {
  heat.image = null;
}

function drawOverview() {
  if (!overview) return;
  heat.image ??= heatImage();
  const { g, width, height } = surface(heat.canvas);
  g.imageSmoothingEnabled = false;
  g.drawImage(heat.image, 0, 0, width, height);
  // The flow and the time that the charts show.
  const y = state.flow * heat.rowHeight, perX = width / captured();
  const x = Math.max(state.t0, 0) * perX;
  g.strokeStyle = css("text");
  g.lineWidth = 1;
  g.strokeRect(x + 0.5, y - 0.5, Math.max(Math.min(state.t1, captured()) * perX - x, 3) - 1, heat.rowHeight + 1);
}
