// One job of the gallery: waiting, on its way, or a clip that plays.

import { source } from "./api.js";
import { ago, copy, duration, h, icon, number, say } from "./dom.js";
import { command, curl, pairsOf } from "./commands.js";
import { isOver } from "./jobs.js";

const STAGES = { open: "opening the model", text: "reading the prompt", encode: "reading what is given", denoise: "denoising", decode: "decoding" };

/** The ratio of a picture, for a box that has its shape before it is there. */
const ratio = (job) => job.size.replace("x", " / ");

/** Lets a player have its controls while it is pointed at or has the focus, so that they cover no still. */
const uncovered = (video) => {
  if (!matchMedia("(hover: hover)").matches) return;
  video.controls = false;
  video.tabIndex = 0;
  const show = () => (video.controls = true);
  const hide = () => (video.controls = !video.paused || video.matches(":hover, :focus"));
  for (const name of ["pointerenter", "focus", "play"]) video.addEventListener(name, show);
  for (const name of ["pointerleave", "blur", "pause"]) video.addEventListener(name, hide);
};

/** A player of a clip, with its still before it is opened. */
export const player = (job, more = {}) => {
  const video = h("video", { controls: true, loop: true, muted: true, playsInline: true, preload: "none", style: { "aspect-ratio": ratio(job) }, "aria-label": `Clip: ${job.prompt}`, ...more });
  if (more.controls !== false) uncovered(video);
  const at = (variant) => `/v1/videos/${job.id}/content?variant=${variant}`;
  source(at("thumbnail")).then((url) => (video.poster = url), () => {});
  source(at("video")).then((url) => (video.src = url), (error) => video.replaceWith(h("p", { class: "empty" }, error.message)));
  return video;
};

/** What a job was asked for, in a few words. */
export const settings = (job, facts) => {
  const steps = job.num_inference_steps ?? facts?.num_inference_steps;
  const guidance = job.guidance_scale ?? facts?.guidance_scale;
  return [job.size.replace("x", " × "), job.object === "video" && `${job.seconds} s`, steps && `${steps} steps`, guidance !== undefined && `guidance ${number(Number(guidance))}`, `seed ${job.seed}`,
    job.lora?.[0] && `LoRA ${job.lora[0].name}`].filter(Boolean).join(" · ");
};

/** How far a job is, drawn. */
const progress = (job) => {
  const stage = STAGES[job.stage] ?? job.stage ?? "";
  const step = job.steps > 1 ? `, step ${job.step} of ${job.steps}` : "";
  const left = job.seconds_left ? `, ${duration(job.seconds_left)} left` : "";
  const words = job.status === "queued" ? "waiting for its turn" : `${stage}${step}${left}`;
  return h("div", { class: "progress" },
    job.preview && h("img", { src: job.preview, alt: "what it will be" }),
    h("progress", { max: 100, value: job.status === "queued" ? 0 : job.progress, "aria-label": `Progress of ${job.prompt}` }),
    h("p", { class: "note" }, h("b", {}, job.status === "queued" ? "" : `${job.progress} % `), words || "beginning"));
};

/** A job that is shown. It is drawn anew where what is seen of it changes. */
export class Card {
  constructor(view, job) {
    this.view = view;
    this.element = h("article", { class: "card", tabindex: "-1" });
    this.update(job);
  }

  update(job) {
    const was = this.job?.status;
    this.job = job;
    if (was === job.status && isOver(job)) return;
    this.element.dataset.status = job.status;
    this.element.dataset.id = job.id;
    if (was === job.status && job.status === "in_progress") {
      this.element.querySelector(".progress").replaceWith(progress(job));
      return;
    }
    const hadFocus = this.element.contains(document.activeElement);
    this.element.replaceChildren(...this.drawn(job));
    if (hadFocus) this.element.focus();
  }

  drawn(job) {
    const facts = this.view.factsOf(job.model);
    const head = [h("h3", {}, job.prompt), h("p", { class: "note" }, settings(job, facts))];
    if (job.status === "failed") {
      return [h("p", { class: "failure" }, job.error?.message ?? "it failed"), ...head, h("div", { class: "acts" }, this.act("Again", () => this.view.fill(job)), this.act("Remove", () => this.remove()))];
    }
    if (job.status !== "completed") return [h("div", { class: "stage", style: { "aspect-ratio": ratio(job) } }, progress(job)), ...head, h("div", { class: "acts" }, this.act("Cancel", () => this.remove()))];
    return job.object === "image" ? this.pictures(job, head) : this.clip(job, head);
  }

  clip(job, head) {
    const took = job.inference_time_s ? h("p", { class: "note" }, `made in ${duration(job.inference_time_s)}, ${ago(job.completed_at)}`) : null;
    const compare = h("button", { type: "button", class: "compare", "aria-pressed": "false", onclick: () => this.view.choose(job.id) }, "Compare");
    const save = h("a", { class: "button", href: "#", onclick: (event) => this.save(event, job) }, "Save");
    return [player(job), ...head, took, h("div", { class: "acts" }, compare, this.act("Use settings", () => this.view.fill(job)), save, this.more(job))];
  }

  pictures(job, head) {
    const all = job.pictures.map((url, at) => h("a", { href: url, download: `picture-${job.seed}-${at}.png`, title: "Save" }, h("img", { src: url, alt: job.prompt, style: { "aspect-ratio": ratio(job) } })));
    return [h("div", { class: "pictures" }, all), ...head, h("div", { class: "acts" }, this.more(job))];
  }

  async save(event, job) {
    if (event.currentTarget.download) return;
    event.preventDefault();
    const link = h("a", { href: await source(`/v1/videos/${job.id}/content?variant=video`), download: `${job.id}.mp4` });
    link.click();
  }

  more(job) {
    const facts = this.view.factsOf(job.model);
    const pairs = () => this.view.jobs.pairs.get(job.id) ?? pairsOf(job, facts);
    return h("details", { class: "menu" }, h("summary", {}, "Copy"), h("div", {},
      facts && this.act("as curl", () => copy(curl(facts, pairs()), "The curl command")),
      facts?.command && this.act("as command", () => copy(command(facts, pairs()), "The command")),
      this.act("the seed", () => copy(String(job.seed), "The seed")),
      this.act("Remove", () => this.remove(), icon("close"))));
  }

  act(text, work, ...more) {
    return h("button", { type: "button", onclick: () => Promise.resolve(work()).catch((error) => say(error.message)) }, more, text);
  }

  async remove() {
    await this.view.jobs.remove(this.job.id);
    say(isOver(this.job) ? "It is removed" : "It is given up");
  }
}
