// A form made from what a model says it takes. What is left as the model would have it is not sent.

import { duration, fresh, h, icon, labelled } from "./dom.js";
import { Given } from "./given.js";

/** A size as its shape, with its name. */
const shape = ([width, height]) => {
  const scale = 22 / Math.max(width, height);
  return h("span", { class: "shape", style: { width: `${width * scale}px`, height: `${height * scale}px` } });
};

const draw = () => Math.floor(Math.random() * 2 ** 31);

/** The field of a number, with a slider beside it. */
const slid = (text, name, { min, max, step, value, hint }) => {
  const field = h("input", { id: fresh(name), name, type: "number", inputmode: "decimal", min, step: "any", value });
  const slider = h("input", { type: "range", min, max, step, value, "aria-label": `${text}, as a slider`, tabindex: "-1" });
  slider.addEventListener("input", () => {
    field.value = slider.value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  });
  field.addEventListener("input", () => (slider.value = field.value));
  const own = labelled(text, field, { hint, name });
  own.querySelector("label").after(h("div", { class: "slid" }, slider, field));
  return own;
};

/** The form of one model. */
export class Form {
  constructor(facts) {
    this.facts = facts;
    this.isImage = facts.makes === "image";
    this.given = new Given(facts, () => this.tell());
    this.size = null;
    this.element = h("div", { class: "fields", oninput: () => this.tell() }, this.first(), this.given.element, this.middle(), this.more());
    this.tell();
  }

  first() {
    const prompt = h("textarea", { name: "prompt", rows: 3, maxlength: this.facts.limits.prompt_bytes, placeholder: "A red fox walks through fresh snow", required: true });
    return labelled("Prompt", prompt, { name: "prompt" });
  }

  middle() {
    const { num_inference_steps: steps, guidance_scale: guidance, is_distilled: isDistilled } = this.facts;
    const seed = h("input", { name: "seed", type: "number", inputmode: "numeric", min: 0, step: 1, value: draw() });
    const dice = h("button", { type: "button", class: "round", "aria-label": "Draw another seed", onclick: () => this.roll() }, icon("dice"));
    const seeds = labelled("Seed", seed, { name: "seed" });
    seed.after(dice);
    return [
      this.sizes(), this.isImage ? this.counts() : this.frames(),
      h("div", { class: "pair" },
        slid("Steps", "num_inference_steps", { min: 1, max: isDistilled ? steps : Math.max(50, steps * 2), step: 1, value: steps, hint: isDistilled ? "as few as it was distilled for" : "" }),
        slid("Guidance", "guidance_scale", { min: 0, max: Math.max(12, guidance * 2), step: 0.1, value: guidance })),
      seeds,
    ];
  }

  /** Sizes that the model knows, drawn; or any other. */
  sizes() {
    const { size, trained_sizes: trained } = this.facts;
    const own = [size.width, size.height];
    const known = [own, ...trained.filter(([width, height]) => width !== own[0] || height !== own[1])].slice(0, 6);
    const custom = h("div", { class: "pair custom", hidden: true },
      labelled("Width", h("input", { name: "width", type: "number", min: size.width_step, step: size.width_step, value: own[0] }), { name: "width" }),
      labelled("Height", h("input", { name: "height", type: "number", min: size.height_step, step: size.height_step, value: own[1] }), { name: "height" }));
    const buttons = [...known.map((one, at) => [at === 0 ? null : one, `${one[0]} × ${one[1]}`, one]), ["custom", "Other", null]];
    const all = buttons.map(([value, text, drawn]) => h("button", { type: "button", class: "size", "aria-pressed": String(value === null), onclick: (event) => {
      all.forEach((button) => button.setAttribute("aria-pressed", String(button === event.currentTarget)));
      this.size = value;
      custom.hidden = value !== "custom";
      this.tell();
    } }, drawn ? shape(drawn) : h("span", { class: "shape other" }), text));
    return h("fieldset", { class: "field", "data-field": "size" }, h("legend", {}, "Size"), h("div", { class: "sizes" }, all), custom, h("p", { class: "note", "data-note": "size" }));
  }

  frames() {
    const { num_frames: frames } = this.facts;
    const most = Math.max(frames.default * 2, frames.first + 8 * frames.step);
    const slider = h("input", { name: "num_frames", type: "range", min: frames.first, max: frames.first + Math.ceil((most - frames.first) / frames.step) * frames.step, step: frames.step || 1, value: frames.default });
    const own = labelled("Length", slider, { name: "num_frames" });
    own.querySelector("label").append(" ", h("output", { for: slider.id, class: "length" }));
    return own;
  }

  counts() {
    return slid("Pictures", "n", { min: 1, max: 10, step: 1, value: 1 });
  }

  more() {
    const { loras, experts, is_distilled: isDistilled } = this.facts;
    const field = (text, name, more) => labelled(text, h("input", { name, type: "number", step: "any", placeholder: "the model's", ...more }), { name });
    const rows = [
      labelled("Not this (negative prompt)", h("textarea", { name: "negative_prompt", rows: 2 }), { name: "negative_prompt", hint: isDistilled ? "without guidance it plays no part" : "" }),
      h("div", { class: "pair" }, field("Flow shift", "flow_shift", { min: 0 }), !this.isImage && field("Frames per second", "fps", { min: 0, placeholder: this.facts.fps })),
      experts > 1 && field("Guidance of the second expert", "guidance_scale_2"),
    ];
    if (loras?.length) {
      const scale = h("input", { name: "lora_scale", type: "number", step: 0.05, value: 1 });
      rows.push(h("div", { class: "pair" },
        labelled("LoRA", h("select", { name: "lora" }, h("option", { value: "" }, "none"), loras.map((name) => h("option", { value: name }, name))), { name: "lora" }), labelled("How strongly", scale)));
    }
    const kinds = this.facts.conditions.flatMap((own) => own.takes);
    if (kinds.some((kind) => kind !== "sound")) {
      const ways = ["", "stretch", "crop", "pad"].map((way) => h("option", { value: way }, way || "as the model does"));
      rows.push(labelled("Pictures of other proportions", h("select", { name: "fit" }, ways), { name: "fit" }));
    }
    return h("details", { class: "more" }, h("summary", {}, "More settings"), rows);
  }

  field(name) {
    return this.element.querySelector(`[name="${name}"]`);
  }

  text(name) {
    return this.field(name)?.value.trim() ?? "";
  }

  roll() {
    this.field("seed").value = draw();
    this.tell();
  }

  /** What is sent: pairs of a field and its value. */
  pairs() {
    const { facts } = this;
    const all = [["model", facts.id], ["prompt", this.text("prompt")]];
    const add = (name, usual) => {
      const text = this.text(name);
      if (text !== "" && text !== String(usual)) all.push([name, text]);
    };
    add("negative_prompt", "");
    if (Array.isArray(this.size)) all.push(["size", this.size.join("x")]);
    if (this.size === "custom") all.push(["size", `${this.text("width")}x${this.text("height")}`]);
    add("num_frames", facts.num_frames.default);
    add("fps", facts.fps);
    add("n", 1);
    add("num_inference_steps", facts.num_inference_steps);
    add("guidance_scale", facts.guidance_scale);
    add("guidance_scale_2", "");
    add("flow_shift", "");
    add("fit", "");
    if (this.text("lora")) all.push(["lora", JSON.stringify({ name: this.text("lora"), scale: Number(this.text("lora_scale") || 1) })]);
    all.push(["seed", this.text("seed") || 0]);
    return [...all, ...this.given.pairs()];
  }

  /** What can be said before anything is sent. */
  tell() {
    const length = this.element.querySelector(".length");
    if (length) {
      const frames = Number(this.text("num_frames"));
      const rate = Number(this.text("fps")) || this.facts.fps;
      length.textContent = `${duration(frames / rate)}, ${frames} frames`;
    }
    this.element.querySelectorAll("[aria-invalid]").forEach((own) => own.removeAttribute("aria-invalid"));
    this.element.querySelectorAll(".wrong").forEach((own) => own.classList.remove("wrong"));
    this.onchange?.();
  }

  /** Says what the server says of a field, beside it; whether there is such a field. */
  refuse(param, message) {
    const aliases = { seconds: "num_frames", width: "size", height: "size", image: "input_reference" };
    const own = [param, aliases[param]].filter(Boolean).map((name) => this.element.querySelector(`[data-field="${name}"]`)).find(Boolean);
    if (!own) return false;
    own.classList.add("wrong");
    own.closest("details")?.setAttribute("open", "");
    const field = own.querySelector("input, textarea, select, button");
    field?.setAttribute("aria-invalid", "true");
    const note = own.querySelector(".note");
    if (note) note.textContent = message.replace(`${param}: `, "");
    field?.focus();
    return true;
  }

  /** Takes over the settings of a clip that was made. */
  fill(video) {
    const set = (name, value) => {
      const field = this.field(name);
      if (!field) return;
      field.value = value ?? "";
      field.dispatchEvent(new Event("input", { bubbles: true }));
    };
    const [width, height] = video.size.split("x");
    this.element.querySelectorAll(".size").forEach((button) => button.textContent === "Other" && button.click());
    const { facts } = this;
    const values = {
      prompt: video.prompt, negative_prompt: video.negative_prompt, width, height, num_frames: video.num_frames, seed: video.seed, flow_shift: video.flow_shift,
      num_inference_steps: video.num_inference_steps ?? facts.num_inference_steps, guidance_scale: video.guidance_scale ?? facts.guidance_scale, guidance_scale_2: video.guidance_scale_2,
      fps: video.fps === facts.fps ? "" : video.fps, lora: video.lora?.[0]?.name, lora_scale: video.lora?.[0]?.scale ?? 1,
    };
    Object.entries(values).forEach(([name, value]) => set(name, value));
  }
}
