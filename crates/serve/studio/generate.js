// The view that makes clips: a form, what is on its way, and what was made.

import { ask } from "./api.js";
import { Board } from "./board.js";
import { Card } from "./card.js";
import { command, curl } from "./commands.js";
import { choice, copy, h, labelled, say } from "./dom.js";
import { Form } from "./form.js";
import { Jobs } from "./jobs.js";

const BOARD = "moviola-board";

/** Settings that the second of two clips may have otherwise. */
const OTHERWISE = { guidance_scale: "Guidance", num_inference_steps: "Steps", flow_shift: "Flow shift", negative_prompt: "Negative prompt", prompt: "Prompt" };

const numbers = (text) => text.split(/[\s,;]+/).filter(Boolean).map(Number).filter(Number.isFinite);

const replaced = (pairs, name, value) => [...pairs.filter(([own]) => own !== name), [name, value]];

class View {
  constructor(all, signal) {
    Object.assign(this, { all, signal, known: new Map(), cards: new Map(), chosen: [], mode: "one", drafts: new Map() });
    this.jobs = new Jobs(signal, (id) => this.changed(id));
    this.gallery = h("div", { class: "gallery" });
    this.older = h("button", { type: "button", hidden: true, onclick: () => this.jobs.older() }, "Show older ones");
    this.place = h("div", {});
    this.host = h("div", {});
    this.extra = h("div", { class: "extra" });
    this.say = h("p", { class: "note", role: "alert" });
    this.submit = h("button", { class: "primary", title: "Ctrl + Enter" }, "Make it");
    signal.addEventListener("abort", () => this.form?.given.clear());
  }

  factsOf(id) {
    return this.known.get(id);
  }

  async draw(place) {
    for (const { id } of this.all) this.known.set(id, await ask(`/studio/api/models/${encodeURIComponent(id)}`));
    const models = this.all.length > 1 ? labelled("Model", h("select", { name: "model", onchange: (event) => this.choose_model(event.target.value) }, this.all.map(({ id, family }) => h("option", { value: id }, `${id} (${family})`)))) : null;
    const form = h("form", { class: "panel", novalidate: true, "aria-label": "What to make", onsubmit: (event) => this.send(event), onkeydown: (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && form.requestSubmit() },
      models, this.host, this.modes(), this.extra, this.say,
      h("div", { class: "acts" }, this.submit,
        h("button", { type: "button", onclick: () => copy(curl(this.facts, this.form.pairs()), "The curl command") }, "Copy as curl"),
        h("button", { type: "button", onclick: () => copy(command(this.facts, this.form.pairs()), "The command") }, "Copy as command")));
    this.models = models;
    place.append(form, h("div", { class: "made" }, this.place, h("h2", { class: "unseen" }, "What was made"), this.gallery, this.older));
    this.choose_model(this.all[0].id);
    await this.jobs.begin();
    this.empty();
    this.restore();
  }

  choose_model(id) {
    this.facts = this.known.get(id);
    const before = this.form?.text("prompt");
    this.form?.given.clear();
    this.form = new Form(this.facts);
    if (before) this.form.field("prompt").value = before;
    this.form.onchange = () => (this.say.textContent = "");
    this.host.replaceChildren(this.form.element);
    this.extras();
  }

  modes() {
    return choice("How many", [["one", "One"], ["two", "Two side by side"], ["grid", "Grid"]], "one", (mode) => {
      this.mode = mode;
      this.extras();
    });
  }

  extras() {
    const facts = this.facts;
    this.submit.textContent = { one: "Make it", two: "Make both", grid: "Make the grid" }[this.mode];
    if (this.mode === "two") {
      const value = h("input", { name: "otherwise_value", value: String(Number((facts.guidance_scale * 1.6).toFixed(1))) });
      const names = h("select", { name: "otherwise" }, Object.entries(OTHERWISE).map(([name, text]) => h("option", { value: name }, text)));
      this.extra.replaceChildren(h("div", { class: "pair" }, labelled("The second has another", names), labelled("Its value", value)), h("p", { class: "note" }, "Both have the same seed and play frame by frame together."));
    } else if (this.mode === "grid") {
      const guidance = [0.5, 1, 1.5].map((by) => Number((facts.guidance_scale * by).toFixed(1))).join(", ");
      this.extra.replaceChildren(h("div", { class: "pair" }, labelled("Seeds", h("input", { name: "grid_seeds", type: "number", min: 1, max: 8, value: 3 })), labelled("Guidance", h("input", { name: "grid_guidance", value: guidance }))));
    } else this.extra.replaceChildren();
  }

  /** What is to be made: rows of requests, and what they are called. */
  asked() {
    const pairs = this.form.pairs();
    const value = (name) => this.extra.querySelector(`[name="${name}"]`).value;
    if (this.mode === "two") {
      const name = value("otherwise");
      return { title: "Two side by side", requests: [[pairs, replaced(pairs, name, value("otherwise_value"))]] };
    }
    if (this.mode === "grid") {
      const first = Number(this.form.text("seed")) || 0;
      const seeds = Array.from({ length: Math.min(8, Math.max(1, Number(value("grid_seeds")) || 1)) }, (_, at) => first + at);
      const guidance = numbers(value("grid_guidance")).slice(0, 6);
      if (guidance.length === 0) throw new Error("give one or more numbers as guidance");
      const requests = seeds.map((seed) => guidance.map((own) => replaced(replaced(pairs, "seed", seed), "guidance_scale", own)));
      return { title: "Seeds and guidance", rows: seeds.map((seed) => `seed ${seed}`), columns: guidance.map((own) => `guidance ${own}`), requests };
    }
    return { requests: [[pairs]] };
  }

  async send(event) {
    event.preventDefault();
    const missing = this.form.given.missing();
    if (!this.form.text("prompt")) return void this.form.refuse("prompt", "say what to make");
    if (missing) return void this.form.refuse(missing.field, "give this one: the model begins with it");
    this.submit.disabled = true;
    this.say.textContent = "";
    try {
      const { requests, ...board } = this.asked();
      const ids = requests.map(() => []);
      for (const [at, row] of requests.entries()) {
        for (const pairs of row) ids[at].push(await this.jobs.submit(this.facts, pairs, this.mode === "one" ? null : (text) => (this.say.textContent = text)));
      }
      this.say.textContent = "";
      if (this.mode !== "one" && this.facts.makes === "video") this.show({ ...board, ids });
      if (this.mode === "one") this.form.roll();
      say(requests.flat().length > 1 ? `${requests.flat().length} are asked for` : "It is asked for");
    } catch (error) {
      if (!error.param || !this.form.refuse(error.param, error.message)) this.say.textContent = error.message;
    } finally {
      this.submit.disabled = false;
    }
  }

  /** Shows clips beside each other. */
  show(board) {
    this.board?.end();
    const own = JSON.stringify(board);
    sessionStorage.setItem(BOARD, own);
    this.board = new Board(this, board, () => this.hide());
    this.place.replaceChildren(this.board.element);
  }

  hide() {
    sessionStorage.removeItem(BOARD);
    this.board = null;
    this.place.replaceChildren();
  }

  restore() {
    const board = JSON.parse(sessionStorage.getItem(BOARD) ?? "null");
    if (board?.ids.flat().some((id) => this.jobs.all.has(id))) this.show(board);
  }

  /** Chooses a clip to be compared; the second shows both. */
  choose(id) {
    this.chosen = this.chosen.includes(id) ? this.chosen.filter((own) => own !== id) : [...this.chosen, id];
    if (this.chosen.length === 1) say("Choose another one to compare it with");
    if (this.chosen.length === 2) {
      this.show({ title: "Side by side", ids: [this.chosen] });
      this.place.scrollIntoView({ block: "start", behavior: "smooth" });
      this.chosen = [];
    }
    for (const [own, { element }] of this.cards) element.querySelector(".compare")?.setAttribute("aria-pressed", String(this.chosen.includes(own)));
  }

  /** Takes over the settings of a clip. */
  fill(job) {
    if (this.facts.id !== job.model && this.known.has(job.model)) {
      this.choose_model(job.model);
      if (this.models) this.models.querySelector("select").value = job.model;
    }
    this.form.fill(job);
    this.form.field("prompt").focus();
    say(job.conditions?.length ? "The settings are in the form; what was given beside the prompt is not" : "The settings are in the form");
  }

  empty() {
    if (this.cards.size > 0) return;
    this.gallery.replaceChildren(h("p", { class: "empty" }, h("img", { src: "/studio/icon.svg", alt: "", width: 56, height: 56 }), "What you make appears here."));
  }

  changed(id) {
    const job = this.jobs.all.get(id);
    const card = this.cards.get(id);
    if (!job) {
      card?.element.remove();
      this.cards.delete(id);
      this.empty();
    } else if (card) card.update(job);
    else this.insert(job);
    this.older.hidden = !this.jobs.more;
    this.board?.update();
  }

  insert(job) {
    if (this.cards.size === 0) this.gallery.replaceChildren();
    const card = new Card(this, job);
    this.cards.set(job.id, card);
    const order = this.jobs.list().map((own) => own.id);
    const after = order.slice(order.indexOf(job.id) + 1).map((id) => this.cards.get(id)).find(Boolean);
    this.gallery.insertBefore(card.element, after?.element ?? null);
  }
}

/** Shows the view until it is told to stop. */
export const generate = async (place, signal) => {
  const { data } = await ask("/studio/api/models");
  await new View(data, signal).draw(place);
};
