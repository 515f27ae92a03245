// The head of a sweep's page: what was found, how soon, how fast, and how much of what could go another way was tried.

class Sweep {
  constructor(app) {
    this.app = app;
    this.data = embedded("swept");
    this.place = document.getElementById("sweep");
    this.place.hidden = false;
    this.place.innerHTML = String(this.page());
    document.title = `Sweep: ${this.data.what[0]}`;
    this.place.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-section]");
      if (button) this.open(Number(button.dataset.section));
      const copy = event.target.closest("button[data-copy]");
      if (copy) navigator.clipboard?.writeText(copy.dataset.copy).then(() => { copy.textContent = "copied"; });
    });
  }

  /** Shows the run of a finding below. */
  open(section) {
    this.app.load(section);
    this.shows(section);
    document.getElementById("verdict").scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  }
  shows(section) {
    for (const row of this.place.querySelectorAll("tr[data-row]")) row.setAttribute("aria-current", String(Number(row.dataset.row) === section));
  }

  page() {
    const { data } = this;
    const [names, ...how] = data.what;
    return html`<div class="head"><p class="eyebrow">Sweep</p><h1>${names}</h1><p class="facts">${how.join(" · ")}${data.ended ? ` · ended early: ${data.ended}` : ""}</p></div>
${this.tiles()}
${this.outcomes()}
${this.findings()}
${this.curves()}
${this.coverage()}`;
  }

  tiles() {
    const { data } = this;
    const [taken, known] = data.choices;
    const cells = data.grid ? data.grid.states.length * data.grid.events.length : 0;
    const met = data.grid ? data.grid.cells.flat().filter(Boolean).length : 0;
    const soonest = data.findings.filter((f) => f.times > 0).sort((a, b) => a.found_after_runs - b.found_after_runs)[0];
    const tile = (value, unit, what, note = "") => html`<div class="tile"><dt>${what}</dt><dd><b>${value}</b>${unit ? html` <span>${unit}</span>` : ""}</dd>${note ? html`<p>${note}</p>` : ""}</div>`;
    return html`<dl class="tiles">
${tile(counted(data.runs), "", "runs", data.replayed ? `${data.replayed} of them remembered from before` : `in ${wall(data.seconds)}`)}
${tile(rate(data.runs / Math.max(data.seconds, 1e-3)), "per second", "speed", "all cores together")}
${tile(String(data.findings.length), data.findings.length === 1 ? "finding" : "findings", "found", data.findings.length ? "ways to fail that differ" : "nothing failed")}
${soonest ? tile(counted(soonest.found_after_runs), soonest.found_after_runs === 1 ? "run" : "runs", "first bug after", `${wall(soonest.found_after_seconds)}: ${soonest.property}`) : ""}
${tile(percent(taken, known), "", "choices tried", `${counted(taken)} of ${counted(known)} that a run without faults has`)}
${cells ? tile(percent(met, cells), "", "pairs met", `${met} of ${cells}: ${data.grid.state} × ${data.grid.event}`) : ""}
</dl>`;
  }

  outcomes() {
    const { data } = this;
    if (!data.outcomes.length) return "";
    const parts = data.outcomes.map(([name, n]) => html`<span class="part ${name}" style="flex-grow:${n}" title="${n} ${name}"></span>`);
    const legend = data.outcomes.map(([name, n]) => html`<li><i class="part ${name}"></i>${counted(n)} ${name === "holds" ? (n === 1 ? "holds" : "hold") : name}</li>`);
    return html`<div class="outcomes"><div class="stack" aria-hidden="true">${parts}</div><ul>${legend}</ul></div>`;
  }

  findings() {
    const { data } = this;
    if (!data.findings.length) {
      const n = data.runs - data.replayed;
      return html`<h2>Findings</h2><p class="none">None. ${n ? `With 95 % confidence fewer than ${(Math.min(3 / n, 1) * 100).toPrecision(2)} % of such runs fail (rule of three).` : ""}</p>`;
    }
    // The script's own expectations come last: many faults lead there.
    const rows = [...data.findings].sort((a, b) => (a.property === "script") - (b.property === "script") || a.found_after_runs - b.found_after_runs);
    const scenarios = new Set(data.findings.map((f) => f.scenario));
    const row = (f) => {
      const [low, high] = f.interval;
      const name = f.section === null ? html`<b>${f.property}</b>` : html`<button data-section="${f.section}"><b>${f.property}</b></button>`;
      const after = f.times ? html`<td class="num" data-name="first after">${counted(f.found_after_runs)}<small>${wall(f.found_after_seconds)}</small></td>` : html`<td class="num" data-name="first after">–<small>remembered</small></td>`;
      return html`<tr data-row="${f.section ?? ""}"><td class="what">${name} <span class="of" title="known as ${f.fingerprint}">of ${f.object}</span>${scenarios.size > 1 ? html` <span class="of">in ${f.scenario}</span>` : ""}${f.outcome === "violated" ? "" : html` <span class="outcome ${f.outcome}">${f.outcome}</span>`}${f.why || f.sentence ? html`<p title="${f.sentence}">${f.why || f.sentence}</p>` : ""}</td>
${after}
<td class="num" data-name="in runs">${counted(f.times)}<small>of ${counted(f.drawn)}</small></td>
<td class="often" data-name="how often">${interval(f.times / Math.max(f.drawn, 1), low, high)}<small>${bounds(low, high)}</small></td>
<td class="num" data-name="faults">${f.faults}</td>
<td class="go"><button class="small" data-copy="${f.replay}" title="${f.run_id}">copy replay</button></td></tr>`;
    };
    return html`<h2>Findings</h2><div class="table"><table class="found"><thead><tr><th scope="col">What does not hold<th scope="col" class="num">First after<br><small>runs, time</small><th scope="col" class="num">In runs<th scope="col">How often<br><small>95 % interval</small><th scope="col" class="num">Faults of<br>the cheapest<th scope="col"><span class="sr">Replay</span></tr></thead><tbody>${rows.map(row)}</tbody></table></div>`;
  }

  curves() {
    const { data } = this;
    const figure = (title, points, colour, all) => {
      const last = points.length ? points.at(-1)[1] : 0;
      return html`<figure><figcaption>${title} <b>${counted(last)}</b>${all ? html` <span>of ${counted(all)}</span>` : ""}</figcaption>${curve(points, data.runs, colour)}</figure>`;
    };
    return html`<h2>What was new, run by run</h2><p class="note">A curve that still rises at its end says that more runs would show more.</p><div class="curves">
${figure("findings", data.curves.findings, "bad")}
${figure("choices tried", data.curves.choices, "accent", data.choices[1])}
${data.grid ? figure("pairs met", data.curves.pairs, "gateway", data.grid.states.length * data.grid.events.length) : ""}</div>`;
  }

  coverage() {
    const { data } = this;
    const most = Math.max(1, ...data.kinds.map((k) => k.known + k.beyond));
    const bars = data.kinds.map((k) => html`<tr><th scope="row">${k.kind}</th><td class="bar"><span style="width:${(100 * k.taken) / most}%" class="taken"></span><span style="width:${(100 * (k.known - k.taken)) / most}%" class="open"></span><span style="width:${(100 * k.beyond) / most}%" class="beyond"></span></td><td class="num">${counted(k.taken)}<small>of ${counted(k.known)}</small></td><td class="num">${k.beyond ? `+${counted(k.beyond)}` : ""}</td></tr>`);
    const kinds = html`<div class="kinds"><h2>Choices tried, by kind</h2><table><thead class="sr"><tr><th>kind<th>share<th>tried<th>beyond</tr></thead><tbody>${bars}</tbody></table><ul class="legend"><li><i class="taken"></i>not as usual in a run at least</li><li><i class="open"></i>always as usual</li><li><i class="beyond"></i>that only runs with faults have</li></ul></div>`;
    return html`<div class="tried">${this.grid()}${kinds}</div>`;
  }

  grid() {
    const { grid } = this.data;
    if (!grid) return "";
    const most = Math.max(1, ...grid.cells.flat().map((c) => c?.runs ?? 0));
    const cell = (met, state, event) => {
      if (!met) return html`<td class="never" title="${event} never met ${state}"><span class="sr">never</span></td>`;
      const heat = 0.12 + 0.88 * Math.log1p(met.runs) / Math.log1p(most);
      const said = `${event} met ${state}: ${counted(met.times)} times, in ${counted(met.runs)} of ${counted(this.data.runs)} runs, first in run ${counted(met.first)}`;
      return html`<td class="${heat > 0.55 ? "hot" : ""}" style="--heat:${(heat * 100).toFixed(1)}%" title="${said}">${short(met.runs)}<small>${short(met.times)}×</small></td>`;
    };
    const rows = grid.states.map((state, s) => html`<tr><th scope="row">${state}</th>${grid.events.map((event, e) => cell(grid.cells[s][e], state, event))}</tr>`);
    return html`<div class="grid"><h2>Which ${grid.state} met which ${grid.event}</h2><p class="note">Runs in which they met; below, how often altogether. Hatched: never.</p><div class="table"><table><thead><tr><td></td>${grid.events.map((event) => html`<th scope="col"><span>${event.split("/").flatMap((part, n) => (n ? ["/", new Raw("<wbr>"), part] : [part]))}</span></th>`)}</tr></thead><tbody>${rows}</tbody></table></div></div>`;
  }
}

function counted(n) {
  return String(n).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}
function short(n) {
  if (n < 10_000) return String(n);
  return n < 1e6 ? `${(n / 1e3).toFixed(n < 1e5 ? 1 : 0)}k` : `${(n / 1e6).toFixed(1)}M`;
}
function percent(n, all) {
  if (!all) return "–";
  const share = (100 * n) / all;
  // All is all, and none is none.
  return `${share > 99 && n < all ? 99 : share < 1 && n > 0 ? 1 : Math.round(share)} %`;
}
function rate(n) {
  return n >= 10 ? counted(Math.round(n)) : n.toFixed(1);
}
function wall(s) {
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
}
function bounds(low, high) {
  const text = (rate) => (rate * 100).toPrecision(rate * 100 >= 99.5 ? 3 : 2);
  return `${text(low)} – ${text(high)} %`;
}
/** A rate and what is known of it, on a scale from a thousandth to all. */
function interval(at, low, high) {
  const place = (rate) => 100 * Math.max(0, 1 + Math.log10(Math.max(rate, 1e-4)) / 4);
  return html`<span class="interval" aria-hidden="true"><i style="left:${place(low).toFixed(1)}%;width:${Math.max(place(high) - place(low), 1).toFixed(1)}%"></i>${at > 0 ? html`<b style="left:${place(at).toFixed(1)}%"></b>` : ""}</span>`;
}
/** Steps from nothing to the last point, on to the last run. */
function curve(points, runs, colour) {
  const [width, height] = [300, 84];
  const most = Math.max(1, points.length ? points.at(-1)[1] : 0);
  const x = (run) => ((run / Math.max(runs, 1)) * width).toFixed(1);
  const y = (n) => (height - 6 - (n / most) * (height - 14)).toFixed(1);
  const steps = points.map(([run, n]) => `H${x(run)}V${y(n)}`).join("");
  const line = `M0 ${y(0)}${steps}H${width}`;
  return html`<svg viewBox="0 0 ${width} ${height + 14}" role="img" aria-label="${points.length ? `${points.at(-1)[1]} after ${points.at(-1)[0]} runs` : "none"}" style="--c:var(--${colour})"><path class="under" d="${line}V${y(0)}Z"/><path class="line" d="${line}"/><line x1="0" x2="${width}" y1="${height - 6}" y2="${height - 6}"/><text x="0" y="${height + 8}">0</text><text x="${width}" y="${height + 8}" text-anchor="end">${counted(runs)} runs</text></svg>`;
}
