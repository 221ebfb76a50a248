// The view that weighs layouts: what memory and time each would take, before anything runs.

import { ask } from "./api.js";
import { bytes, copy, duration, fresh, h, labelled, say } from "./dom.js";

const PARTS = [["seconds_before", "before the steps", "before"], ["seconds_of_steps", "the steps", "steps"], ["seconds_of_decoding", "decoding", "decode"]];

const MEMORY = [["parameter_bytes", "parameters", "steps"], ["activation_bytes", "activations", "decode"], ["key_value_bytes", "keys and values", "before"]];

const SHOWN = 14;

const key = (parts) => h("p", { class: "legend" }, parts.map(([, name, kind]) => h("span", {}, h("i", { class: kind }), name)));

/** A bar of parts, drawn against the longest. */
const bar = (own, parts, most) => h("span", { class: "bar", "aria-hidden": "true" }, parts.map(([name, , kind]) => h("i", { class: kind, style: { width: `${(100 * (own[name] ?? 0)) / most}%` } })));

class PlanView {
  constructor(models, signal) {
    Object.assign(this, { models, signal, all: false });
    this.result = h("div", { class: "made", "aria-live": "polite" });
    this.note = h("p", { class: "note", role: "alert" });
  }

  async draw(place) {
    const input = (text, name, more) => labelled(text, h("input", { name, type: "number", step: 1, min: 1, ...more }), { name });
    this.model = h("select", { name: "model" }, this.models.map(({ id }) => h("option", { value: id }, id)));
    const ranks = h("input", { id: fresh("ranks"), name: "ranks", type: "range", min: 0, max: 6, step: 1, value: 2, oninput: () => (count.textContent = String(2 ** ranks.value)) });
    const count = h("output", { for: ranks.id }, "4");
    this.form = h("form", { class: "panel", "aria-label": "What to weigh", oninput: () => this.soon(), onsubmit: (event) => event.preventDefault() },
      labelled("Model", this.model), h("div", { class: "field" }, h("label", { for: ranks.id }, "Ranks ", count), ranks),
      h("div", { class: "pair" }, input("Width", "width"), input("Height", "height")),
      h("div", { class: "pair" }, input("Frames", "num_frames"), input("Steps", "num_inference_steps")),
      h("div", { class: "pair" }, input("Guidance", "guidance_scale", { step: "any", min: 0 }), input("Samples", "n", { value: 1 })), this.note);
    place.append(this.form, this.result);
    this.model.addEventListener("change", () => this.fill());
    this.fill();
    await this.weigh();
  }

  /** The model's own numbers, to begin with. */
  fill() {
    const facts = this.models.find(({ id }) => id === this.model.value);
    const values = { width: facts.size.width, height: facts.size.height, num_frames: facts.num_frames.default, num_inference_steps: facts.num_inference_steps, guidance_scale: facts.guidance_scale };
    for (const [name, value] of Object.entries(values)) this.form.elements[name].value = value;
    this.form.elements.num_frames.closest(".field").hidden = facts.makes === "image";
  }

  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.weigh(), 300);
  }

  async weigh() {
    const { elements } = this.form;
    const query = new URLSearchParams({ model: this.model.value, ranks: 2 ** elements.ranks.value });
    for (const name of ["width", "height", "num_frames", "num_inference_steps", "guidance_scale", "n"]) {
      if (elements[name].value !== "") query.set(name, elements[name].value);
    }
    this.asked?.abort();
    this.asked = new AbortController();
    try {
      this.show(await ask(`/studio/api/plan?${query}`, { signal: this.asked.signal }));
      this.note.textContent = "";
    } catch (error) {
      if (error.name !== "AbortError") this.note.textContent = error.message;
    }
  }

  show(plan) {
    this.plan = plan;
    const shown = this.all ? plan.candidates : plan.candidates.slice(0, SHOWN);
    const longest = Math.max(...shown.map((own) => own.seconds));
    // Where all are far below what the machine has, they are compared with each other.
    const most = Math.max(...shown.map((own) => own.host_bytes));
    const largest = most * 4 > plan.memory_bytes ? Math.max(plan.memory_bytes, most) : most * 1.1;
    const rows = shown.map((own) => this.row(own, longest, largest));
    const more = plan.candidates.length > SHOWN && h("button", { type: "button", onclick: () => {
      this.all = !this.all;
      this.show(plan);
    } }, this.all ? "Show fewer" : `Show all ${plan.candidates.length}`);
    this.result.replaceChildren(this.summary(), this.ranks(), h("section", { class: "box plan-list", "aria-label": "Layouts" },
      h("div", { class: "row-head" }, h("h2", {}, "Layouts, the cheapest first"), key(PARTS)),
      h("div", { class: "scrolled" }, h("table", { class: "layouts" }, h("thead", {}, h("tr", {}, ["Layout", "Time", "Memory of a host"].map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, rows))), more));
  }

  row(own, longest, largest) {
    const { plan } = this;
    const isChosen = own.layout === plan.plan.layout;
    const notes = [!own.fits && "too large", !own.exact && "patches see keys that are a step old", isChosen && "the choice"].filter(Boolean).join(", ");
    const limit = plan.memory_bytes <= largest && h("em", { class: "limit", style: { left: `${(100 * plan.memory_bytes) / largest}%` } });
    return h("tr", { class: [isChosen && "chosen", !own.fits && "unfit"].filter(Boolean).join(" ") },
      h("th", { scope: "row" }, h("button", { type: "button", class: "flags", title: "Copy these flags", onclick: () => copy(own.layout, "The layout") }, own.layout), notes && h("span", { class: "note" }, notes)),
      h("td", {}, bar(own, PARTS, longest), h("span", { class: "figure" }, duration(own.seconds))),
      h("td", {}, h("span", { class: "bar memory", "aria-hidden": "true" }, h("i", { class: own.fits ? "decode" : "too-much", style: { width: `${(100 * own.host_bytes) / largest}%` } }), limit), h("span", { class: "figure" }, bytes(own.host_bytes))));
  }

  summary() {
    const { plan } = this;
    const figure = (value, text) => h("div", { class: "big" }, h("b", {}, value), h("span", { class: "note" }, text));
    return h("section", { class: "box figures", "aria-label": "The choice" },
      figure(duration(plan.plan.seconds), "all of it"), figure(duration(plan.plan.seconds_per_step), `a step, of ${plan.steps}`), figure(bytes(plan.plan.host_bytes), `of ${bytes(plan.memory_bytes)} of this machine`),
      figure(`${Math.round(100 * plan.plan.efficiency)} %`, "efficiency"),
      h("div", { class: "big wide" }, h("button", { type: "button", class: "flags", onclick: () => copy(plan.plan.layout, "The layout").then(() => say("Give it to generate or serve")) }, plan.plan.layout), h("span", { class: "note" }, `${plan.model}, ${(plan.parameters / 1e9).toPrecision(3)} billion parameters, on ${plan.hardware}`)));
  }

  /** What each rank holds, and how busy it is. */
  ranks() {
    const { ranks } = this.plan.plan;
    const most = Math.max(...ranks.map((own) => Math.max(own.peak_bytes, MEMORY.reduce((sum, [name]) => sum + own[name], 0))));
    const rows = ranks.slice(0, 16).map((own) => h("tr", {}, h("th", { scope: "row" }, `rank ${own.rank}`), h("td", {}, bar(own, MEMORY, most), h("span", { class: "figure" }, bytes(own.peak_bytes))),
      h("td", { class: "note" }, own.traffic_bytes_per_step ? `sends ${bytes(own.traffic_bytes_per_step)} a step` : "sends nothing")));
    return h("section", { class: "box", "aria-label": "Ranks" }, h("div", { class: "row-head" }, h("h2", {}, "What each rank holds"), key(MEMORY)), h("table", { class: "layouts ranks" }, h("tbody", {}, rows)));
  }
}

/** Shows the view until it is told to stop. */
export const plan = async (place, signal) => {
  const { data } = await ask("/studio/api/models");
  await new PlanView(data, signal).draw(place);
};
