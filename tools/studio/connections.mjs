// The page's list of jobs against a server that is made up: how few answers stay open at a time, whatever is asked for. A
// browser opens six connections to a host, and what is pressed or played needs some of them. It needs no browser.

import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";

// Modules without a package are taken for scripts by some versions of node.
const folder = fs.mkdtempSync(path.join(os.tmpdir(), "studio-"));
fs.cpSync(new URL("../../crates/serve/studio", import.meta.url), folder, { recursive: true });
fs.writeFileSync(path.join(folder, "package.json"), '{"type": "module"}');

globalThis.sessionStorage = { getItem: () => null, setItem() {} };
globalThis.document = { hidden: false, getElementById: () => ({}) };
const jobs = Array.from({ length: 9 }, (_, at) => ({ id: `v${at}`, object: "video", status: at === 0 ? "in_progress" : "queued", progress: 0, created_at: at }));
let open = 0, most = 0, streams = [];
const enc = new TextEncoder();
globalThis.fetch = async (path, options = {}) => {
  if (path.includes("/events")) {
    const id = path.split("/")[3];
    open += 1; most = Math.max(most, open);
    let done = false;
    const body = new ReadableStream({
      start(c) { streams.push({ id, end: () => { if (!done) { done = true; const job = jobs.find((j) => j.id === id); c.enqueue(enc.encode(`event: completed\ndata: ${JSON.stringify(job)}\n\n`)); c.close(); open -= 1; } } });
        options.signal.addEventListener("abort", () => { if (!done) { done = true; open -= 1; c.error(new Error("aborted")); } }); },
    });
    return { ok: true, body };
  }
  if (path.startsWith("/v1/images")) { open += 1; most = Math.max(most, open); return { ok: true, body: new ReadableStream({ start(c) { setTimeout(() => { c.enqueue(enc.encode(`event: image_generation.completed\ndata: {"b64_json":""}\n\n`)); c.close(); open -= 1; }, 100); } }) }; }
  return { ok: true, json: async () => ({ data: [...jobs].reverse(), has_more: false }) };
};
const { Jobs } = await import(path.join(folder, "jobs.js"));
const stop = new AbortController();
const own = new Jobs(stop.signal, () => {});
await own.refresh();
for (let at = 0; at < 9; at += 1) {
  await new Promise((r) => setTimeout(r, 30));
  jobs[at].status = "completed";
  if (jobs[at + 1]) jobs[at + 1].status = "in_progress";
  streams.find((s) => s.id === `v${at}`)?.end();
  await new Promise((r) => setTimeout(r, 30));
}
assert.equal(most, 2, "too many events are listened to at once");
assert.ok([...own.all.values()].every((job) => job.status === "completed"), "not all ends are heard of");
assert.deepEqual(streams.map((stream) => stream.id), jobs.map((job) => job.id), "what runs is not listened to");
most = 0;
await Promise.all(Array.from({ length: 7 }, () => own.picture({ id: "m", size: {}, num_inference_steps: 4 }, [["prompt", "x"], ["seed", "1"]])));
await new Promise((resolve) => setTimeout(resolve, 300));
assert.equal(most, 2, "too many pictures are waited for at once");
assert.equal([...own.all.values()].filter((job) => job.object === "image" && job.status === "completed").length, 7);
stop.abort();
fs.rmSync(folder, { recursive: true });
