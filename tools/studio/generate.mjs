// The view that makes clips, as a user sees it.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import zlib from "node:zlib";

/** The bytes of a picture with a circle of some colour. */
export const png = (side = 64, colour = [200, 60, 40]) => {
  const crc = (bytes) => {
    let value = ~0;
    for (const byte of bytes) {
      value ^= byte;
      for (let bit = 0; bit < 8; bit += 1) value = (value >>> 1) ^ (value & 1 ? 0xedb88320 : 0);
    }
    return ~value >>> 0;
  };
  const block = (kind, data) => {
    const body = Buffer.concat([Buffer.from(kind), data]);
    const [length, check] = [Buffer.alloc(4), Buffer.alloc(4)];
    length.writeUInt32BE(data.length);
    check.writeUInt32BE(crc(body));
    return Buffer.concat([length, body, check]);
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(side, 0);
  head.writeUInt32BE(side, 4);
  head.set([8, 2, 0, 0, 0], 8);
  const rows = Buffer.concat(Array.from({ length: side }, (_, y) => Buffer.from([0, ...Array.from({ length: side }, (__, x) => (Math.hypot(x - side / 2, y - side / 2) < side / 3 ? colour : [245, 240, 230])).flat()])));
  return Buffer.concat([Buffer.from("\x89PNG\r\n\x1a\n", "latin1"), block("IHDR", head), block("IDAT", zlib.deflateSync(rows)), block("IEND", Buffer.alloc(0))]);
};

const clipOf = async (url, id) => Buffer.from(await (await fetch(`${url}v1/videos/${id}/content`)).arrayBuffer());

const set = (page, name, value) => page.locator(`form [name="${name}"]:not([type="range"])`).fill(String(value));

/** Asks for what is in the form, and waits for it: the clip that was not there before and has this prompt. */
const make = async (page, prompt, steps = 2) => {
  const ids = () => page.locator(".card").evaluateAll((cards) => cards.map((card) => card.dataset.id));
  const before = await ids();
  await set(page, "prompt", prompt);
  await set(page, "num_inference_steps", steps);
  await page.getByRole("button", { name: "Make it" }).click();
  const fresh = await page.waitForFunction(([known, text]) => {
    const own = [...document.querySelectorAll('.card[data-status="completed"]')].find((card) => !known.includes(card.dataset.id) && card.querySelector("h3").textContent === text);
    return own?.dataset.id;
  }, [before, prompt]);
  return fresh.jsonValue();
};

/** Generate a clip and see it play. */
export const plays = async ({ browser, server }) => {
  const page = await browser.page(server.url);
  await page.getByRole("button", { name: "Make it" }).waitFor();
  await browser.picture(page, "generate-empty");
  const id = await make(page, "a red circle moves left");
  const played = await page.evaluate(async () => {
    const video = document.querySelector(".card video");
    await video.play();
    const frames = await new Promise((resolve) => {
      let seen = 0;
      const count = () => (++seen === 5 ? resolve(seen) : video.requestVideoFrameCallback(count));
      video.requestVideoFrameCallback(count);
    });
    return { frames, width: video.videoWidth, time: video.currentTime };
  });
  assert.equal(played.frames, 5);
  assert.ok(played.width > 0);
  const job = await (await fetch(`${server.url}v1/videos/${id}`)).json();
  assert.equal(job.prompt, "a red circle moves left");
  assert.equal(job.num_inference_steps, 2);
  assert.deepEqual(page.wrong, []);
  return { page, id };
};

/** What is copied makes the same clip: with curl, and without a server. */
export const copies = async ({ house, server }, { page, id }) => {
  const want = await clipOf(server.url, id);
  const card = page.locator(`.card[data-id="${id}"]`);
  const copied = async (name) => {
    await card.locator("summary").click();
    await card.getByRole("button", { name }).click();
    await card.locator("summary").click();
    return page.evaluate(() => navigator.clipboard.readText());
  };
  const curl = await copied("as curl");
  const job = JSON.parse(execFileSync("bash", ["-c", `${curl} --silent`]));
  await fetch(`${server.url}v1/videos/${job.id}/events`).then((response) => response.text());
  assert.deepEqual(await clipOf(server.url, job.id), want, `curl made another clip: ${curl}`);
  const command = await copied("as command");
  const folder = fs.mkdtempSync(path.join(house.folder, "command-"));
  fs.symlinkSync(house.moviola, path.join(folder, "moviola"));
  execFileSync("bash", ["-c", command], { cwd: folder, env: { ...process.env, PATH: `${folder}:${process.env.PATH}` }, stdio: "pipe" });
  assert.deepEqual(fs.readFileSync(path.join(folder, "clip.mp4")), want, `the command made another clip: ${command}`);
  // A prompt may hold all that a shell and curl read otherwise; the shapes world knows none of these words.
  await page.getByLabel("Model").selectOption("wan-tiny");
  const odd = "it's \"$HOME\" `id` @x <y; -z\\nü";
  await set(page, "prompt", odd);
  await page.getByRole("button", { name: "Copy as curl" }).click();
  const answer = execFileSync("bash", ["-c", `${await page.evaluate(() => navigator.clipboard.readText())} --silent`]);
  assert.equal(JSON.parse(answer).prompt, odd, answer);
  await page.getByLabel("Model").selectOption("shapes");
  await fetch(`${server.url}v1/videos/${JSON.parse(answer).id}`, { method: "DELETE" });
};

/** Two with one seed, side by side, locked to the frame. */
export const compares = async ({ browser }, { page }) => {
  await set(page, "prompt", "a blue square moves up");
  await page.getByRole("button", { name: "Two side by side" }).click();
  await page.locator('[name="otherwise_value"]').fill("6");
  await page.getByRole("button", { name: "Make both" }).click();
  await page.locator(".board .locked").waitFor();
  await page.waitForFunction(() => [...document.querySelectorAll(".board video")].every((video) => video.readyState >= 2));
  await page.getByRole("button", { name: "One frame on" }).click();
  await page.getByRole("button", { name: "One frame on" }).click();
  await page.waitForFunction(() => [...document.querySelectorAll(".board video")].every((video) => !video.seeking && video.currentTime > 0));
  const times = await page.evaluate(() => [...document.querySelectorAll(".board video")].map((video) => video.currentTime));
  assert.equal(times.length, 2);
  assert.ok(Math.abs(times[0] - times[1]) < 1e-3, `players are apart: ${times}`);
  await page.locator(".board").getByRole("button", { name: "Play" }).click();
  const apart = await page.evaluate(async () => {
    const [a, b] = document.querySelectorAll(".board video");
    let [worst, moved] = [0, 0];
    for (let at = 0; at < 40; at += 1) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      if (a.seeking || b.seeking || a.paused) continue;
      worst = Math.max(worst, Math.abs(a.currentTime - b.currentTime));
      moved += 1;
    }
    return { worst, moved };
  });
  assert.ok(apart.moved > 5, `they did not play: ${JSON.stringify(apart)}`);
  assert.ok(apart.worst < 0.25, `players drift apart by ${apart.worst} s`);
  await page.locator(".board").getByRole("button", { name: "Pause" }).click();
  const captions = await page.locator(".board figcaption").allTextContents();
  assert.ok(captions[0].includes("guidance") && captions[1].includes("guidance 6"), captions.join());
  await page.evaluate(() => scrollTo(0, 0));
  await browser.picture(page, "compare");
  assert.deepEqual(page.wrong, []);
};

/** A grid over seeds and guidance. */
export const grids = async ({ browser }, { page }) => {
  await page.getByRole("button", { name: "Grid" }).click();
  await page.locator('[name="grid_seeds"]').fill("2");
  await page.locator('[name="grid_guidance"]').fill("1, 3, 6");
  await page.getByRole("button", { name: "Make the grid" }).click();
  await page.waitForFunction(() => document.querySelectorAll(".board .cell").length === 6 && document.querySelector(".board .locked"));
  const seeds = await page.locator(".board .row").allTextContents();
  assert.equal(new Set(seeds).size, 2);
  await page.waitForFunction(() => [...document.querySelectorAll(".board video")].every((video) => video.readyState >= 2));
  await page.evaluate(() => scrollTo(0, 0));
  await browser.picture(page, "grid");
  await page.locator(".board").getByRole("button", { name: "Close" }).click();
  await page.getByRole("button", { name: "One", exact: true }).click();
};

/** A picture is dropped, shown, sent and seen by the model. */
export const uploads = async ({ browser, server }, { page }) => {
  const file = { name: "shore; type=x.png", mimeType: "image/png", buffer: png() };
  await page.locator('[data-condition="image"] input[type="file"]').setInputFiles(file);
  await page.locator('.drop.filled[data-condition="image"] img').waitFor();
  const id = await make(page, "a red circle moves up");
  const job = await (await fetch(`${server.url}v1/videos/${id}`)).json();
  assert.deepEqual(job.conditions?.map((own) => own.name), ["image"], JSON.stringify(job));
  // By a drop too, of another picture in its place.
  await page.getByRole("button", { name: /Remove First picture/ }).click();
  await page.evaluate((bytes) => {
    const data = new DataTransfer();
    data.items.add(new File([new Uint8Array(bytes)], "dropped.png", { type: "image/png" }));
    document.querySelector('[data-condition="image"]').dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
  }, [...png(64, [40, 90, 200])]);
  await page.getByText("dropped.png").waitFor();
  await browser.picture(page, "upload");
  await page.getByRole("button", { name: /Remove First picture/ }).click();
  assert.deepEqual(page.wrong, []);
};

/** A clip that runs is given up at once, and one that cannot be is refused beside its field. */
export const cancels = async ({ browser, server }, { page }) => {
  await set(page, "prompt", "a yellow circle moves down");
  await set(page, "num_inference_steps", 900);
  await page.getByRole("button", { name: "Make it" }).click();
  const card = page.locator('.card[data-status="in_progress"]').first();
  await card.waitFor();
  await page.waitForFunction(() => document.querySelector('.card[data-status="in_progress"] .note')?.textContent.includes("step"));
  await browser.picture(page, "progress");
  const id = await card.getAttribute("data-id");
  await card.getByRole("button", { name: "Cancel" }).click();
  await page.waitForFunction((own) => !document.querySelector(`[data-id="${own}"]`), id);
  assert.equal((await fetch(`${server.url}v1/videos/${id}`)).status, 404);
  await page.getByRole("button", { name: "Other", exact: true }).click();
  await set(page, "width", 33);
  await set(page, "num_inference_steps", 2);
  await page.getByRole("button", { name: "Make it" }).click();
  await page.locator('.field.wrong').waitFor();
  // The answer of 400 is one that the browser writes down as an error.
  page.wrong = page.wrong.filter((text) => !text.includes("400"));
  assert.deepEqual(page.wrong, []);
};

/** A server with keys asks for one, and shows clips to who has it. */
export const locks = async ({ browser, house }) => {
  const keys = path.join(house.folder, "keys.txt");
  fs.writeFileSync(keys, "anna:0123456789abcdef\n");
  const server = await house.serve([path.join(house.folder, "shapes")], "--keys", keys);
  const page = await browser.page(server.url);
  await page.getByRole("textbox", { name: "API key" }).fill("wrong-wrong-wrong");
  await page.getByRole("button", { name: "Go on" }).click();
  await page.getByText("this is no key of the server").waitFor();
  await page.getByRole("textbox", { name: "API key" }).fill("0123456789abcdef");
  await page.getByRole("button", { name: "Go on" }).click();
  await page.getByRole("button", { name: "Make it" }).waitFor();
  await make(page, "a green square moves up");
  const source = await page.evaluate(async () => {
    const video = document.querySelector(".card video");
    while (!video.src) await new Promise((resolve) => setTimeout(resolve, 20));
    await video.play();
    return video.src;
  });
  assert.ok(source.startsWith("blob:"), source);
  page.wrong = page.wrong.filter((text) => !text.includes("401"));
  assert.deepEqual(page.wrong, []);
  await page.context().close();
  await house.stop(server);
};
