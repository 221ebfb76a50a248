// Curves: drawn once for what is there, with a line that follows the pointer or the keys through all charts of a group.

import { fresh, h, number, s } from "./dom.js";

const WIDTH = 560;
const HEIGHT = 210;
const LEFT = 52;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 24;
const POINTS = WIDTH - LEFT - RIGHT;

/** Round values within a range, a few of them. */
const ticks = (low, high, count = 4) => {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((by) => by * power).find((by) => by >= rough) ?? rough;
  const all = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) all.push(Math.abs(at) < step * 1e-6 ? 0 : at);
  return all;
};

/** Powers of ten, and between them where there are few. */
const powers = (low, high) => {
  const all = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) [1, 2, 5].forEach((by) => all.push(by * 10 ** power));
  const within = all.filter((own) => own >= low && own <= high);
  const tens = within.filter((own) => Math.abs(Math.log10(own) % 1) < 1e-9);
  return tens.length >= 3 ? tens : within.slice(0, 6);
};

/** A curve that was smoothed; what is no number is left out. */
export const smoothed = (points, inertia) => {
  let mean = null;
  let weight = 0;
  return points.map(([step, value]) => {
    if (value === null || !Number.isFinite(value)) return [step, null];
    mean = (mean ?? 0) * inertia + value * (1 - inertia);
    weight = weight * inertia + 1 - inertia;
    return [step, mean / weight];
  });
};

/** As many points as can be seen: of each column the lowest and the highest. */
const thinned = (points, low, high) => {
  if (points.length <= 2 * POINTS) return points;
  const columns = new Map();
  for (const point of points) {
    const at = Math.floor(((point[0] - low) / (high - low || 1)) * POINTS);
    const [least, most] = columns.get(at) ?? [point, point];
    columns.set(at, [point[1] < least[1] ? point : least, point[1] > most[1] ? point : most]);
  }
  return [...columns.values()].flatMap(([a, b]) => (a === b ? [a] : a[0] < b[0] ? [a, b] : [b, a]));
};

const nearest = (points, step) => {
  let [low, high] = [0, points.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= step) low = middle;
    else high = middle;
  }
  return Math.abs(points[low]?.[0] - step) <= Math.abs(points[high]?.[0] - step) ? points[low] : points[high];
};

/** Charts that look at the same step. */
export class Group {
  constructor() {
    this.charts = new Set();
  }

  look(step) {
    this.charts.forEach((chart) => chart.look(step));
  }
}

/** A chart of some curves: `{name, colour, points: [[step, value]], faint}`. */
export class Chart {
  constructor(title, group, { log = false, unit = "" } = {}) {
    Object.assign(this, { title, group, log, unit, curves: [], span: [0, 1], clip: fresh("clip") });
    this.drawing = s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", tabindex: "0", class: "curves" });
    this.legend = h("p", { class: "legend" });
    this.element = h("figure", { class: "chart" }, h("figcaption", {}, h("b", {}, title), this.legend), this.drawing);
    group.charts.add(this);
    this.drawing.addEventListener("pointermove", (event) => this.point(event));
    this.drawing.addEventListener("pointerleave", () => group.look(null));
    this.drawing.addEventListener("keydown", (event) => this.key(event));
    this.drawing.addEventListener("blur", () => group.look(null));
  }

  x(step) {
    return LEFT + ((step - this.span[0]) / (this.span[1] - this.span[0] || 1)) * POINTS;
  }

  y(value) {
    const own = this.log ? Math.log10(value) : value;
    return TOP + (1 - (own - this.range[0]) / (this.range[1] - this.range[0] || 1)) * (HEIGHT - TOP - BOTTOM);
  }

  /** Draws other curves. */
  draw(curves, { log = this.log } = {}) {
    this.log = log;
    const good = ([, value]) => value !== null && Number.isFinite(value) && (!log || value > 0);
    this.curves = curves.map((curve) => ({ ...curve, points: curve.points.filter(good) })).filter((curve) => curve.points.length > 0);
    this.element.hidden = this.curves.length === 0;
    if (this.element.hidden) return;
    const steps = this.curves.flatMap(({ points }) => [points[0][0], points.at(-1)[0]]);
    this.span = [Math.min(...steps), Math.max(...steps)];
    const kept = this.curves.map((curve) => thinned(curve.points, ...this.span));
    this.extent(kept.flat().map(([, value]) => value));
    const path = (points) => `M${points.map(([step, value]) => `${this.x(step).toFixed(1)} ${this.y(value).toFixed(1)}`).join("L")}`;
    const line = (curve, at) => [
      s("path", { d: path(kept[at]), stroke: curve.colour, class: curve.faint ? "curve faint" : "curve" }),
      kept[at].length === 1 || curve.dots ? kept[at].map(([step, value]) => s("circle", { cx: this.x(step), cy: this.y(value), r: 3, fill: curve.colour })) : [],
    ];
    this.cursor = s("g", {});
    const within = s("clipPath", { id: this.clip }, s("rect", { x: LEFT - 4, y: TOP - 4, width: POINTS + 8, height: HEIGHT - TOP - BOTTOM + 6 }));
    this.drawing.replaceChildren(within, ...this.axes(), s("g", { "clip-path": `url(#${this.clip})` }, this.curves.map(line)), this.cursor);
    const last = this.curves.filter((own) => !own.faint).map((own) => `${own.name} ${number(own.points.at(-1)[1])}`);
    this.drawing.setAttribute("aria-label", `${this.title} over steps ${this.span.join(" to ")}; last: ${last.join(", ")}. Left and right move through the steps.`);
    this.tell(null);
  }

  /** The range of values, without the few that would press all others together. */
  extent(values) {
    const sorted = (this.log ? values.map(Math.log10) : values).sort((a, b) => a - b);
    const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
    const [least, most] = sorted.length > 200 ? [at(0.004), at(0.996)] : [sorted[0], sorted.at(-1)];
    const room = (most - least) * 0.06 || Math.abs(most) * 0.1 || 1;
    this.range = [!this.log && least >= 0 && least < (most - least) * 0.5 ? 0 : least - room, most + room];
  }

  axes() {
    const [low, high] = this.log ? this.range.map((own) => 10 ** own) : this.range;
    const rows = (this.log ? powers(low, high) : ticks(low, high)).map((value) => [
      s("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: this.y(value), y2: this.y(value), class: "grid" }),
      s("text", { x: LEFT - 6, y: this.y(value) + 3.5, "text-anchor": "end" }, number(value, 3)),
    ]);
    const columns = ticks(...this.span, 5).filter(Number.isInteger).map((step) => s("text", { x: this.x(step), y: HEIGHT - 7, "text-anchor": "middle" }, step >= 10000 ? `${step / 1000}k` : String(step)));
    return [...rows.flat(), ...columns];
  }

  point(event) {
    const box = this.drawing.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * WIDTH;
    this.group.look(this.span[0] + ((at - LEFT) / POINTS) * (this.span[1] - this.span[0]));
  }

  key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || this.curves.length === 0) return;
    event.preventDefault();
    const { points } = this.curves.at(-1);
    const now = points.indexOf(nearest(points, this.step ?? this.span[1]));
    const stride = Math.max(1, Math.round(points.length / 100));
    this.group.look(points[Math.min(points.length - 1, Math.max(0, now + by * stride))][0]);
  }

  /** Shows the values at a step, or the last ones. */
  look(step) {
    this.step = step === null ? null : Math.min(this.span[1], Math.max(this.span[0], step));
    if (this.element.hidden || !this.cursor) return;
    this.cursor.replaceChildren();
    if (step !== null) {
      const dots = this.curves.filter((own) => !own.faint).map((own) => [own, nearest(own.points, this.step)]);
      const at = this.x(this.step);
      this.cursor.append(s("line", { x1: at, x2: at, y1: TOP, y2: HEIGHT - BOTTOM, class: "cursor" }), ...dots.map(([own, [own_step, value]]) => s("circle", { cx: this.x(own_step), cy: this.y(value), r: 3.5, fill: own.colour, class: "dot" })));
    }
    this.tell(this.step);
  }

  tell(step) {
    const named = this.curves.filter((own) => !own.faint);
    const words = named.map((own) => {
      const [, value] = step === null ? own.points.at(-1) : nearest(own.points, step);
      return h("span", {}, h("i", { style: { background: own.colour } }), own.name, " ", h("b", {}, number(value), this.unit));
    });
    const at = step === null ? [] : [h("span", { class: "at" }, `step ${Math.round(step)}`)];
    this.legend.replaceChildren(...at, ...words);
  }
}
