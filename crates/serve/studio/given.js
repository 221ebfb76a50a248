// What is given beside a prompt: places to drop files on, one for each condition that the model takes.

import { fresh, h, icon } from "./dom.js";

const TITLES = {
  image: "First picture", last_image: "Last picture", keyframe: "Picture for a frame", video_prefix: "Clip to go on with",
  video: "Whole clip", mask: "Mask", reference: "Reference", audio: "Sound",
};

const ACCEPT = { picture: "image/png,image/jpeg,image/webp,.png,.jpg,.jpeg,.webp", clip: "video/mp4,video/webm,image/gif,.mp4,.webm,.gif,.avi", sound: "audio/wav,.wav" };

/** What a picture, a clip or a sound looks like. */
const look = (file, url) => {
  if (file.type.startsWith("video/")) return h("video", { src: url, muted: true, loop: true, playsInline: true, autoplay: true });
  if (file.type.startsWith("audio/")) return h("audio", { src: url, controls: true });
  return h("img", { src: url, alt: "" });
};

/** Places for files. `changed` is called whenever there is another one. */
export class Given {
  constructor(facts, changed) {
    this.facts = facts;
    this.changed = changed;
    this.files = [];
    this.element = h("div", { class: "given" });
    this.draw();
  }

  /** What a form sends for them. */
  pairs() {
    const name = (own) => (own.condition.name === "keyframe" ? `keyframe[${own.frame}]` : own.condition.field);
    const all = this.files.map((own) => [name(own), own.file]);
    const scale = this.files.find((own) => own.condition.name === "reference" && own.scale)?.scale;
    return scale ? [...all, ["reference_scale", scale]] : all;
  }

  /** Whether something that must be there is not. */
  missing() {
    return this.facts.conditions.find((own) => own.required && !this.files.some(({ condition }) => condition.name === own.name));
  }

  put(condition, file) {
    if (!condition.several) this.drop((own) => own.condition.name === condition.name);
    const taken = this.files.filter((own) => own.condition.name === "keyframe").length;
    this.files.push({ condition, file, url: URL.createObjectURL(file), frame: taken * this.facts.num_frames.step + this.facts.num_frames.first - 1, scale: "" });
    this.draw(condition.name);
    this.changed();
  }

  drop(which) {
    this.files.filter(which).forEach((own) => URL.revokeObjectURL(own.url));
    this.files = this.files.filter((own) => !which(own));
  }

  remove(own) {
    this.drop((other) => other === own);
    this.draw(own.condition.name);
    this.changed();
  }

  /** Lets go of all pictures. */
  clear() {
    this.drop(() => true);
  }

  draw(focus) {
    const tiles = this.facts.conditions.flatMap((condition) => {
      const own = this.files.filter((file) => file.condition.name === condition.name);
      const filled = own.map((file) => this.filled(file));
      return condition.several || own.length === 0 ? [...filled, this.empty(condition)] : filled;
    });
    this.element.replaceChildren(...tiles);
    if (focus) this.element.querySelector(`[data-condition="${focus}"] :is(input, button)`)?.focus();
  }

  empty(condition) {
    const input = h("input", {
      id: fresh("file"), type: "file", class: "unseen", accept: condition.takes.map((kind) => ACCEPT[kind]).join(","),
      onchange: () => input.files[0] && this.put(condition, input.files[0]),
    });
    const tile = h("label", { for: input.id, class: "drop", dataset: { condition: condition.name, field: condition.field } }, input, icon("drop"),
      h("span", { class: "drop-title" }, TITLES[condition.name] ?? condition.name), h("span", { class: "note" }, condition.name === "mask" ? "white is made anew" : condition.takes.join(" or "), condition.required ? ", needed" : ""));
    const over = (event) => {
      event.preventDefault();
      tile.classList.add("over");
    };
    tile.addEventListener("dragenter", over);
    tile.addEventListener("dragover", over);
    tile.addEventListener("dragleave", () => tile.classList.remove("over"));
    tile.addEventListener("drop", (event) => {
      event.preventDefault();
      tile.classList.remove("over");
      if (event.dataTransfer.files[0]) this.put(condition, event.dataTransfer.files[0]);
    });
    return tile;
  }

  filled(own) {
    const title = TITLES[own.condition.name] ?? own.condition.name;
    const more = {
      keyframe: ["Frame", "frame", 0], reference: ["Shown smaller by", "scale", 1],
    }[own.condition.name];
    const numbers = more && h("label", { class: "small" }, more[0], " ", h("input", {
      type: "number", min: more[2], step: 1, value: own[more[1]], oninput: (event) => {
        own[more[1]] = event.target.value;
        this.changed();
      },
    }));
    return h("div", { class: "drop filled", dataset: { condition: own.condition.name, field: own.condition.field } }, look(own.file, own.url),
      h("span", { class: "drop-title" }, title), h("span", { class: "note name" }, own.file.name), numbers,
      h("button", { type: "button", class: "round", "aria-label": `Remove ${title}: ${own.file.name}`, onclick: () => this.remove(own) }, icon("close")));
  }
}
