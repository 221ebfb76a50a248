// The log of a run: read on as it grows, and cut into curves.

import { ask } from "./api.js";

/** Colours that can be told apart, on light and dark. */
const COLOURS = ["#d2691e", "#2f7fb8", "#3c9a5f", "#9b5fc0", "#c2447a", "#8a7a1f", "#3aa6a0", "#7a6a5a"];

export const colour = (at) => COLOURS[at % COLOURS.length];

/** From little noise to much: from blue through violet to orange. */
export const shade = (share) => `oklch(0.63 0.14 ${Math.round(250 + 165 * share) % 360})`;

/** What a run has written so far. */
export class Log {
  constructor(name) {
    Object.assign(this, { name, offset: 0, curves: new Map(), levels: new Map(), step: 0, tokens: 0 });
  }

  curve(group, name) {
    const key = `${group}/${name}`;
    if (!this.curves.has(key)) this.curves.set(key, { group, name, points: [] });
    return this.curves.get(key).points;
  }

  /** Reads what is new; whether there was any. Whoever asks meanwhile waits for the same. */
  read(signal) {
    this.reading ??= this.readOn(signal).finally(() => (this.reading = null));
    return this.reading;
  }

  async readOn(signal) {
    let fresh = false;
    for (;;) {
      const part = await ask(`/studio/api/runs/${encodeURIComponent(this.name)}/metrics?offset=${this.offset}`, { signal });
      if (part.restarted) {
        this.curves.clear();
        this.levels.clear();
      }
      part.lines.forEach((line) => this.take(line));
      this.offset = part.offset;
      fresh ||= part.restarted || part.lines.length > 0;
      if (!part.more) return fresh;
    }
  }

  take(line) {
    const { step } = line;
    this.step = Math.max(this.step, step);
    for (const [name, value] of Object.entries(line.scalars ?? {})) this.curve("validation", name).push([step, value]);
    if (!line.losses) return;
    for (const [name, value] of Object.entries(line.losses)) this.curve("loss", name).push([step, value]);
    for (const { role, rate, gradient_norm: norm } of line.roles ?? []) {
      this.curve("rate", role).push([step, rate]);
      this.curve("norm", role).push([step, norm]);
    }
    this.curve("speed", "samples").push([step, line.samples_per_second]);
    this.curve("speed", "tokens").push([step, line.tokens_per_second]);
    if (line.share_of_peak !== undefined) this.curve("speed", "peak").push([step, line.share_of_peak * 100]);
    for (const { loss, from, to, mean } of line.buckets ?? []) {
      const key = `${loss} ${from}`;
      if (!this.levels.has(key)) this.levels.set(key, { loss, from, to, points: [] });
      this.levels.get(key).points.push([step, mean]);
    }
  }

  /** The curves of a group, by name. */
  of(group) {
    return [...this.curves.values()].filter((own) => own.group === group);
  }

  /** Losses by noise level, from little noise to much. */
  byLevel() {
    return [...this.levels.values()].sort((a, b) => a.loss.localeCompare(b.loss) || a.from - b.from);
  }
}
