// Where an entry lies on the time axis, in units that do not depend on the zoom.
//
// Folded: distances grow with the logarithm of the time between, and entries of one instant stand side by side. So a run
// of minutes whose races are decided within a millisecond can be read at one glance.

const SIDE_BY_SIDE = 13;
/** A message's way of 0.3 ms takes 20 units, a second 55, an hour 91. */
const quietUnits = (ns) => 10 * Math.log10(1 + ns / 3e3);

function scale(run, shown, folded) {
  const x = new Float64Array(run.entries.length);
  if (!folded) {
    for (const e of run.entries) x[e.id] = e.at / NS_PER_MS;
    return { x, end: Math.max(run.end_ns / NS_PER_MS, 1), gaps: [] };
  }
  const gaps = [];
  let unit = 0;
  let i = 0;
  let before = 0;
  while (i < run.entries.length) {
    const at = run.entries[i].at;
    const quiet = at - before;
    const gap = quiet > 0 ? quietUnits(quiet) : 0;
    if (quiet > 2e7) gaps.push({ from: unit, to: unit + gap, ns: quiet });
    unit += gap;
    const inLane = new Map();
    let last = unit;
    for (; i < run.entries.length && run.entries[i].at === at; i++) {
      const e = run.entries[i];
      const side = inLane.get(e.lane) ?? 0;
      // What is not shown takes no room, and what is later in the trace never stands before.
      if (shown(e)) { inLane.set(e.lane, side + 1); }
      x[e.id] = Math.max(unit + side * SIDE_BY_SIDE, last - SIDE_BY_SIDE * 0.5);
      last = Math.max(last, x[e.id]);
    }
    unit = last;
    before = at;
  }
  const rest = run.end_ns - before;
  if (rest > 2e7) gaps.push({ from: unit, to: unit + quietUnits(rest), ns: rest });
  return { x, end: unit + (rest > 0 ? quietUnits(rest) : 0) + 10, gaps };
}

/** The first position in a list, ordered by its key, that is not below a limit. */
function firstFrom(length, keyAt, limit) {
  let low = 0;
  let high = length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (keyAt(mid) < limit) low = mid + 1; else high = mid;
  }
  return low;
}
