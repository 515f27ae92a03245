// The drawing: only what is in sight becomes elements, and marks that would lie on each other become one.

const AXIS = 34;
const NEAR_PX = 4;
const ARROWS_LIMIT = 160;
const PALETTE = 8;
const BOLD = "650 11px system-ui, sans-serif";

const pen = document.createElement("canvas").getContext("2d");
const widths = new Map();
function textWidth(text, font = "11px system-ui, sans-serif") {
  const key = font + text;
  if (!widths.has(key)) {
    if (widths.size > 20000) widths.clear();
    pen.font = font;
    widths.set(key, pen.measureText(text).width * 1.04);
  }
  return widths.get(key);
}
function fitted(text, room, font) {
  if (textWidth(text, font) <= room) return text;
  let n = Math.floor(text.length * room / textWidth(text, font));
  while (n > 1 && textWidth(text.slice(0, n) + "…", font) > room) n--;
  return n > 2 ? text.slice(0, n).trimEnd() + "…" : "";
}

/** Colours of states, in the order in which they come up. */
function stateColours(run) {
  const colours = new Map();
  for (const { stretches } of run.beliefs) {
    for (const { state } of stretches) {
      const word = (state || "").split(" ")[0];
      if (state && !colours.has(word)) colours.set(word, `var(--s${colours.size % PALETTE})`);
    }
  }
  return (state) => colours.get((state || "").split(" ")[0]) || "transparent";
}

function laneColour(lane) {
  return `var(--${lane.group})`;
}

/** A shape for each kind of entry, around 0,0. */
function shape(e) {
  switch (e.kind) {
    case "http": return e.weight > 0 ? '<path class="shape" d="M0-5 5 0 0 5-5 0z"/>' : '<path class="shape" d="M-.6-5h1.2v10h-1.2z"/>';
    case "watch": return '<path class="shape" d="M-3.6-4.6 4.6 0-3.6 4.6z"/>';
    case "step": case "net": return '<rect class="shape" x="-4" y="-4" width="8" height="8" rx="1.5"/>';
    case "span": case "span-end": return '<path class="shape" d="M-1-6h2V6h-2z"/>';
    default: return `<circle class="shape" r="${e.weight === 2 ? 4.6 : e.weight === 1 ? 3.6 : 2.2}"/>`;
  }
}

function failed(e) {
  if (e.kind === "panic") return true;
  if (e.kind === "reply") return field(e, "code") !== undefined && field(e, "code") !== "0";
  if (e.kind === "http") { const s = Number(field(e, "status")); return s >= 400 && s !== 404; }
  return e.kind === "log" && (e.name === "error" || e.name === "warn");
}

// The chart on paper, in CSS pixels: below its verdict it fits on a page of A4 or letter, landscape. The style sheet says
// the same widths.
const PAPER = { width: 970, titles: 158, height: 480 };

class Chart {
  constructor(app) {
    this.app = app;
    this.canvas = document.getElementById("canvas");
    this.titles = document.getElementById("titles");
    this.overview = document.getElementById("overview");
  }

  /** Lanes, scale and sizes, after anything but the window has changed. */
  layOut() {
    const { run, app } = this;
    const { state } = app;
    this.colour ||= stateColours(run);
    this.lanes = run.lanes.filter((lane) => {
      lane.shown = lane.marks.filter((m) => app.visible(m.e, lane));
      // A lane in which nothing is shown says nothing.
      return !app.hiddenLane(lane) && (lane.shown.length > 0 || lane.bars.length > 0 || lane.kind === "belief");
    });
    this.scale = scale(run, (e) => e.weight >= state.weight, state.folded);
    let y = AXIS;
    this.laneY = new Map();
    for (const lane of this.lanes) {
      lane.y = y;
      this.laneY.set(lane, y);
      y += lane.height;
    }
    this.height = y + 6;
    // Where arrows to an entry end: in the first lane that shows it.
    this.place = new Map();
    for (const lane of this.lanes) {
      lane.shown.forEach((m) => { m.x = this.scale.x[m.e.id]; });
      for (const m of lane.shown) if (!this.place.has(m.e.id)) this.place.set(m.e.id, lane);
    }
    // What is true is shown as a belief is, not as marks.
    const truths = new Map(this.lanes.filter((l) => l.kind === "belief" && !l.belief.holder).map((l) => [l.subject, l]));
    for (const e of run.entries) {
      if (e.kind === "state" && !this.place.has(e.id) && truths.has(e.subject)) this.place.set(e.id, truths.get(e.subject));
    }
    let group = "";
    this.titles.innerHTML = `<div class="axis" style="height:${AXIS}px">time</div>` + this.lanes.map((lane) => {
      const first = lane.group !== group;
      group = lane.group;
      return html`<div class="${first ? "first" : ""}" style="height:${lane.height}px" title="${lane.hint || lane.title}"><span>${lane.title}</span></div>`;
    }).join("");
    this.drawOverview();
  }

  get run() { return this.app.run; }
  /** Asked of the page only once a drawing: it is asked for with every mark. */
  get width() { return this.known ?? (this.canvas.clientWidth || 800); }
  px(unit) {
    const { from, to } = this.app.window;
    return (unit - from) / (to - from) * this.width;
  }
  unit(px) {
    const { from, to } = this.app.window;
    return from + px / this.width * (to - from);
  }
  xOf(id) { return this.px(this.scale.x[id]); }
  midY(lane) { return lane.y + 13; }

  draw() {
    this.known = this.paper;
    const { width } = this;
    this.known = width;
    const parts = [];
    parts.push(this.defs(), this.axis(width), this.bands(width));
    const marks = [];
    for (const lane of this.lanes) {
      if (lane.kind === "belief") marks.push(this.belief(lane, width));
      else marks.push(this.bars(lane, width), this.marks(lane, width));
    }
    parts.push(...marks, this.arrows(width), this.violations(width), this.noted(), this.cursor());
    this.canvas.innerHTML = `<svg width="${width}" height="${this.height}" role="presentation">${parts.join("")}</svg>`;
    this.drawWindow();
  }

  defs() {
    const head = (id, colour) => `<marker id="${id}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0 .8 7.4 4 0 7.2z" style="fill:${colour}"/></marker>`;
    return `<defs>${head("to", "var(--faint)")}${head("to-story", "var(--bad)")}${head("to-chain", "var(--accent)")}
<pattern id="held" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="7" height="7" style="fill:var(--bad)" opacity=".05"/><path d="M0 0V7" style="stroke:var(--bad)" stroke-width="2" opacity=".22"/></pattern>
<pattern id="lagging" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><path d="M0 0V6" style="stroke:var(--ink)" stroke-width="2.4"/></pattern></defs>`;
  }

  axis(width) {
    const { run } = this;
    const out = [];
    let lastPx = -1e9;
    let lastAt = -1;
    const [first, last] = this.inWindow();
    const usual = last - first > 6e10 ? 1 : last - first > 3e7 ? 3 : 4;
    const ticks = [];
    const start = firstFrom(run.entries.length, (i) => this.scale.x[i], this.app.window.from);
    for (let i = start; i < run.entries.length; i++) {
      const px = this.xOf(i);
      if (px > width) break;
      const e = run.entries[i];
      if (e.at === lastAt || px - lastPx < 84 || px > width - 60) continue;
      ticks.push({ px, at: e.at });
      lastPx = px;
      lastAt = e.at;
    }
    // Two ticks that read alike would be no axis.
    const alike = (decimals) => ticks.some((t, i) => i > 0 && (t.at / 1e9).toFixed(decimals) === (ticks[i - 1].at / 1e9).toFixed(decimals));
    let decimals = usual;
    while (decimals < 6 && alike(decimals)) decimals++;
    for (const { px, at } of ticks) {
      out.push(`<path class="tick" d="M${px.toFixed(1)} ${AXIS - 5}V${this.height}"/>`,
        `<text class="tick-text" x="${(px + 3).toFixed(1)}" y="${AXIS - 6}">${(at / 1e9).toFixed(decimals)} s</text>`);
    }
    for (const gap of this.scale.gaps) {
      const [a, b] = [this.px(gap.from), this.px(gap.to)];
      const text = duration(gap.ns);
      if (b < 0 || a > width || b - a < textWidth(text) + 8) continue;
      out.push(`<rect x="${a.toFixed(1)}" y="${AXIS}" width="${(b - a).toFixed(1)}" height="${this.height - AXIS}" class="lane-band" opacity=".4"/>`,
        `<text class="quiet" x="${((a + b) / 2).toFixed(1)}" y="${AXIS + 10}" text-anchor="middle">${text}</text>`);
    }
    return out.join("");
  }

  /** When the first and the last entry in sight happened. */
  inWindow() {
    const { entries } = this.run;
    const at = (unit) => entries[Math.min(Math.max(firstFrom(entries.length, (i) => this.scale.x[i], unit), 0), entries.length - 1)].at;
    return [at(this.app.window.from), at(this.app.window.to)];
  }

  bands(width) {
    let group = "";
    return this.lanes.map((lane, n) => {
      const first = lane.group !== group;
      group = lane.group;
      const y = lane.y;
      const band = n % 2 ? `<rect class="lane-band" x="0" y="${y}" width="${width}" height="${lane.height}"/>` : "";
      return band + (first ? `<path class="lane-line" d="M0 ${y}.5H${width}"/>` : "");
    }).join("");
  }

  belief(lane, width) {
    const { stretches } = lane.belief;
    const out = [];
    const top = lane.y + 4;
    const height = lane.height - 8;
    stretches.forEach((s, i) => {
      const a = this.xOf(s.from);
      const b = i + 1 < stretches.length ? this.xOf(stretches[i + 1].from) : this.px(this.scale.end);
      if (b < 0 || a > width || b - a < 0.3) return;
      const [l, r] = [Math.max(a, -2), Math.min(b, width + 2)];
      const colour = this.colour(s.state);
      const lag = s.behind ? `${s.behind} behind` : "";
      const words = `${lane.belief.holder || "true"}: ${lane.subject} ${s.state || "not there"}${s.rv ? `, rests on rv ${s.rv}` : ""}${s.behind ? `, ${s.behind} revisions behind, the oldest ${duration(s.lag_ns || 0)} old` : ""}`;
      const changed = i === 0 || stretches[i - 1].state !== s.state;
      out.push(`<g class="mark belief-stretch" data-entry="${s.at}" data-state="${escape(s.state || "")}" data-behind="${s.behind || 0}" style="--c:${colour}" role="img" aria-label="${escape(words)}"><title>${escape(words)}</title>`,
        `<rect class="stretch" x="${l.toFixed(1)}" y="${top}" width="${Math.max(r - l, 0.5).toFixed(1)}" height="${height}"/>`);
      if (s.behind) out.push(`<rect class="lag" x="${l.toFixed(1)}" y="${top}" width="${Math.max(r - l, 0.5).toFixed(1)}" height="${height}" opacity="${Math.min(0.05 + 0.03 * s.behind, 0.22).toFixed(2)}"/>`);
      if (changed && a >= -2) out.push(`<rect class="stretch-edge" x="${l.toFixed(1)}" y="${top}" width="3" height="${height}"/>`);
      // One text for all stretches of a state: the words stay in sight while it lasts.
      if (changed || a < 0 && b > 0) {
        let end = r;
        let last = s;
        let j = i + 1;
        for (; j < stretches.length && stretches[j].state === s.state; j++) last = stretches[j];
        end = j < stretches.length ? this.xOf(stretches[j].from) : this.px(this.scale.end);
        const room = Math.min(end, width) - l - 12;
        const name = fitted(s.state || "not there", room, "600 11.5px system-ui, sans-serif");
        if (room > 22 && name) {
          const rest = [];
          let left = room - textWidth(name, "600 11.5px system-ui, sans-serif") - 8;
          const basis = s.rv && lane.belief.holder ? `on rv ${s.rv}` : s.rv ? `rv ${s.rv}` : "";
          if (basis && textWidth(basis) < left) { rest.push(`<tspan class="basis" dx="6">${basis}</tspan>`); left -= textWidth(basis) + 8; }
          if (lag && textWidth(lag) < left) rest.push(`<tspan class="behind" dx="6">${lag}</tspan>`);
          out.push(`<text class="state" x="${(l + 8).toFixed(1)}" y="${top + height / 2 + 4}">${escape(name)}${rest.join("")}</text>`);
        }
      }
      out.push("</g>");
    });
    return out.join("");
  }

  bars(lane, width) {
    const out = [];
    const top = lane.y;
    for (const bar of lane.bars) {
      const a = this.xOf(bar.from);
      const b = bar.to === null ? this.px(this.scale.end) : this.xOf(bar.to);
      if (b < 0 || a > width || b - a < 1) continue;
      const [l, r] = [Math.max(a, -4), Math.min(b, width + 4)];
      const e = this.run.entries[bar.from];
      if (bar.kind === "wait") {
        const y = top + 26 + Math.min(bar.slot, 5) * 8;
        const story = this.app.storyPair(bar.from, bar.to);
        const words = `rv ${bar.rv} waited ${duration(this.run.entries[bar.to].at - e.at)}`;
        out.push(`<g class="mark" data-entry="${bar.to}" data-held="${bar.rv}" style="--c:${laneColour(lane)}"><title>${words}</title>`,
          `<rect class="bar wait ${story ? "story" : ""}" x="${l.toFixed(1)}" y="${y}" width="${(r - l).toFixed(1)}" height="4" rx="2"/></g>`);
        const text = `rv ${bar.rv}`;
        if (r - l > 60) out.push(`<text class="wait-text ${story ? "story" : ""}" x="${(Math.max(l, 0) - (a > 34 ? 4 : -2)).toFixed(1)}" y="${y + 5}" text-anchor="${a > 34 ? "end" : "start"}">${text}</text>`);
        continue;
      }
      const tall = bar.kind === "hold" || bar.kind === "down";
      const words = bar.kind === "hold" ? `held as ${field(e, "as")}` : bar.kind === "down" ? `${e.host} is ${e.name === "pause" ? "paused" : "down"}` : e.label;
      out.push(`<rect class="bar ${bar.kind}" style="--c:${laneColour(lane)}" x="${l.toFixed(1)}" y="${top + (tall ? 1 : 7)}" width="${(r - l).toFixed(1)}" height="${tall ? lane.height - 2 : 12}" rx="${tall ? 2 : 6}"><title>${escape(words)}</title></rect>`);
      if (bar.kind === "hold" && r - l > textWidth(words) + 12) {
        out.push(`<text class="bar-text" x="${((Math.max(l, 0) + r) / 2).toFixed(1)}" y="${top + 11}" text-anchor="middle">${escape(words)}</text>`);
      }
    }
    return out.join("");
  }

  marks(lane, width) {
    const { app } = this;
    const { shown } = lane;
    const first = Math.max(firstFrom(shown.length, (i) => shown[i].x, this.unit(-40)) - 1, 0);
    const y = this.midY(lane);
    const colour = laneColour(lane);
    const seen = [];
    for (let i = first; i < shown.length; i++) {
      const px = this.px(shown[i].x);
      if (px > width + 20) break;
      const m = shown[i];
      const special = app.isSpecial(m.e);
      const last = seen.at(-1);
      // What matters is never hidden behind what lies beside it.
      if (last && !special && !last.special && px - last.px < NEAR_PX && m.e.weight <= Math.max(last.m.e.weight, 1)) {
        last.count++;
        last.px = px;
        last.also.push(m.e.id);
        continue;
      }
      seen.push({ m, x0: px, px, count: 1, special, also: [m.e.id] });
    }
    const out = [];
    let next = width + 200;
    const labels = new Map();
    // Stretches of the line of words, or of the lane itself, that are taken: by words, and where marks lie, by marks.
    const taken = lane.wordy ? [] : seen.map((s) => [s.x0 - 7, s.px + 7]);
    const byWeight = [...seen.keys()].sort((a, b) => app.rank(seen[b].m.e) - app.rank(seen[a].m.e) || a - b);
    for (const i of byWeight) {
      const s = seen[i];
      if (s.count > 1 || s.m.e.weight < 1) continue;
      // Arrows come in below a mark: words stand beside that.
      const from = s.px + (lane.wordy ? 6 : 8);
      const font = this.run.broken.has(s.m.e.id) ? BOLD : undefined;
      if (taken.some(([a, b]) => from >= a - 4 && from <= b)) continue;
      const room = taken.reduce((min, [a]) => (a > from ? Math.min(min, a - 5) : min), next) - from;
      const text = fitted(this.markLabel(s.m, lane), room, font);
      if (!text || room < 24) continue;
      labels.set(i, text);
      taken.push([from, from + textWidth(text, font) + 6]);
    }
    seen.forEach((s, i) => {
      const { e } = s.m;
      const dim = app.dimmed(e) ? " dim" : "";
      if (s.count > 1) {
        const words = `${s.count} entries, ${e.label} …`;
        const w = Math.max(s.px - s.x0, 2) + 4;
        out.push(`<g class="mark cluster${dim}" data-entry="${e.id}" data-also="${s.also.length}" style="--c:${colour}" role="img" aria-label="${escape(words)}"><title>${escape(words)}</title><rect class="shape" x="${(s.x0 - 2).toFixed(1)}" y="${y - 3 - Math.min(s.count, 12) / 4}" width="${w.toFixed(1)}" height="${6 + Math.min(s.count, 12) / 2}" rx="2"/></g>`);
        return;
      }
      const broken = this.run.broken.has(e.id) && lane === this.place.get(e.id);
      const classes = `mark w${e.weight}${broken ? " broken" : ""}${this.run.led.has(e.id) ? " led" : ""}${failed(e) ? " err" : ""}${e.id === app.state.selected ? " here" : ""}${app.found(e) ? " hit-search" : ""}${dim}`;
      const words = `${seconds(e.at)}, ${lane.title}: ${e.label}${broken ? `. Violates ${this.run.broken.get(e.id).map((v) => v.property).join(", ")}` : ""}`;
      out.push(`<g class="${classes}" data-entry="${e.id}" transform="translate(${s.px.toFixed(1)} ${y})" style="--c:${colour}" role="img" aria-label="${escape(words)}"><title>${escape(words)}</title><rect class="hit" x="-6" y="-11" width="12" height="22"/>${shape(e)}${broken || this.run.led.has(e.id) ? '<circle class="ring" r="9"/>' : ""}${e.id === app.state.selected ? '<circle class="ring-here" r="9"/>' : ""}</g>`);
      const text = labels.get(i);
      if (text) out.push(`<text class="label w${e.weight}${broken ? " broken" : ""}${dim}" x="${(s.px + (lane.wordy ? 6 : 8)).toFixed(1)}" y="${lane.wordy ? y + 20 : y + 4}"${dim ? ' opacity=".25"' : ""}>${escape(text)}</text>`);
    });
    return out.join("");
  }

  markLabel(mark, lane) {
    if (mark.state) return lane.id === "objects" ? `${brief(mark.object.name)} rv ${mark.state.rv}` : `rv ${mark.state.rv}${mark.state.gone ? " gone" : ""}`;
    if (lane.kind === "stream") return mark.e.label.replace(/^MODIFIED \S+ /, "");
    return mark.e.label;
  }

  arrows(width) {
    const { app, run } = this;
    const chain = new Set(app.chain().map(([from, to]) => `${from} ${to}`));
    const wanted = [];
    for (const a of run.arrows) if (a.story) wanted.push({ ...a, kind: a.how === "it was so" ? "story was" : "story", head: "to-story" });
    for (const [from, to] of app.chain()) wanted.push({ from, to, how: "", kind: "chain", head: "to-chain" });
    if (app.state.selected !== null) {
      for (const to of run.entries[app.state.selected].effects.slice(0, 24)) wanted.push({ from: app.state.selected, to, how: "", kind: "effect", head: "to-chain" });
    }
    const quiet = run.arrows.filter((a) => !a.story && !a.how.startsWith("event") && this.inSight(a, width));
    if (quiet.length < ARROWS_LIMIT) wanted.unshift(...quiet.map((a) => ({ ...a, kind: "", head: "to" })));
    return wanted.filter((a) => (a.kind !== "story" && a.kind !== "" || !chain.has(`${a.from} ${a.to}`))).map((a) => this.arrow(a, width)).join("");
  }
  inSight({ from, to }, width) {
    const [a, b] = [this.xOf(from), this.xOf(to)];
    return b > 0 && a < width && b - a < width * 2;
  }
  arrow({ from, to, how, kind, head }, width) {
    const [one, other] = [this.place.get(from), this.place.get(to)];
    if (!one || !other) return "";
    const [x1, x2] = [this.xOf(from), this.xOf(to)];
    if (Math.max(x1, x2) < -10 || Math.min(x1, x2) > width + 10) return "";
    const [y1, y2] = [this.midY(one), this.midY(other)];
    let d;
    if (one === other) {
      const lift = Math.min(12, 4 + (x2 - x1) / 8);
      d = `M${x1.toFixed(1)} ${y1 - 6}C${x1.toFixed(1)} ${y1 - 6 - lift} ${x2.toFixed(1)} ${y2 - 6 - lift} ${x2.toFixed(1)} ${y2 - 8}`;
    } else {
      const down = y2 > y1 ? 1 : -1;
      const bend = Math.min(Math.abs(y2 - y1) * 0.6, 46) * down;
      d = `M${x1.toFixed(1)} ${y1 + 6 * down}C${x1.toFixed(1)} ${y1 + bend} ${x2.toFixed(1)} ${y2 - bend} ${x2.toFixed(1)} ${y2 - 9 * down}`;
    }
    const words = how ? `${how}: from ${this.run.entries[from].label} to ${this.run.entries[to].label}` : "";
    return `<path class="arrow ${kind}" d="${d}" marker-end="url(#${head})" data-from="${from}" data-to="${to}"${words ? ` role="img" aria-label="${escape(words)}"><title>${escape(words)}</title></path>` : "/>"}`;
  }

  violations(width) {
    const out = [];
    const flags = [];
    for (const [id, all] of this.run.broken) {
      const x = this.xOf(id);
      if (x < -2 || x > width + 2) continue;
      const text = all.length > 1 ? `${all[0].property} +${all.length - 1}` : all[0].property;
      const w = textWidth(text, BOLD) + 14;
      const left = x + w > width ? x - w : x;
      const row = flags.some((f) => left < f + 4) ? 1 : 0;
      flags.push(left + w);
      out.push(`<path class="violation-line" d="M${x.toFixed(1)} ${row ? 17 : 0}V${this.height}"/>`,
        `<g class="flag mark" data-entry="${id}" data-violation="${escape(all.map((v) => v.property).join(" "))}" role="img" aria-label="${escape(`violated here: ${all.map((v) => v.property).join(", ")}`)}"><title>${escape(all.map((v) => `${v.property}: ${v.why}`).join("\n"))}</title><rect x="${left.toFixed(1)}" y="${row ? 17 : 0}" width="${w.toFixed(1)}" height="16" rx="3"/><text x="${(left + 7).toFixed(1)}" y="${row ? 29 : 12}">${escape(text)}</text></g>`);
    }
    return out.join("");
  }

  /** A flag of whoever made the page. */
  noted() {
    const { mark } = this.run;
    if (!mark) return "";
    const x = this.xOf(mark[0]);
    const w = textWidth(mark[1], BOLD) + 14;
    return `<path class="noted-line" d="M${x.toFixed(1)} 0V${this.height}"/><g class="flag noted mark" data-entry="${mark[0]}" role="img" aria-label="${escape(mark[1])}"><rect x="${x.toFixed(1)}" y="0" width="${w.toFixed(1)}" height="16" rx="3"/><text x="${(x + 7).toFixed(1)}" y="12">${escape(mark[1])}</text></g>`;
  }

  cursor() {
    const { selected } = this.app.state;
    if (selected === null) return "";
    const x = this.xOf(selected).toFixed(1);
    return `<path class="cursor-line" d="M${x} ${AXIS}V${this.height}"/>`;
  }

  drawOverview() {
    const width = this.overview.clientWidth || 600;
    const height = 44;
    const counts = new Float64Array(Math.ceil(width / 3) + 1);
    for (const e of this.run.entries) if (e.weight >= this.app.state.weight) counts[Math.floor(this.scale.x[e.id] / this.scale.end * width / 3)]++;
    const most = Math.max(...counts, 1);
    const out = [];
    counts.forEach((n, i) => {
      if (!n) return;
      const h = Math.max(2, Math.sqrt(n / most) * 20);
      out.push(`<rect class="over-bar" x="${i * 3}" y="${(26 - h).toFixed(1)}" width="2" height="${h.toFixed(1)}"/>`);
    });
    this.run.beliefs.filter((b) => b.holder).slice(0, 2).forEach((belief, n) => {
      belief.stretches.forEach((s, i) => {
        const a = this.scale.x[s.from] / this.scale.end * width;
        const next = belief.stretches[i + 1];
        const b = next ? this.scale.x[next.from] / this.scale.end * width : width;
        out.push(`<rect style="fill:${this.colour(s.state)}" x="${a.toFixed(1)}" y="${30 + n * 6}" width="${Math.max(b - a, 0.5).toFixed(1)}" height="5"/>`);
      });
    });
    for (const id of this.run.broken.keys()) {
      const x = (this.scale.x[id] / this.scale.end * width).toFixed(1);
      out.push(`<path class="over-bad" d="M${x} 2V42"/>`);
    }
    this.overview.innerHTML = `<svg width="${width}" height="${height}">${out.join("")}<rect class="over-window" y="1" height="${height - 2}" rx="3"/></svg>`;
    this.drawWindow();
  }
  drawWindow() {
    const rect = this.overview.querySelector(".over-window");
    if (!rect) return;
    const width = this.overview.clientWidth || 600;
    const { from, to } = this.app.window;
    const a = Math.max(from / this.scale.end * width, 0);
    const b = Math.min(to / this.scale.end * width, width);
    rect.setAttribute("x", a.toFixed(1));
    rect.setAttribute("width", Math.max(b - a, 3).toFixed(1));
  }
}
