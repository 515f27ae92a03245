// All entries as a list: what search finds, and what a reader of lines prefers. Only rows in sight are elements.

const ROW = 22;

class List {
  constructor(app) {
    this.app = app;
    this.root = document.getElementById("list");
    this.root.innerHTML = '<div class="head"><h2>Entries</h2><span class="count"></span></div><div id="rows" tabindex="0" role="listbox" aria-label="Entries"><div class="space"></div></div>';
    this.rows = document.getElementById("rows");
    this.space = this.rows.firstElementChild;
    this.rows.addEventListener("scroll", () => this.draw(), { passive: true });
    this.rows.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) app.select(Number(row.dataset.entry), { reveal: true });
    });
    this.rows.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12 }[event.key];
      if (!step || !this.entries.length) return;
      event.preventDefault();
      event.stopPropagation();
      const at = this.entries.findIndex((e) => e.id >= (app.state.selected ?? 0));
      const next = this.entries[Math.min(Math.max((at < 0 ? 0 : at) + (app.state.selected === null ? 0 : step), 0), this.entries.length - 1)];
      app.select(next.id, { reveal: true });
    });
  }

  fill() {
    const { app } = this;
    this.entries = app.run.entries.filter((e) => app.visible(e) && !app.dimmed(e));
    const searched = app.state.search ? ` with “${app.state.search}”` : "";
    this.root.querySelector(".count").textContent = `${this.entries.length} of ${app.run.entries.length}${searched}`;
    this.space.style.height = `${this.entries.length * ROW}px`;
    this.draw();
  }

  /** Brings an entry into sight. */
  show(id) {
    const at = this.entries.findIndex((e) => e.id === id);
    if (at < 0) return;
    const top = at * ROW;
    if (top < this.rows.scrollTop || top > this.rows.scrollTop + this.rows.clientHeight - ROW) this.rows.scrollTop = top - this.rows.clientHeight / 2;
  }

  draw() {
    const { app } = this;
    const first = Math.max(Math.floor(this.rows.scrollTop / ROW) - 4, 0);
    const last = Math.min(first + Math.ceil((this.rows.clientHeight || 300) / ROW) + 8, this.entries.length);
    const out = [];
    for (let i = first; i < last; i++) {
      const e = this.entries[i];
      const lane = app.run.lanes.find((l) => l.n === e.lane);
      const here = e.id === app.state.selected;
      out.push(html`<div class="row${here ? " here" : ""}${app.run.broken.has(e.id) ? " broken" : ""}" role="option" aria-selected="${here}" data-entry="${e.id}" style="top:${i * ROW}px;--lane:${new Raw(laneColour(lane))}"><span class="id">${e.id}</span><span class="time">${(e.at / 1e9).toFixed(6)}</span><span class="host">${e.host}</span><span class="kind">${e.kind}${e.kind === e.name ? "" : ` ${e.name}`}</span><span>${e.label}</span></div>`);
    }
    this.space.innerHTML = out.join("");
  }
}
