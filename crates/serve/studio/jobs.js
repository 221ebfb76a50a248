// What was asked for and what came of it: clips as the server lists them, pictures as long as the page is open.

import { Refused, ask, call, every, events, post, release } from "./api.js";

const PAGE = 24;

/** Answers that stay open, of events and of pictures: a browser opens six connections to a host, and what is pressed or played needs some. */
const FOLLOWED = 2;
const DRAWN = 2;

/** A number of moments. */
const pause = (seconds, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, seconds * 1000);
  signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()));
});

export const isOver = (job) => job.status === "completed" || job.status === "failed";

/** All jobs that the page knows, the newest first. `changed` is called with each that is new, other or gone. */
export class Jobs {
  constructor(signal, changed) {
    Object.assign(this, { signal, changed, all: new Map(), followed: new Map(), drawn: 0, pairs: new Map(), more: false, limit: PAGE, newest: 1e6 });
  }

  begin() {
    return every(4, this.signal, () => this.refresh());
  }

  list() {
    return [...this.all.values()].sort((a, b) => b.created_at - a.created_at || (b.order ?? 0) - (a.order ?? 0));
  }

  /** What the server has, which others may have asked for too. */
  async refresh() {
    const pages = [];
    let after = "";
    for (let left = this.limit; left > 0; left -= 100) {
      const page = await ask(`/v1/videos?limit=${Math.min(left, 100)}${after}`, { signal: this.signal });
      pages.push(...page.data);
      this.more = page.has_more;
      if (!page.has_more) break;
      after = `&after=${page.last_id}`;
    }
    const there = new Set(pages.map((job) => job.id));
    for (const [id, job] of this.all) {
      if (job.object === "video" && !there.has(id) && !job.isNew) this.forget(id);
    }
    // Jobs of one second keep the order of the list.
    pages.forEach((job, at) => this.take({ ...job, order: pages.length - at }));
    this.listen();
  }

  /** Shows older ones too. */
  older() {
    this.limit += PAGE;
    return this.refresh();
  }

  take(job) {
    const before = this.all.get(job.id);
    // What is followed is told by its events, which know more.
    if (before && this.followed.has(job.id) && !job.isEvent && !isOver(job)) return;
    this.all.set(job.id, { ...job, order: job.order ?? before?.order ?? (this.newest += 1) });
    if (!before || before.status !== job.status || before.progress !== job.progress || before.step !== job.step || before.stage !== job.stage || before.preview !== job.preview) this.changed(job.id);
  }

  forget(id) {
    if (!this.all.delete(id)) return;
    release(`/v1/videos/${id}/`);
    this.changed(id);
  }

  /** Listens to the few clips of which there is most to hear: those that run, then those that are next. The list tells of the others. */
  listen() {
    const runs = (job) => Number(job.status === "in_progress");
    const left = this.list().reverse().filter((job) => job.object === "video" && !isOver(job));
    const wanted = left.sort((a, b) => runs(b) - runs(a)).slice(0, FOLLOWED).map((job) => job.id);
    for (const [id, stop] of this.followed) if (!wanted.includes(id)) stop.abort();
    for (const id of wanted) if (!this.followed.has(id) && this.followed.size < FOLLOWED) this.follow(id);
  }

  /** Listens to what happens to a clip until it is over, or others matter more. */
  async follow(id) {
    const stop = new AbortController();
    this.followed.set(id, stop);
    try {
      for await (const [name, job] of events(await call(`/v1/videos/${id}/events`, { signal: AbortSignal.any([this.signal, stop.signal]) }))) {
        if (name === "deleted") this.forget(id);
        else this.take({ ...job, isEvent: true });
      }
    } catch {
      // The list tells it instead.
    }
    this.followed.delete(id);
    // Others may have begun, or ended with it.
    if (!this.signal.aborted && !stop.signal.aborted) await this.refresh().catch(() => {});
    else this.listen();
  }

  /** Asks for something; the queue may have to be waited for. Returns its id. */
  async submit(facts, pairs, onwait) {
    if (facts.makes === "image") return this.picture(facts, pairs);
    for (;;) {
      try {
        const job = await (await post("/v1/videos", pairs)).json();
        this.pairs.set(job.id, pairs);
        this.take({ ...job, isNew: true });
        this.listen();
        return job.id;
      } catch (error) {
        if (!(error instanceof Refused) || error.status !== 429 || !onwait) throw error;
        onwait(error.message);
        await pause(2, this.signal);
        if (this.signal.aborted) throw error;
      }
    }
  }

  /** Pictures: their client waits for them, and going away gives them up. */
  async picture(facts, pairs) {
    const id = `picture_${crypto.getRandomValues(new Uint32Array(2)).join("")}`;
    const stop = new AbortController();
    const value = (name) => pairs.find(([own]) => own === name)?.[1];
    const count = Number(value("n") ?? 1);
    const base = {
      id, object: "image", model: facts.id, prompt: value("prompt"), seed: Number(value("seed")), created_at: Date.now() / 1000, stop,
      size: value("size") ?? `${facts.size.width}x${facts.size.height}`, num_inference_steps: value("num_inference_steps"), guidance_scale: value("guidance_scale"),
    };
    const show = (more) => this.take({ ...base, ...more });
    const url = (one) => `data:image/png;base64,${one.b64_json}`;
    this.pairs.set(id, pairs);
    while (this.drawn >= DRAWN && !this.signal.aborted) await pause(0.2, this.signal);
    this.drawn += 1;
    const stream = count === 1 ? [["stream", "true"], ["partial_images", Math.min(3, Number(value("num_inference_steps") ?? facts.num_inference_steps) - 1)]] : [];
    const response = post("/v1/images/generations", [...pairs, ...stream], { signal: stop.signal });
    const ended = () => (this.drawn -= 1);
    if (count === 1) {
      // What is wrong with it is known before the first event.
      const own = await response.catch((error) => {
        ended();
        throw error;
      });
      show({ status: "in_progress", progress: 0 });
      this.receive(own, show, url, id).finally(ended);
    } else {
      show({ status: "in_progress", progress: 0 });
      response.then((own) => own.json()).then((made) => show({ status: "completed", progress: 100, pictures: made.data.map(url) }), (error) => this.lost(id, show, error)).finally(ended);
    }
    return id;
  }

  async receive(response, show, url, id) {
    try {
      for await (const [name, value] of events(response)) {
        if (name.endsWith("partial_image")) show({ status: "in_progress", progress: 25 * (value.partial_image_index + 1), preview: url(value) });
        else if (name.endsWith("completed")) return show({ status: "completed", progress: 100, pictures: [url(value)] });
        else if (value.error) throw new Refused(500, value.error);
      }
      throw new Error("the server ended the answer");
    } catch (error) {
      this.lost(id, show, error);
    }
  }

  lost(id, show, error) {
    if (error.name === "AbortError") this.forget(id);
    else show({ status: "failed", progress: 0, error: { message: error.message } });
  }

  /** Removes a job, wherever it is. */
  async remove(id) {
    const job = this.all.get(id);
    if (job?.object === "image") job.stop.abort();
    else await call(`/v1/videos/${id}`, { method: "DELETE" });
    this.forget(id);
  }
}
