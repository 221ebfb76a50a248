// The view of training runs: curves of all that are chosen, and all about one of them.

import { ask, every } from "./api.js";
import { Chart, Group, smoothed } from "./chart.js";
import { ago, h, number, s } from "./dom.js";
import { Log, colour, shade } from "./log.js";
import { Looks } from "./looks.js";
import { differences, flat, shown, table } from "./recipe.js";

/** A run that has written this lately is at it. */
const LIVE = 30;

/** The order of charts, whichever is drawn first. */
const ORDER = ["loss", "level", "validation", "rate", "norm", "speed"];

const capital = (text) => text[0].toUpperCase() + text.slice(1).replaceAll("_", " ").replaceAll("/", ": ");

class Training {
  constructor(signal) {
    Object.assign(this, { signal, runs: [], logs: new Map(), chosen: new Set(), focus: null, details: new Map(), charts: new Map(), inertia: 0.9, log: true });
    this.group = new Group();
    this.list = h("ul", { class: "runs" });
    this.plots = h("div", { class: "part" });
    this.levels = h("div", { class: "part" });
    this.about = h("div", { class: "about" });
  }

  async draw(place) {
    const smoothing = h("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: this.inertia, oninput: (event) => {
      this.inertia = Number(event.target.value);
      this.plot();
    } });
    const log = h("input", { type: "checkbox", checked: this.log, onchange: (event) => {
      this.log = event.target.checked;
      this.plot();
    } });
    place.append(
      h("aside", { class: "panel", "aria-label": "Runs" }, h("h2", {}, "Runs"), this.list, h("label", { class: "set" }, "Smoothing", smoothing), h("label", { class: "tick" }, log, "Logarithmic losses")),
      h("div", { class: "made" }, h("div", { class: "charts" }, this.plots, this.levels), this.about));
    await every(2, this.signal, () => this.refresh());
  }

  colourOf(name) {
    return colour(this.runs.findIndex((run) => run.name === name));
  }

  async refresh() {
    const { data } = await ask("/studio/api/runs", { signal: this.signal });
    const names = (runs) => runs.map((run) => run.name).join("\n");
    const isOther = names(data) !== names(this.runs);
    this.runs = data;
    if (data.length === 0) {
      this.list.replaceChildren(h("li", { class: "note" }, "No runs yet. Start the server with --runs DIR, or train with --run DIR/NAME."));
      return;
    }
    if (this.focus === null || !data.some((run) => run.name === this.focus)) {
      this.focus = data.reduce((latest, run) => ((run.changed_at ?? 0) > (latest.changed_at ?? 0) ? run : latest)).name;
      this.chosen.add(this.focus);
    }
    if (isOther) this.drawList();
    let fresh = isOther;
    for (const run of data.filter((own) => this.chosen.has(own.name))) fresh = (await this.logOf(run.name).read(this.signal)) || fresh;
    this.tellList();
    await this.detail(this.focus);
    if (fresh) this.plot();
  }

  logOf(name) {
    if (!this.logs.has(name)) this.logs.set(name, new Log(name));
    return this.logs.get(name);
  }

  drawList() {
    const one = (run) => {
      const box = h("input", { type: "checkbox", checked: this.chosen.has(run.name), "aria-label": `Show the curves of ${run.name}`, style: { "accent-color": this.colourOf(run.name) }, onchange: () => {
        this.chosen[box.checked ? "add" : "delete"](run.name);
        this.refresh().then(() => this.plot());
      } });
      const name = h("button", { type: "button", class: "run", onclick: () => this.look(run.name) }, h("i", { style: { background: this.colourOf(run.name) } }), h("span", { class: "run-name" }, run.name), h("span", { class: "note" }));
      return h("li", { "data-run": run.name }, box, name);
    };
    this.list.replaceChildren(...this.runs.map(one));
  }

  tellList() {
    for (const run of this.runs) {
      const item = [...this.list.children].find((own) => own.dataset.run === run.name);
      if (!item) continue;
      const isLive = run.changed_at && Date.now() / 1000 - run.changed_at < LIVE;
      const loss = Object.values(run.losses ?? {})[0];
      const words = run.step ? [`step ${run.step}`, loss !== undefined && number(loss), isLive ? "at it" : ago(run.changed_at)].filter(Boolean).join(" · ") : "no step yet";
      item.classList.toggle("live", Boolean(isLive));
      item.querySelector(".note").textContent = words;
      item.querySelector("button").setAttribute("aria-current", String(run.name === this.focus));
    }
  }

  /** Looks at one of the runs. */
  async look(name) {
    this.focus = name;
    this.chosen.add(name);
    this.list.querySelector(`[data-run="${CSS.escape(name)}"] input`).checked = true;
    await this.refresh();
    this.plot();
  }

  chart(place, key, title, options) {
    if (!this.charts.has(key)) {
      const chart = new Chart(title, this.group, options);
      chart.element.style.order = ORDER.indexOf(key.split("/")[0]);
      this.charts.set(key, chart);
      place.append(chart.element);
    }
    return this.charts.get(key);
  }

  /** Draws all curves of the runs that are chosen. */
  plot() {
    const logs = this.runs.filter((run) => this.chosen.has(run.name)).map((run) => this.logOf(run.name));
    const found = new Map();
    for (const log of logs) {
      for (const { group, name, points } of log.curves.values()) {
        const key = `${group}/${name}`;
        if (!found.has(key)) found.set(key, { group, name, all: [] });
        found.get(key).all.push([log, points]);
      }
    }
    const sorted = [...found.values()].sort((a, b) => ORDER.indexOf(a.group) - ORDER.indexOf(b.group));
    const roles = new Set(sorted.filter((own) => own.group === "rate").map((own) => own.name));
    const titles = {
      loss: (name) => (name === "loss" ? "Loss" : `Loss: ${name.replaceAll("_", " ")}`), validation: capital, rate: (name) => `Learning rate${roles.size > 1 ? `, ${name}` : ""}`,
      norm: (name) => `Gradient norm${roles.size > 1 ? `, ${name}` : ""}`, speed: (name) => ({ samples: "Samples per second", tokens: "Tokens per second", peak: "Share of the machine's peak" })[name],
    };
    for (const chart of this.charts.values()) chart.draw([]);
    for (const { group, name, all } of sorted) {
      const inertia = { loss: this.inertia, norm: this.inertia, speed: Math.min(this.inertia, 0.8) }[group] ?? 0;
      const curves = all.flatMap(([log, points]) => {
        const own = { name: log.name, colour: this.colourOf(log.name) };
        const faint = inertia > 0 && group !== "speed" ? [{ ...own, points, faint: true }] : [];
        return [...faint, { ...own, points: smoothed(points, inertia), dots: group === "validation" }];
      });
      this.chart(this.plots, `${group}/${name}`, titles[group](name), { unit: name === "peak" ? " %" : "" }).draw(curves, { log: group === "loss" && this.log });
    }
    this.plotLevels();
  }

  /** The loss by noise level of the run that is looked at. */
  plotLevels() {
    const levels = this.logOf(this.focus).byLevel();
    const losses = [...new Set(levels.map((own) => own.loss))];
    for (const loss of losses) {
      const own = levels.filter((level) => level.loss === loss);
      const curves = own.map(({ from, to, points }) => ({ name: `σ ${number(from, 2)}–${number(to, 2)}`, colour: shade((from + to) / 2), points: smoothed(points, Math.max(0.9, this.inertia)) }));
      const name = losses.length > 1 ? `, ${loss.replaceAll("_", " ")}` : "";
      const of = this.runs.length > 1 ? ` of ${this.focus}` : "";
      const chart = this.chart(this.levels, `level/${loss}`, "", {});
      chart.title = `Loss by noise level${name}${of}`;
      chart.element.querySelector("figcaption b").textContent = chart.title;
      chart.draw(curves, { log: this.log });
    }
  }

  /** Recipe, checkpoints and clips of a run. */
  async detail(name) {
    const run = await ask(`/studio/api/runs/${encodeURIComponent(name)}`, { signal: this.signal });
    if (!this.details.has(name)) this.details.set(name, this.page(name));
    const page = this.details.get(name);
    if (this.about.firstChild !== page.element) this.about.replaceChildren(page.element);
    page.looks.update(run.validation);
    const log = this.logOf(name);
    page.checkpoints.replaceChildren(...timeline(run, log));
    if (page.text !== run.recipe) {
      page.text = run.recipe;
      page.recipe.hidden = run.recipe === null;
      if (run.recipe !== null) page.yaml.replaceChildren(shown(run.recipe));
    }
    page.others.hidden = this.runs.length < 2;
    const names = this.runs.map((own) => own.name).filter((own) => own !== name);
    if (page.names !== names.join("\n")) {
      page.names = names.join("\n");
      page.select.replaceChildren(h("option", { value: "" }, "no other run"), ...names.map((own) => h("option", { value: own }, own)));
    }
    page.report.hidden = !run.has_report;
  }

  page(name) {
    const looks = new Looks(name);
    const [checkpoints, yaml, rows] = [h("div", { class: "timeline" }), h("details", {}), h("div", {})];
    const select = h("select", { "aria-label": "Another run", onchange: async () => {
      const other = select.value && (await ask(`/studio/api/runs/${encodeURIComponent(select.value)}`));
      rows.replaceChildren(other ? table(name, other.name, differences(page.text, other.recipe)) : "");
    } });
    const others = h("label", { class: "set" }, "What differs from", select);
    const box = h("div", {});
    yaml.append(box);
    yaml.prepend(h("summary", {}, "All of it"));
    const recipe = h("section", { class: "box", "aria-label": "Recipe" }, h("div", { class: "row-head" }, h("h2", {}, "Recipe"), others), rows, yaml);
    const report = h("a", { href: `/studio/api/runs/${encodeURIComponent(name)}/files/report.html`, target: "_blank", rel: "noopener" }, "its report");
    const points = h("section", { class: "box", "aria-label": "Checkpoints" }, h("div", { class: "row-head" }, h("h2", {}, "Checkpoints"), report), checkpoints);
    const page = { element: h("div", { class: "about" }, looks.element, points, recipe), looks, checkpoints, yaml: box, recipe, others, select, report };
    return page;
  }
}

/** Checkpoints and looks on a line of steps. */
const timeline = (run, log) => {
  const steps = Number(flat(run.recipe).get("loop.steps")) || log.step || 1;
  const last = Math.max(steps, log.step, ...run.checkpoints);
  const x = (step) => `${2 + (96 * step) / last}%`;
  const speed = log.of("speed").find((own) => own.name === "samples")?.points.at(-1)?.[1];
  const words = [`step ${log.step} of ${last}`, run.checkpoints.length ? `the last at step ${run.checkpoints.at(-1)}` : "none yet", speed && `${number(speed, 3)} samples per second`].filter(Boolean).join(" · ");
  const drawing = s("svg", { class: "line", role: "img", "aria-label": `Checkpoints at ${run.checkpoints.join(", ") || "no step yet"}; ${words}` },
    s("line", { x1: x(0), x2: x(last), y1: 16, y2: 16, class: "all" }), s("line", { x1: x(0), x2: x(log.step), y1: 16, y2: 16, class: "over" }),
    run.validation.map((look) => s("circle", { cx: x(look.step), cy: 16, r: 2.5, class: "look" })),
    run.checkpoints.map((step) => [s("circle", { cx: x(step), cy: 16, r: 6, class: "point" }, s("title", {}, `checkpoint at step ${step}`)), s("text", { x: x(step), y: 36, "text-anchor": "middle" }, String(step))]));
  return [drawing, h("p", { class: "note" }, words)];
};

/** Shows the view until it is told to stop. */
export const training = (place, signal) => new Training(signal).draw(place);

