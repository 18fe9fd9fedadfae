"use strict";
// NAKs, waits and unexplained retransmissions of the stream, in the order of time.

const FINDINGS = {
  nak: (cells, i) => `NAK of ${psns(cells, i)}`,
  rnr: (cells, i) => `RNR NAK of ${psns(cells, i)}`,
  wait_timeout: (cells, i) => `timeout after ${span(cells.high[i] - cells.low[i])}`,
  wait_rnr: (cells, i) => `receiver not ready for ${span(cells.high[i] - cells.low[i])}`,
  again_other: (cells, i) => `retransmission without visible cause of ${psns(cells, i)}`,
};
const LISTED = 200;

function psns(cells, i) {
  const [low, high] = [cells.low[i] % 2 ** 24, cells.high[i] % 2 ** 24];
  return low === high ? `PSN ${low}` : `PSN ${low} to ${high}`;
}

function findingsOf(traces) {
  const found = [];
  for (const [name, text] of Object.entries(FINDINGS)) {
    const cells = traces[name];
    const waits = name.startsWith("wait");
    for (let i = 0; i < (cells?.n ?? 0); i++) {
      found.push({ name, at: waits ? cells.low[i] : cells.at[i], until: waits ? cells.high[i] : cells.at[i], text: text(cells, i) + many(cells, i) });
    }
  }
  return found.sort((a, b) => a.at - b.at);
}

function listFindings() {
  const { findings } = state;
  const rows = findings.slice(0, LISTED).map((finding) => {
    const link = node("a", { href: address({ flow: state.flow, stream: state.stream, t: finding.at }) }, moment(finding.at, 1000));
    return [link, finding.text];
  });
  const box = byId("findings");
  box.hidden = !rows.length;
  const more = findings.length > LISTED ? `; the first ${LISTED} are listed, and the keys j and k go to all` : "";
  box.replaceChildren(
    node("summary", {}, `${findings.length} ${findings.length === 1 ? "finding" : "findings"}${more}`),
    table("", ["time after the first packet of the capture", "finding"], rows));
}

const hasFindings = (stream) => stream.retransmitted.unexplained + stream.rnr + stream.timeouts.count
  + Object.values(stream.naks).reduce((sum, n) => sum + n, 0) > 0;

// Goes to the next finding, or with -1 to the one before: of this stream, or of the nearest stream that has one.
function nextFinding(by) {
  const { findings } = state;
  const now = state.mark ?? (by > 0 ? -Infinity : Infinity);
  const found = by > 0 ? findings.find((finding) => finding.at > now) : findings.findLast((finding) => finding.at < now);
  if (found) return goToFinding(found);
  const streams = analysis.flows.flatMap((flow, f) => flow.streams.map((stream, s) => ({ flow: f, stream: s, of: stream })));
  let i = streams.findIndex((of) => of.flow === state.flow && of.stream === state.stream) + by;
  while (streams[i] && !hasFindings(streams[i].of)) i += by;
  if (!streams[i]) return tell(by > 0 ? "no further finding" : "no earlier finding");
  push();
  choose(streams[i].flow, streams[i].stream);
  const first = state.findings.at(by > 0 ? 0 : -1);
  if (first) goToFinding(first);
}
function goToFinding(finding) {
  goTo({ flow: state.flow, stream: state.stream, t: finding.at }, true, finding.until - finding.at);
  tell(`${span(finding.at)}: ${finding.text}`);
}
