// Clips beside each other: two that differ in one setting, or a grid over seeds and guidance, frame-locked.

import { h, icon, number } from "./dom.js";
import { player } from "./card.js";
import { Locked } from "./locked.js";

/** Fields that two clips may differ in, and their names. */
const FIELDS = {
  prompt: "prompt", negative_prompt: "negative prompt", model: "model", seed: "seed", num_inference_steps: "steps", guidance_scale: "guidance", guidance_scale_2: "guidance 2",
  flow_shift: "flow shift", size: "size", num_frames: "frames", lora: "LoRA",
};

const shown = (value) => {
  if (value === undefined || value === null) return "the model's";
  if (Array.isArray(value)) return value.map((own) => `${own.name} ${number(own.scale)}`).join(", ") || "none";
  return typeof value === "number" ? String(value) : value;
};

/** What one clip has otherwise than the others. */
const differs = (job, jobs) =>
  Object.entries(FIELDS).filter(([field]) => jobs.some((other) => JSON.stringify(other[field] ?? null) !== JSON.stringify(job[field] ?? null))).map(([field, name]) => `${name} ${shown(job[field])}`);

/** A board of jobs by their ids: rows of columns. */
export class Board {
  constructor(view, { title, rows, columns, ids }, close) {
    Object.assign(this, { view, rows, columns, ids, stop: new AbortController() });
    this.body = h("div", { class: "cells" });
    this.controls = h("div", {});
    this.element = h("section", { class: "board", "aria-label": title },
      h("div", { class: "board-head" }, h("h2", {}, title), h("button", { type: "button", class: "round", "aria-label": "Close", onclick: () => {
        this.end();
        close();
      } }, icon("close"))), this.body, this.controls);
    this.update();
  }

  end() {
    this.stop.abort();
  }

  /** Draws what there is now; players begin when all are made. */
  update() {
    const jobs = this.ids.flat().map((id) => this.view.jobs.all.get(id));
    const state = jobs.map((job) => (job ? `${job.status} ${job.progress}` : "gone")).join();
    if (state === this.state) return;
    this.state = state;
    this.stop.abort();
    this.stop = new AbortController();
    const done = jobs.filter((job) => job?.status === "completed");
    const videos = new Map(done.map((job) => [job.id, player(job, { controls: false })]));
    const width = this.ids[0].length;
    this.body.style.setProperty("--columns", width);
    this.body.classList.toggle("with-rows", Boolean(this.rows));
    const corner = this.columns && this.rows ? [h("span", {})] : [];
    const heads = (this.columns ?? []).map((text) => h("span", { class: "column" }, text));
    const cells = this.ids.flatMap((row, at) => [this.rows && h("span", { class: "row" }, this.rows[at]), ...row.map((id) => this.cell(id, videos.get(id), done))]);
    this.body.replaceChildren(...[...corner, ...heads, ...cells].filter(Boolean));
    const alike = done.every((job) => job.num_frames === done[0].num_frames && job.fps === done[0].fps);
    const isWhole = done.length > 0 && jobs.every((job) => !job || job.status === "completed" || job.status === "failed");
    if (isWhole && alike) this.controls.replaceChildren(new Locked([...videos.values()], { frames: done[0].num_frames, fps: done[0].fps ?? 1 }, this.stop.signal).element);
    else this.controls.replaceChildren(h("p", { class: "note" }, isWhole ? "The clips are of other lengths, so each plays for itself." : `${done.length} of ${jobs.length} are made; they play together when all are.`));
    if (isWhole && !alike) videos.forEach((video) => (video.controls = true));
  }

  cell(id, video, done) {
    const job = this.view.jobs.all.get(id);
    if (!job) return h("figure", { class: "cell" }, h("p", { class: "empty" }, "removed"));
    const words = this.columns ? "" : differs(job, done).join(", ") || "the same";
    const inside = video ?? h("div", { class: "stage", style: { "aspect-ratio": job.size.replace("x", " / ") } },
      job.status === "failed" ? h("p", { class: "failure" }, job.error?.message) : h("progress", { max: 100, value: job.status === "queued" ? 0 : job.progress, "aria-label": "Progress" }));
    return h("figure", { class: "cell", "data-id": id }, inside, words && h("figcaption", {}, words));
  }
}
