// The side of the page: how it came to the violation, or all about one entry.

/** The states of an object up to one of them: later ones are told as merge patches (RFC 7396). */
function stateOf(object, n) {
  let value = null;
  let start = n;
  while (start > 0 && object.states[start].patch !== undefined) start--;
  for (let i = start; i <= n; i++) {
    const s = object.states[i];
    value = s.gone ? null : s.patch !== undefined ? merged(value, s.patch) : s.whole;
  }
  return value;
}
function merged(target, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const out = target !== null && typeof target === "object" && !Array.isArray(target) ? { ...target } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete out[key]; else out[key] = merged(out[key] ?? null, value);
  }
  return out;
}

function scalar(value) {
  if (typeof value !== "string") return JSON.stringify(value);
  const plain = /^[A-Za-z_/][\w ./:@+-]*$/.test(value) && !/: |:$| $|^(true|false|null|yes|no|on|off|~)$/i.test(value);
  return plain ? value : JSON.stringify(value);
}
/** YAML, a line an element. */
function yaml(value, indent = "") {
  const isMap = (v) => v !== null && typeof v === "object" && !Array.isArray(v);
  const empty = (v) => (Array.isArray(v) ? v.length === 0 : isMap(v) && Object.keys(v).length === 0);
  const lines = [];
  if (Array.isArray(value)) {
    for (const item of value) {
      if (typeof item === "object" && item !== null && !empty(item)) {
        const inner = yaml(item, indent + "  ");
        lines.push(indent + "- " + inner[0].slice(indent.length + 2), ...inner.slice(1));
      } else lines.push(`${indent}- ${empty(item) ? (Array.isArray(item) ? "[]" : "{}") : scalar(item)}`);
    }
  } else {
    for (const [key, v] of Object.entries(value)) {
      const name = /^[\w./-]+$/.test(key) ? key : JSON.stringify(key);
      if (typeof v === "object" && v !== null && !empty(v)) {
        lines.push(`${indent}${name}:`, ...yaml(v, Array.isArray(v) ? indent : indent + "  "));
      } else lines.push(`${indent}${name}: ${empty(v) ? (Array.isArray(v) ? "[]" : "{}") : scalar(v)}`);
    }
  }
  return lines;
}
/** Lines of both, each `[sign, line]`: the longest common part is kept. */
function lineDiff(before, now) {
  let start = 0;
  while (start < before.length && start < now.length && before[start] === now[start]) start++;
  let end = 0;
  while (end < before.length - start && end < now.length - start && before.at(-1 - end) === now.at(-1 - end)) end++;
  const [a, b] = [before.slice(start, before.length - end), now.slice(start, now.length - end)];
  const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  }
  const out = now.slice(0, start).map((line) => [" ", line]);
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { out.push([" ", a[i]]); i++; j++; }
    else if (i < a.length && (j === b.length || common[i + 1][j] >= common[i][j + 1])) out.push(["-", a[i++]]);
    else out.push(["+", b[j++]]);
  }
  return out.concat(now.slice(now.length - end).map((line) => [" ", line]));
}

const AROUND = 3;

class Details {
  constructor(app) {
    this.app = app;
    this.root = document.getElementById("details");
    this.root.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      if (button.dataset.entry) app.select(Number(button.dataset.entry), { reveal: true });
      if (button.dataset.unfold !== undefined) this.unfold(button);
      if (button.dataset.close !== undefined) app.select(null);
    });
  }

  draw() {
    const { run, state } = this.app;
    this.root.innerHTML = state.selected === null ? this.story(run) : this.entry(run, run.entries[state.selected]);
    this.root.scrollTop = 0;
  }

  step(e, { how = "", className = "" } = {}) {
    const { run } = this.app;
    const lane = run.lanes.find((l) => l.n === e.lane);
    const time = run.zero === null ? seconds(e.at) : run.broken.has(e.id) && e.at === run.zero ? "here" : relative(e.at - run.zero);
    return html`<li><button data-entry="${e.id}" class="${className}" style="--lane:${new Raw(laneColour(lane || { group: "script" }))}"><span class="time">${time}</span><span><span class="host">${lane ? lane.title : e.host}</span> ${e.label}${how ? html` <span class="how">${how}</span>` : ""}</span></button></li>`;
  }

  /** The way to each violation, told in order. */
  story(run) {
    const already = new Set();
    const told = run.violations.map((v, n) => {
      const ids = new Set([v.entry, ...v.led]);
      const how = new Map();
      for (const a of run.arrows) if (a.story && a.story.includes(n)) { ids.add(a.from).add(a.to); if (a.how !== "caused" && a.how !== "it was so") how.set(a.to, a.how); }
      // What was told of an earlier violation need not be told again.
      const steps = [...ids].sort((a, b) => a - b).filter((id) => !already.has(id) || id === v.entry).map((id) => this.step(run.entries[id], { how: how.get(id), className: id === v.entry ? "end" : "" }));
      ids.forEach((id) => already.add(id));
      return html`<h2>${v.property}</h2><p class="meta">${v.sentence}</p><p class="text">${v.why}.</p><ol class="chain">${steps}</ol>`;
    });
    if (told.length) return html`<h3>How it came to this</h3>${told.slice(0, 1)}${told.length > 1 ? html`<h3>And then</h3>${told.slice(1)}` : ""}`;
    const steps = run.entries.filter((e) => e.kind === "step" || e.kind === "choice").slice(0, 60).map((e) => this.step(e));
    return html`<h3>What the script did</h3>${run.end ? html`<p class="text">${run.end}</p>` : ""}${run.vacuous.length ? html`<p>Nothing let these be judged: ${run.vacuous.join(", ")}</p>` : ""}<ol class="chain">${steps}</ol>`;
  }

  entry(run, e) {
    const lane = run.lanes.find((l) => l.n === e.lane);
    const zero = run.zero !== null ? html` <span class="meta">(${e.at === run.zero ? "at the violation" : `${relative(e.at - run.zero)} from the violation`})</span>` : "";
    const broken = (run.broken.get(e.id) || []).map((v) => html`<p class="text"><b style="color:var(--bad)">${v.property}</b>: ${v.why}.</p>`);
    const fields = e.fields.map(([k, v]) => html`<dt>${k}</dt><dd class="mono">${v === "" ? "—" : v}</dd>`);
    return html`<p style="float:right;margin:0"><button class="small" data-close aria-label="Close the details ( Esc )">✕</button></p>
<h2>${e.label}</h2>
<p class="meta">${lane ? lane.title : e.host} · entry ${e.id} · ${e.kind}${e.kind === e.name ? "" : ` ${e.name}`}${e.subject ? ` · about ${e.subject}` : ""}</p>
<p>${seconds(e.at)}${zero}</p>
${broken}
${e.text && e.text !== e.label ? html`<p class="text">${e.text}</p>` : ""}
${e.spans.length ? html`<p class="meta">in ${e.spans.join(" › ")}</p>` : ""}
${fields.length ? html`<h3>Fields</h3><dl>${fields}</dl>` : ""}
${this.rests(run, e)}
${this.causes(run, e)}
${this.effects(run, e)}
${this.object(run, e)}`;
  }

  rests(run, e) {
    const on = (run.into.get(e.id) || []).filter((a) => a.how !== "caused");
    const for_ = (run.outOf.get(e.id) || []).filter((a) => a.how !== "caused").slice(0, 12);
    const list = (title, arrows, end) => (arrows.length ? html`<h3>${title}</h3><ol class="chain">${arrows.map((a) => this.step(run.entries[a[end]], { how: a.how }))}</ol>` : "");
    return html`${list("Rests on", on, "from")}${list("What rests on it", for_, "to")}`;
  }

  causes(run, e) {
    const chain = [];
    for (let id = e.cause; id !== null && chain.length < 400; id = run.entries[id].cause) chain.push(id);
    if (!chain.length) return "";
    chain.reverse();
    const steps = [];
    let hidden = 0;
    chain.forEach((id, i) => {
      const c = run.entries[id];
      if (c.weight < 2 && i < chain.length - 3 && i > 0) { hidden++; return; }
      if (hidden) steps.push(html`<li class="gap">${hidden} more between</li>`);
      hidden = 0;
      steps.push(this.step(c));
    });
    return html`<h3>Caused by</h3><ol class="chain">${steps}${this.step(e, { className: "here" })}</ol>`;
  }

  effects(run, e) {
    if (!e.effects.length) return "";
    const shown = e.effects.slice(0, 8);
    const more = e.effects.length - shown.length;
    return html`<h3>Caused</h3><ol class="chain">${shown.map((id) => this.step(run.entries[id]))}${more ? html`<li class="gap">and ${more} more</li>` : ""}</ol>`;
  }

  /** The object at the revision that an entry names, with what the revision changed. */
  object(run, e) {
    const rv = field(e, "rv") ?? field(e, "resource_version");
    const found = rv !== undefined && (e.kind !== "log" || field(e, "resource_version") && /snapshot/.test(e.text)) ? run.states.get(Number(rv)) : undefined;
    if (!found) return "";
    const [o, s] = found;
    const object = run.objects[o];
    const now = stateOf(object, s);
    const before = s > 0 ? stateOf(object, s - 1) : null;
    const title = brief(`${object.resource}/${object.name}`);
    const last = object.states.at(-1).rv;
    const writer = object.states[s].entry !== undefined && object.states[s].entry !== e.id ? html` <button class="small" data-entry="${object.states[s].entry}">its write</button>` : "";
    const stale = Number(rv) < last ? html` <span class="meta">of later ${last}</span>` : "";
    const diff = lineDiff(before === null ? [] : yaml(before), now === null ? [] : yaml(now));
    return html`<h3>${title} at rv ${rv}${stale}</h3>${now === null ? html`<p>It was removed.</p>` : ""}${writer}<div class="yaml" tabindex="0" role="region" aria-label="${title} at revision ${rv}, changes marked">${this.folded(diff, before === null)}</div>`;
  }

  /** Changed lines with those around them; the rest can be unfolded. A new object is shown whole. */
  folded(diff, whole) {
    const near = diff.map(([sign], i) => whole || diff.slice(Math.max(i - AROUND, 0), i + AROUND + 1).some(([s]) => s !== " ") || sign !== " ");
    const out = [];
    let i = 0;
    while (i < diff.length) {
      if (near[i]) {
        const [sign, line] = diff[i++];
        const className = whole || sign === " " ? "" : sign === "+" ? "add" : "del";
        out.push(html`<div class="${className}">${line}</div>`);
        continue;
      }
      const start = i;
      while (i < diff.length && !near[i]) i++;
      const hidden = diff.slice(start, i).map(([, line]) => html`<div>${line}</div>`);
      out.push(html`<button data-unfold>⋯ ${i - start} unchanged lines</button><div hidden style="padding:0">${hidden}</div>`);
    }
    return out;
  }
  unfold(button) {
    button.nextElementSibling.hidden = false;
    button.remove();
  }
}
