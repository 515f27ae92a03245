// What is looked at, and how it is moved: one object holds the state, and everything is drawn from it.

const LEAST_UNITS = 12;

class App {
  constructor() {
    const { remarks, runs } = embedded("index");
    this.remarks = remarks;
    this.index = runs;
    this.chart = new Chart(this);
    this.details = new Details(this);
    this.list = new List(this);
    this.state = { selected: null, subject: "", weight: 1, folded: true, search: "", hidden: new Set(), shownLanes: new Set() };
    this.window = { from: 0, to: 1 };
    this.sweep = document.getElementById("swept") && new Sweep(this);
    if (!this.sweep) this.drawRuns();
    this.wire();
    const { dataset } = document.documentElement;
    const asked = new URLSearchParams(dataset.run === undefined ? location.hash.slice(1) : `run=${dataset.run}`);
    const first = this.index.find((r) => r.section !== null);
    // Nothing to be drawn: nothing to be moved or looked for.
    document.body.classList.toggle("bare", !first);
    if (!first) return;
    this.load(asked.has("run") ? Number(asked.get("run")) : first.section);
    if (asked.has("entry")) this.select(Number(asked.get("entry")), { reveal: true });
  }

  /** Shows a run of the page. */
  load(section) {
    if (!document.getElementById(`run-${section}`)) return;
    this.section = section;
    this.run = unpack(embedded(`run-${section}`));
    Object.assign(this.state, { selected: null, subject: "", search: "" });
    document.getElementById("search").value = "";
    this.chart.colour = undefined;
    if (this.sweep) this.sweep.shows(section);
    else document.title = `${this.run.outcome}: ${this.run.name}`;
    this.drawVerdict();
    this.drawChoices();
    document.getElementById("canvas").setAttribute("aria-label", `${this.run.name}, ${this.run.outcome}, ${this.run.entries.length} entries in ${this.run.lanes.length} lanes`);
    document.getElementById("to-violation").hidden = !this.run.violations.length;
    this.chart.layOut();
    this.home(false);
    this.refresh();
    document.querySelectorAll("#runs tr[data-section]").forEach((row) => row.setAttribute("aria-current", String(Number(row.dataset.section) === section)));
  }

  // What is shown

  hiddenLane(lane) {
    if (this.state.subject && lane.subject && lane.subject !== this.state.subject) return true;
    if (this.state.hidden.has(lane.id)) return true;
    return lane.hidden && !this.state.shownLanes.has(lane.id);
  }
  isSpecial(e) {
    return this.run.broken.has(e.id) || this.run.story.has(e.id) || e.id === this.state.selected || this.found(e);
  }
  rank(e) {
    return (this.run.broken.has(e.id) ? 8 : 0) + (this.run.story.has(e.id) ? 4 : 0) + e.weight;
  }
  visible(e, lane) {
    const weighs = e.weight >= this.state.weight || (lane && lane.kind === "object");
    // The script is about all of it.
    const meant = !this.state.subject || e.subject === this.state.subject || (!e.subject && e.host === "world");
    return (weighs || this.isSpecial(e)) && meant;
  }
  found(e) {
    if (!this.state.search) return false;
    const words = this.state.search.toLowerCase();
    e.haystack ??= `${e.label} ${e.text} ${e.host} ${e.kind} ${e.name} ${e.fields.map(([k, v]) => `${k}=${v}`).join(" ")}`.toLowerCase();
    return e.haystack.includes(words);
  }
  dimmed(e) {
    return this.state.search !== "" && !this.found(e);
  }
  storyPair(from, to) {
    return (this.run.into.get(to) || []).some((a) => a.from === from && a.story);
  }
  /** Pairs of entries from the causes to the selected one: causes that are not shown are passed over. */
  chain() {
    const pairs = [];
    let to = this.state.selected;
    let id = to;
    while (id !== null && pairs.length < 40) {
      id = this.run.entries[id].cause;
      if (id !== null && this.chart.place.has(id)) {
        pairs.push([id, to]);
        to = id;
      }
    }
    return pairs;
  }

  // Drawing

  refresh() {
    this.chart.draw();
    this.details.draw();
    this.list.fill();
  }
  relayed() {
    // The same stretch of the run stays in sight when the scale changes.
    const middle = this.middleEntry();
    const share = (this.window.to - this.window.from) / this.chart.scale.end;
    this.chart.layOut();
    const span = Math.max(share * this.chart.scale.end, LEAST_UNITS);
    const at = this.chart.scale.x[middle];
    this.window = { from: at - span / 2, to: at + span / 2 };
    this.clamp();
    this.refresh();
  }
  middleEntry() {
    const { x } = this.chart.scale;
    if (this.state.selected !== null) return this.state.selected;
    const middle = (this.window.from + this.window.to) / 2;
    return Math.min(firstFrom(x.length, (i) => x[i], middle), x.length - 1);
  }
  redraw() {
    if (this.queued) return;
    this.queued = requestAnimationFrame(() => { this.queued = 0; this.chart.draw(); });
  }
  drawVerdict() {
    const { run } = this;
    const broken = run.violations.map((v) => html`<li><button data-entry="${v.entry}"><b>${v.property}</b> ${v.why}</button></li>`);
    document.getElementById("verdict").innerHTML = html`<div class="top"><span class="outcome ${run.outcome}">${run.outcome}</span><h1>${run.name}</h1><span class="facts">${run.entries.length} entries · ${(run.end_ns / 1e9).toFixed(3)} s of virtual time</span></div>
${broken.length ? html`<ul class="broken">${broken}</ul>` : ""}
<div class="replay"><code>${run.replay}</code><button class="small" id="copy">Copy</button></div>`;
  }
  drawRuns() {
    if (document.documentElement.dataset.run !== undefined || this.index.length < 2 && !this.remarks.length) return;
    const nav = document.getElementById("runs");
    nav.hidden = false;
    const failed = this.index.filter((r) => r.outcome !== "holds").length;
    const rows = this.index.map((r) => html`<tr ${r.section === null ? "" : new Raw(`data-section="${r.section}"`)}><td><span class="outcome ${r.outcome}">${r.outcome}</span></td><td>${r.section === null ? r.name : html`<button>${r.name}</button>`}</td><td>${r.property || ""}</td><td class="mono">${r.time}</td><td class="mono">${r.run_id}</td></tr>`);
    const remarks = this.remarks.map((text) => html`<li>${text}</li>`);
    if (this.index.length < 2) {
      nav.innerHTML = html`<ul class="remarks">${remarks}</ul>`;
      return;
    }
    nav.innerHTML = html`<h1>${this.index.length} runs, ${failed} of them ${failed === 1 ? "does" : "do"} not hold</h1>${remarks.length ? html`<ul class="remarks">${remarks}</ul>` : ""}<div class="table"><table><thead><tr><th>Outcome<th>Run<th>Property<th>Virtual time<th>Run id</tr></thead><tbody>${rows}</tbody></table></div>`;
  }
  drawChoices() {
    const options = this.run.subjects.map((s) => html`<option>${s}</option>`);
    document.getElementById("subject").innerHTML = html`<option value="">everything</option>${options}`;
    const boxes = this.run.lanes.map((lane, n) => html`<label><input type="checkbox" data-lane="${n}" ${this.hiddenLane(lane) ? "" : "checked"}> ${lane.title}</label>`);
    document.getElementById("lane-choices").innerHTML = boxes.join("");
  }

  // The window

  clamp() {
    const { end } = this.chart.scale;
    const [low, high] = [-end * 0.02 - 6, end * 1.02 + 6];
    let span = Math.min(Math.max(this.window.to - this.window.from, LEAST_UNITS), high - low);
    if (!this.state.folded) span = Math.min(Math.max(this.window.to - this.window.from, 0.01), high - low);
    let from = Math.min(Math.max(this.window.from, low), high - span);
    this.window = { from, to: from + span };
  }
  show(from, to, redraw = true) {
    this.window = { from, to };
    this.clamp();
    if (redraw) this.redraw();
  }
  zoom(factor, px = this.chart.width / 2) {
    const at = this.chart.unit(px);
    this.show(at - (at - this.window.from) * factor, at + (this.window.to - at) * factor);
  }
  pan(px) {
    const units = px / this.chart.width * (this.window.to - this.window.from);
    this.show(this.window.from + units, this.window.to + units);
  }
  fit() {
    this.show(0, this.chart.scale.end);
  }
  /** What led to the first violation and a little more; the whole run if it holds. */
  home(redraw = true) {
    const [first] = this.run.violations;
    if (this.run.mark) {
      const at = this.chart.scale.x[this.run.mark[0]];
      this.show(at - 160, at + 520, redraw);
      return;
    }
    if (!first) { this.show(0, this.chart.scale.end, redraw); return; }
    const { x } = this.chart.scale;
    const ids = [first.entry, ...first.led, ...this.run.arrows.filter((a) => a.story && a.story.includes(0)).flatMap((a) => [a.from, a.to])];
    const to = Math.max(...ids.map((id) => x[id]));
    // A way that begins long before is told by its last part.
    const from = Math.max(Math.min(...ids.map((id) => x[id])), to - 1400);
    const margin = Math.max((to - from) * 0.08, 24);
    // Room for words behind it, in pixels.
    const room = Math.min(170 / this.chart.width, 0.4);
    this.show(from - margin, to + Math.max(margin, (to - from + margin) * room / (1 - room)), redraw);
  }

  // Selection

  select(id, { reveal = false } = {}) {
    if (id !== null && !this.run.entries[id]) return;
    this.state.selected = id;
    if (id !== null && reveal) {
      const x = this.chart.scale.x[id];
      const span = this.window.to - this.window.from;
      if (x < this.window.from + span * 0.05 || x > this.window.to - span * 0.1) this.show(x - span / 2, x + span / 2, false);
    }
    if (id !== null && !this.chart.place.has(id)) this.chart.layOut();
    this.chart.draw();
    this.details.draw();
    this.list.draw();
    if (id !== null) {
      this.list.show(id);
      const e = this.run.entries[id];
      document.getElementById("announce").textContent = `${e.host}, ${seconds(e.at)}: ${e.label}`;
    }
    if (document.documentElement.dataset.run === undefined) history.replaceState(null, "", id === null ? `#run=${this.section}` : `#run=${this.section}&entry=${id}`);
  }
  /** Along the lane of the selected entry, or to the nearest entry of the next lane. */
  move(dx, dy) {
    const { lanes, place, scale: { x } } = this.chart;
    const usable = lanes.filter((l) => l.shown && l.shown.length);
    if (!usable.length) return;
    const { selected } = this.state;
    if (selected === null) { this.select(this.run.violations[0]?.entry ?? usable[0].shown[0].e.id, { reveal: true }); return; }
    const lane = usable.includes(place.get(selected)) ? place.get(selected) : usable[0];
    if (dx) {
      const at = lane.shown.findIndex((m) => m.e.id >= selected);
      const next = lane.shown[Math.min(Math.max(at + dx, 0), lane.shown.length - 1)];
      this.select(next.e.id, { reveal: true });
      return;
    }
    const next = usable[usable.indexOf(lane) + dy];
    if (!next) return;
    const near = next.shown.reduce((best, m) => (Math.abs(x[m.e.id] - x[selected]) < Math.abs(x[best.e.id] - x[selected]) ? m : best));
    this.select(near.e.id, { reveal: true });
  }

  // Events

  wire() {
    const on = (id, event, what) => document.getElementById(id).addEventListener(event, what);
    on("zoom-in", "click", () => this.zoom(0.6));
    on("zoom-out", "click", () => this.zoom(1 / 0.6));
    on("fit", "click", () => this.fit());
    on("to-violation", "click", () => this.home());
    on("fold", "change", (event) => { this.state.folded = event.target.checked; this.relayed(); });
    on("weight", "change", (event) => { this.state.weight = Number(event.target.value); this.relayed(); });
    on("subject", "change", (event) => { this.state.subject = event.target.value; this.relayed(); });
    on("search", "input", (event) => { this.state.search = event.target.value.trim(); this.chart.layOut(); this.chart.draw(); this.list.fill(); });
    on("search", "keydown", (event) => {
      if (event.key === "Enter" && this.list.entries.length) {
        const next = this.list.entries.find((e) => e.id > (this.state.selected ?? -1)) ?? this.list.entries[0];
        this.select(next.id, { reveal: true });
      }
    });
    on("lane-choices", "change", (event) => {
      const lane = this.run.lanes[Number(event.target.dataset.lane)];
      const set = event.target.checked ? this.state.shownLanes : this.state.hidden;
      (event.target.checked ? this.state.hidden : this.state.shownLanes).delete(lane.id);
      set.add(lane.id);
      this.relayed();
    });
    on("verdict", "click", (event) => {
      const button = event.target.closest("button");
      if (button?.dataset.entry) { this.select(Number(button.dataset.entry), { reveal: true }); }
      if (button?.id === "copy") navigator.clipboard?.writeText(this.run.replay).then(() => { button.textContent = "Copied"; });
    });
    on("runs", "click", (event) => {
      const row = event.target.closest("tr[data-section]");
      if (row) this.load(Number(row.dataset.section));
    });
    on("help-open", "click", () => this.help());
    this.wireCanvas();
    this.wireOverview();
    // Paper has a width of its own, whatever the window's is.
    window.addEventListener("beforeprint", () => {
      if (!this.run) return;
      const zoom = Math.min(0.8, Math.max(0.4, PAPER.height / this.chart.height));
      document.getElementById("plot").style.setProperty("--zoom", zoom.toFixed(3));
      this.chart.paper = Math.floor(PAPER.width / zoom) - PAPER.titles;
      this.chart.draw();
    });
    window.addEventListener("afterprint", () => { if (this.run) { this.chart.paper = undefined; this.chart.draw(); } });
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("click", (event) => { const lanes = document.getElementById("lanes"); if (!lanes.contains(event.target)) lanes.open = false; });
    new ResizeObserver(() => { if (this.run && !this.chart.paper && this.chart.canvas.clientWidth !== this.lastWidth) { this.lastWidth = this.chart.canvas.clientWidth; this.chart.drawOverview(); this.redraw(); } }).observe(document.getElementById("canvas"));
  }
  wireCanvas() {
    const { canvas } = this.chart;
    let drag = null;
    canvas.addEventListener("pointerdown", (event) => {
      drag = { x: event.clientX, moved: false, target: event.target.closest(".mark") };
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!drag || !event.buttons) { drag = null; return; }
      const dx = event.clientX - drag.x;
      if (Math.abs(dx) < 3 && !drag.moved) return;
      if (!drag.moved) canvas.setPointerCapture(event.pointerId);
      drag.moved = true;
      drag.x = event.clientX;
      canvas.classList.add("dragging");
      this.pan(-dx);
    });
    canvas.addEventListener("pointerup", () => {
      canvas.classList.remove("dragging");
      if (drag && !drag.moved) {
        const mark = drag.target;
        if (mark?.dataset.also) this.zoomTo(mark);
        else this.select(mark ? Number(mark.dataset.entry) : null);
      }
      drag = null;
    });
    canvas.addEventListener("wheel", (event) => {
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
      if (!event.ctrlKey && !event.metaKey && !sideways) return;
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 180), event.clientX - canvas.getBoundingClientRect().left);
      else this.pan(event.deltaX || event.deltaY);
    }, { passive: false });
    canvas.addEventListener("dblclick", (event) => this.zoom(0.4, event.clientX - canvas.getBoundingClientRect().left));
  }
  /** Marks that lie on each other are taken apart. */
  zoomTo(cluster) {
    const id = Number(cluster.dataset.entry);
    const x = this.chart.scale.x[id];
    const span = (this.window.to - this.window.from) / 4;
    if (span < LEAST_UNITS) this.select(id); else this.show(x - span * 0.3, x + span * 0.7);
  }
  wireOverview() {
    const { overview } = this.chart;
    const go = (event) => {
      const rect = overview.getBoundingClientRect();
      const at = (event.clientX - rect.left) / rect.width * this.chart.scale.end;
      const span = this.window.to - this.window.from;
      this.show(at - span / 2, at + span / 2);
    };
    overview.addEventListener("pointerdown", (event) => { overview.setPointerCapture(event.pointerId); go(event); });
    overview.addEventListener("pointermove", (event) => { if (event.buttons) go(event); });
  }
  key(event) {
    if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const { selected } = this.state;
    const e = selected === null ? null : this.run?.entries[selected];
    const keys = {
      ArrowLeft: () => (event.shiftKey ? this.pan(-160) : this.move(-1, 0)),
      ArrowRight: () => (event.shiftKey ? this.pan(160) : this.move(1, 0)),
      ArrowUp: () => this.move(0, -1), ArrowDown: () => this.move(0, 1),
      "+": () => this.zoom(0.6), "=": () => this.zoom(0.6), "-": () => this.zoom(1 / 0.6), 0: () => this.fit(),
      v: () => { this.home(); if (this.run.violations[0]) this.select(this.run.violations[0].entry); },
      c: () => e && e.cause !== null && this.select(e.cause, { reveal: true }),
      e: () => e && e.effects.length && this.select(e.effects[0], { reveal: true }),
      r: () => { const on = e && (this.run.into.get(e.id) || []).filter((a) => a.how !== "it was so").at(-1); if (on) this.select(on.from, { reveal: true }); },
      "/": () => document.getElementById("search").focus(),
      "?": () => this.help(), Escape: () => this.select(null),
    };
    const does = keys[event.key];
    if (!does || !this.run) return;
    event.preventDefault();
    does();
  }
  help() {
    const dialog = document.getElementById("help");
    const keys = [["← →", "next entry of the lane"], ["↑ ↓", "next lane"], ["⇧ ← →", "move the window; drag does, too"], ["+ −", "zoom; Ctrl and the wheel do, too"], ["0", "the whole run"], ["v", "the violation"], ["c, e", "the cause, the first effect"], ["r", "what it rests on"], ["/", "search; Enter goes to the next"], ["Esc", "close the details"]];
    const signs = [["●", "a request, a reply, a log line; hollow: a detail"], ["◆", "a write to the API server; a thin line: a read"], ["▶", "an event reaches its watcher"], ["■", "a step of the script"], ["━", "in a watch lane: an event on its way, from its write to its arrival; those that wait lie one above the other"], ["▨", "held, or lagging: the denser, the more revisions behind"], ["red arrow", "the way to the violation"], ["blue arrow", "causes of what is selected; dotted: its effects"]];
    const list = (pairs) => pairs.map(([k, v]) => html`<dt><kbd>${k}</kbd></dt><dd>${v}</dd>`);
    dialog.innerHTML = html`<h2>Keys</h2><dl>${list(keys)}</dl><h2>Signs</h2><dl>${list(signs)}</dl><form method="dialog"><button class="small" autofocus>Close</button></form>`;
    dialog.showModal();
  }
}

/** Two runs side by side: each a page of its own within this one, made of its own text. */
function sideBySide(source) {
  const { remarks, runs } = embedded("index");
  const heads = runs.slice(0, 2).map((r) => html`<iframe title="${r.outcome}: ${r.run_id}"></iframe>`);
  document.body.innerHTML = html`<nav id="runs"><h1>Two runs, from where they part</h1><ul class="remarks">${remarks.map((text) => html`<li>${text}</li>`)}</ul></nav><div class="beside">${heads}</div>`;
  const frames = [...document.querySelectorAll("iframe")];
  frames.forEach((frame, n) => {
    frame.addEventListener("load", () => level(frames));
    frame.srcdoc = source.replace("<html", `<html data-run="${n}"`);
  });
  window.addEventListener("resize", () => level(frames));
}

/** The same lane at the same height on both sides, however much stands above the lanes of one. */
function level(frames) {
  const beside = frames.every((frame) => frame.offsetTop === frames[0].offsetTop);
  for (const id of ["verdict", "tools"]) {
    const parts = frames.map((frame) => frame.contentDocument?.getElementById(id)).filter(Boolean);
    for (const part of parts) part.style.minHeight = "";
    const height = Math.max(...parts.map((part) => part.getBoundingClientRect().height));
    if (beside) for (const part of parts) part.style.minHeight = `${height}px`;
  }
}

performance.mark("script");
const root = document.documentElement;
if (root.dataset.run === undefined && embedded("index").beside) {
  sideBySide(`<!doctype html>${root.outerHTML}`);
} else {
  // For tests and for the console.
  window.photofinish = new App();
}
performance.mark("drawn");
requestAnimationFrame(() => requestAnimationFrame(() => { performance.mark("painted"); root.dataset.ready = "true"; }));
