// The data of a run, unpacked: an object an entry, and what is looked up often.

const NS_PER_MS = 1e6;

/** Text from JSON elements of the page. */
function embedded(id) {
  return JSON.parse(document.getElementById(id).textContent);
}

function unpack(raw) {
  const text = (n) => raw.strings[n];
  const c = raw.entries;
  let at = 0;
  const entries = c.after_ns.map((after, id) => {
    at += after;
    const pairs = c.fields[id];
    const fields = [];
    for (let i = 0; i < pairs.length; i += 2) fields.push([text(pairs[i]), text(pairs[i + 1])]);
    return {
      id, at, fields,
      host: text(c.host[id]), kind: text(c.kind[id]), name: text(c.name[id]), text: text(c.text[id]),
      label: brief(text(c.label[id])), cause: c.cause[id] ? id - c.cause[id] : null, lane: c.lane[id],
      weight: c.weight[id], subject: c.subject[id] ? text(c.subject[id] - 1) : "", spans: c.spans[id].map(text),
      effects: [],
    };
  });
  for (const e of entries) if (e.cause !== null && entries[e.cause]) entries[e.cause].effects.push(e.id);
  const run = { ...raw, entries, strings: undefined };
  run.into = grouped(raw.arrows, (a) => a.to);
  run.outOf = grouped(raw.arrows, (a) => a.from);
  run.broken = grouped(raw.violations, (v) => v.entry);
  run.led = new Set(raw.violations.flatMap((v) => v.led));
  run.story = new Set(raw.arrows.filter((a) => a.story).flatMap((a) => [a.from, a.to]));
  run.subjects = [...new Set(entries.map((e) => e.subject).filter(Boolean))].sort();
  run.states = new Map();
  run.objects.forEach((object, o) => object.states.forEach((state, s) => run.states.set(state.rv, [o, s])));
  run.zero = raw.violations.length ? entries[raw.violations[0].entry].at : null;
  run.lanes = allLanes(run);
  return run;
}

function grouped(items, key) {
  const map = new Map();
  for (const item of items) {
    const k = key(item);
    if (map.has(k)) map.get(k).push(item); else map.set(k, [item]);
  }
  return map;
}

function field(e, name) {
  const found = e.fields.find(([k]) => k === name);
  return found ? found[1] : undefined;
}

/** Ids are long and alike: the beginning tells them apart. */
function brief(text) {
  return text.replace(/\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(-[0-9a-f]{32,})?/g, "$1…");
}

/** The lanes of the trace, beliefs before the gateway that holds them, objects behind the driver. */
function allLanes(run) {
  const lanes = run.lanes.map((lane, n) => ({ ...lane, kind: lane.stream ? "stream" : "plain", n, marks: [], bars: [] }));
  for (const e of run.entries) lanes[e.lane].marks.push({ e });
  const byId = new Map(lanes.map((lane) => [lane.id, lane]));
  for (const bar of run.bars) {
    if (!byId.has(bar.lane)) continue;
    byId.get(bar.lane).bars.push(bar);
  }
  const beliefs = run.beliefs.map((belief) => ({
    id: `belief ${belief.subject} ${belief.holder || ""}`, kind: "belief", group: belief.holder ? "gateway" : "server",
    title: belief.holder ? `${belief.subject} believed` : `${belief.subject} in truth`,
    hint: belief.holder ? `What the ${belief.holder} holds ${belief.subject} to be` : `What ${belief.subject} is in the cluster`,
    subject: belief.subject, belief, marks: [], bars: [],
  }));
  const objects = [];
  const others = { id: "objects", kind: "object", group: "server", title: "other objects", marks: [], bars: [] };
  for (const object of run.objects) {
    const known = object.states.filter((s) => s.entry !== undefined);
    const marks = known.map((state) => ({ e: run.entries[state.entry], state, object }));
    if (!marks.length) continue;
    if (marks.length < 3) { others.marks.push(...marks); continue; }
    const id = `object ${object.resource}/${object.namespace}/${object.name}`;
    const title = brief(`${object.resource}/${object.name}`);
    objects.push({ id, kind: "object", group: "server", title, hint: title, marks, bars: [] });
  }
  others.marks.sort((a, b) => a.e.id - b.e.id);
  if (others.marks.length) objects.push(others);
  const truth = lanes.filter((lane) => lane.id === "true state");
  truth.forEach((lane) => { lane.hidden = run.beliefs.length > 0; });
  const rank = { script: 0, client: 1, gateway: 3, driver: 4, server: 5, actors: 6 };
  const all = [
    ...lanes.filter((l) => rank[l.group] < 2), ...beliefs, ...lanes.filter((l) => rank[l.group] > 2 && rank[l.group] < 5),
    ...objects, ...truth, ...lanes.filter((l) => l.group === "actors"),
    ...lanes.filter((l) => l.group === "server" && !truth.includes(l)),
  ];
  for (const lane of all) layOut(lane, run);
  return all;
}

/** Waits that overlap lie one above the other: the backlog is seen. */
function layOut(lane, run) {
  const waits = lane.bars.filter((bar) => bar.kind === "wait");
  const ends = [];
  for (const bar of waits) {
    let slot = ends.findIndex((end) => end <= bar.from);
    if (slot < 0) slot = ends.length;
    ends[slot] = bar.to ?? run.entries.length;
    bar.slot = slot;
    bar.rv = field(run.entries[bar.to], "rv");
  }
  lane.slots = Math.min(ends.length, 6);
  // Where much is said, words have a line of their own.
  lane.wordy = lane.kind === "plain" && ["client", "gateway", "driver"].includes(lane.group) && !lane.id.endsWith(" calls");
  lane.height = lane.kind === "belief" ? 30 : (lane.wordy ? 38 : 26) + (lane.slots ? 4 + lane.slots * 8 : 0);
}

/** `1.356576 s`, the way the terminal writes it. */
function seconds(ns) {
  return `${Math.floor(ns / 1e9)}.${String(Math.floor((ns % 1e9) / 1e3)).padStart(6, "0")} s`;
}

/** `+12.3 ms`, `-1.07 s`: from the violation. */
function relative(ns) {
  const sign = ns < 0 ? "−" : "+";
  return sign + duration(Math.abs(ns));
}

function duration(ns) {
  if (ns === 0) return "0 ms";
  if (ns < 1e5) return `${(ns / 1e3).toFixed(ns < 1e4 ? 1 : 0)} µs`;
  if (ns < 1e9) return `${(ns / NS_PER_MS).toFixed(ns < 1e7 ? 2 : ns < 1e8 ? 1 : 0)} ms`;
  if (ns < 6e10) return `${(ns / 1e9).toFixed(ns < 1e10 ? 2 : 1)} s`;
  return `${Math.floor(ns / 6e10)} min ${Math.round((ns % 6e10) / 1e9)} s`;
}

function html(strings, ...values) {
  const safe = (v) => (v instanceof Raw ? v.text : Array.isArray(v) ? v.map(safe).join("") : escape(String(v ?? "")));
  return new Raw(strings.reduce((all, s, i) => all + safe(values[i - 1]) + s));
}
class Raw {
  constructor(text) { this.text = text; }
  toString() { return this.text; }
}
function escape(text) {
  return text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}
