// Clips of validation: what the student makes of the same captions, step by step.

import { source } from "./api.js";
import { h } from "./dom.js";

const isShown = (name) => /\.(gif|png|webp|jpe?g|mp4|webm)$/.test(name);

/** The clips of one look, as the run lists them, or as its files are called. */
const clipsOf = (look) => look.clips ?? look.files.filter(isShown).filter((file) => !file.includes("-small.")).map((file) => ({ caption: file, file, preview: file }));

/** A slider over the steps at which the student was looked at. */
export class Looks {
  constructor(run) {
    this.run = run;
    this.looks = [];
    this.tiles = new Map();
    this.grid = h("div", { class: "looks" });
    this.slider = h("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": "Step of the clips", oninput: () => this.show(Number(this.slider.value)) });
    this.step = h("output", { class: "at" });
    this.play = h("button", { type: "button", onclick: () => this.toggle() }, "Play through");
    this.element = h("section", { class: "box", hidden: true, "aria-label": "Validation clips" },
      h("div", { class: "row-head" }, h("h2", {}, "What it makes"), this.step), h("div", { class: "acts steps" }, this.play, this.slider), this.grid);
  }

  /** Takes the looks that there are now, and stays at the last one if it was there. */
  update(looks) {
    const seen = looks.filter((look) => clipsOf(look).length > 0);
    this.element.hidden = seen.length === 0;
    if (seen.length === 0 || (seen.length === this.looks.length && seen.at(-1).files.length === this.looks.at(-1).files.length)) return;
    const wasLast = this.at === undefined || this.at >= this.looks.length - 1;
    this.looks = seen;
    this.slider.max = seen.length - 1;
    this.play.hidden = seen.length < 2;
    this.slider.hidden = seen.length < 2;
    this.show(wasLast ? seen.length - 1 : this.at);
  }

  show(at) {
    this.at = at;
    const look = this.looks[at];
    this.slider.value = at;
    this.slider.setAttribute("aria-valuetext", `step ${look.step}`);
    const clips = clipsOf(look);
    const judged = clips.filter((clip) => typeof clip.right === "boolean");
    this.step.textContent = `step ${look.step}${judged.length ? ` · ${judged.filter((clip) => clip.right).length} of ${judged.length} right` : ""}`;
    const tiles = clips.map((clip, number) => this.tile(number, clip, look));
    if (tiles.length !== this.grid.children.length || tiles.some((tile, number) => tile !== this.grid.children[number])) this.grid.replaceChildren(...tiles);
  }

  /** A place of the grid stays the same element, so that a step changes pictures and nothing moves. */
  tile(number, clip, look) {
    if (!this.tiles.has(number)) this.tiles.set(number, h("figure", { class: "look" }, h("div", { class: "look-picture" }), h("figcaption", {})));
    const tile = this.tiles.get(number);
    const name = clip.preview ?? clip.file;
    const isVideo = /\.(mp4|webm)$/.test(name);
    const path = `/studio/api/runs/${encodeURIComponent(this.run)}/files/${look.folder}/${encodeURIComponent(name)}`;
    tile.dataset.right = clip.right ?? "";
    tile.lastChild.replaceChildren(typeof clip.right === "boolean" ? h("b", { class: clip.right ? "good" : "bad" }, clip.right ? "✓ " : "✗ ") : "", clip.caption);
    source(path).then((url) => {
      if (this.looks[this.at] !== look) return;
      const picture = isVideo ? h("video", { src: url, autoplay: true, muted: true, loop: true, playsInline: true }) : h("img", { src: url, alt: clip.caption });
      tile.firstChild.replaceChildren(picture);
    }, () => {});
    return tile;
  }

  toggle() {
    if (this.timer) return this.stop();
    this.play.textContent = "Stop";
    if (this.at === this.looks.length - 1) this.show(0);
    this.timer = setInterval(() => (this.at >= this.looks.length - 1 ? this.stop() : this.show(this.at + 1)), 900);
    return undefined;
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.play.textContent = "Play through";
  }
}

