// Players that show the same frame at any time: one set of controls for all of them.

import { h, icon } from "./dom.js";

/** Beyond so many frames a player is moved, below it is led back by its speed. */
const FAR = 1.5;

const ready = (video) => (video.readyState >= 2 ? Promise.resolve() : new Promise((resolve) => video.addEventListener("loadeddata", resolve, { once: true })));

/** Locks players of clips that have as many frames and the same rate. */
export class Locked {
  constructor(videos, { frames, fps }, signal) {
    Object.assign(this, { videos, frames, fps, frame: 0, playing: false, signal });
    for (const video of videos) Object.assign(video, { controls: false, loop: false, muted: true, preload: "auto" });
    this.slider = h("input", { type: "range", min: 0, max: frames - 1, step: 1, value: 0, "aria-label": "Frame", oninput: () => this.show(Number(this.slider.value)) });
    this.shown = h("output", { class: "frame" });
    this.button = h("button", { type: "button", class: "round", onclick: () => this.toggle() });
    this.element = h("div", { class: "locked", role: "group", "aria-label": "Players, frame by frame", onkeydown: (event) => this.key(event) },
      this.button, this.step("One frame back", "back", -1), this.step("One frame on", "on", 1), this.slider, this.shown);
    this.draw();
    signal.addEventListener("abort", () => this.stop());
    Promise.all(videos.map(ready)).then(() => this.show(0));
  }

  step(label, name, by) {
    return h("button", { type: "button", class: "round", "aria-label": label, onclick: () => this.show(this.frame + by) }, icon(name));
  }

  key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === " " && event.target !== this.button) this.toggle();
    else if (by && event.target !== this.slider) this.show(this.frame + by);
    else return;
    event.preventDefault();
  }

  draw() {
    this.button.replaceChildren(icon(this.playing ? "pause" : "play"));
    this.button.setAttribute("aria-label", this.playing ? "Pause" : "Play");
    this.slider.value = this.frame;
    this.shown.textContent = `${this.frame + 1} / ${this.frames}`;
  }

  /** Shows a frame on all players, and holds there. */
  async show(frame) {
    this.stop();
    this.frame = (frame + this.frames) % this.frames;
    this.draw();
    await this.seek(this.frame);
  }

  /** Moves all to the middle of a frame. */
  seek(frame) {
    const time = (frame + 0.5) / this.fps;
    return Promise.all(this.videos.map((video) => {
      if (Math.abs(video.currentTime - time) < 1e-3 && !video.seeking) return null;
      const done = new Promise((resolve) => video.addEventListener("seeked", resolve, { once: true }));
      video.currentTime = time;
      return done;
    }));
  }

  toggle() {
    return this.playing ? this.show(this.frame) : this.play();
  }

  async play() {
    this.playing = true;
    this.draw();
    await this.seek(this.frame === this.frames - 1 ? 0 : this.frame);
    if (!this.playing) return;
    await Promise.all(this.videos.map((video) => video.play().catch(() => {})));
    this.turn();
  }

  stop() {
    this.playing = false;
    cancelAnimationFrame(this.next);
    for (const video of this.videos) {
      video.pause();
      video.playbackRate = 1;
    }
  }

  /** Keeps all together while they play. */
  turn() {
    if (!this.playing || this.signal.aborted) return;
    const [first, ...others] = this.videos;
    if (first.ended || first.currentTime >= (this.frames - 0.02) / this.fps) {
      for (const video of this.videos) video.pause();
      this.frame = 0;
      this.play();
      return;
    }
    for (const video of others) {
      const behind = (first.currentTime - video.currentTime) * this.fps;
      if (Math.abs(behind) > FAR) video.currentTime = first.currentTime;
      else video.playbackRate = Math.abs(behind) < 0.1 ? 1 : Math.min(1.5, Math.max(0.6, 1 + behind * 0.5));
      if (video.paused && !video.ended) video.play().catch(() => {});
    }
    const frame = Math.min(this.frames - 1, Math.floor(first.currentTime * this.fps));
    if (frame !== this.frame) {
      this.frame = frame;
      this.draw();
    }
    this.next = requestAnimationFrame(() => this.turn());
  }
}
