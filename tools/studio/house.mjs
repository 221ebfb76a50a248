// Servers, training runs and a browser of a test, which end with it.

import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import path from "node:path";
import readline from "node:readline";
import { chromium } from "playwright-core";

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

const children = [];

const stopAll = () => children.forEach((child) => child.exitCode === null && child.kill("SIGKILL"));
process.on("exit", stopAll);
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));

/** Starts a program; resolves with the first line of `stream` that `wanted` matches. */
const start = async (program, words, stream, wanted) => {
  const child = spawn(program, words, { stdio: ["ignore", "pipe", "pipe"] });
  children.push(child);
  const said = [];
  child.stderr.on("data", (part) => said.push(String(part)));
  (stream === "stdout" ? child.stderr : child.stdout).resume();
  const found = new Promise((resolve) => readline.createInterface({ input: child[stream] }).on("line", (line) => line.match(wanted) && resolve(line.match(wanted)[1])));
  const gone = once(child, "exit").then(() => Promise.reject(new Error(`${words.join(" ")} ended: ${said.join("").slice(-1500)}`)));
  gone.catch(() => {});
  return { child, found: await Promise.race([found, gone]), said, gone };
};

/** A folder, a binary and what is started with them. */
export class House {
  constructor({ moviola, root, folder }) {
    Object.assign(this, { moviola, root, folder });
  }

  run(...words) {
    return execFileSync(this.moviola, words, { stdio: ["ignore", "pipe", "pipe"] });
  }

  /** A model of the shapes world that has learnt next to nothing. */
  model() {
    const run = path.join(this.folder, "first");
    const model = path.join(this.folder, "shapes");
    this.run("train", path.join(this.root, "recipes/quickstart.yaml"), "--run", run, ...this.short(2), "--set", "checkpoint.every=2");
    this.run("export", run, "--output", model);
    return model;
  }

  short(steps) {
    return ["--set", `loop.steps=${steps}`, "--set", "data.source.clips=32", "--set", "models.student.rate.warmup=0"];
  }

  async serve(models, ...more) {
    const jobs = fs.mkdtempSync(path.join(this.folder, "jobs-"));
    const words = ["serve", "--listen", "127.0.0.1:0", "--jobs", jobs, ...models.flatMap((model) => ["--model", model]), ...more];
    const { child, found, said } = await start(this.moviola, words, "stdout", /^(http:\S+)$/);
    return { url: found, child, said };
  }

  async train(name, steps, ...more) {
    const words = ["train", path.join(this.root, "recipes/quickstart.yaml"), "--run", path.join(this.folder, "runs", name), "--watch", ...this.short(steps), ...more];
    const { child, found, said } = await start(this.moviola, words, "stderr", /(http:\/\/\S+)/);
    return { url: found, child, said };
  }

  async stop({ child }) {
    if (child.exitCode !== null) return;
    child.kill("SIGTERM");
    await once(child, "exit");
  }
}

/** A browser whose pages may not fail in silence and may load nothing from elsewhere. */
export class Browser {
  static async open(program, pictures) {
    const own = new Browser();
    own.pictures = pictures;
    own.chromium = await chromium.launch({ executablePath: program, headless: true, args: FLAGS });
    return own;
  }

  async page(url, { dark = false, phone = false } = {}) {
    const context = await this.chromium.newContext({ viewport: phone ? { width: 390, height: 844 } : { width: 1360, height: 860 }, colorScheme: dark ? "dark" : "light", hasTouch: phone, permissions: ["clipboard-read", "clipboard-write"] });
    const page = await context.newPage();
    page.setDefaultTimeout(60_000);
    page.wrong = [];
    page.on("pageerror", (error) => page.wrong.push(String(error)));
    page.on("console", (message) => message.type() === "error" && page.wrong.push(message.text()));
    const { origin } = new URL(url);
    page.on("request", (request) => /^(data|blob):/.test(request.url()) || request.url().startsWith(origin) || page.wrong.push(`it asked ${request.url()}`));
    await page.goto(url);
    return page;
  }

  async picture(page, name, options = {}) {
    await page.waitForTimeout(150);
    if (this.pictures) await page.screenshot({ path: path.join(this.pictures, `${name}.png`), ...options });
  }

  close() {
    return this.chromium.close();
  }
}
