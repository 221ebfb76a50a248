// Drives the studio in a headless Chromium; `cargo xtask studio-test` runs this.

import { execFileSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { parseArgs } from "node:util";
import { cancels, compares, copies, grids, locks, plays, uploads } from "./generate.mjs";
import { Browser, House } from "./house.mjs";
import { keyboard, phones, plans, trains, watches } from "./watch.mjs";

const { values } = parseArgs({ options: { moviola: { type: "string" }, root: { type: "string" }, chromium: { type: "string" }, pictures: { type: "string" }, model: { type: "string" }, steps: { type: "string", default: "60" } } });
const folder = fs.mkdtempSync(path.join(os.tmpdir(), "studio-"));
process.on("exit", () => fs.rmSync(folder, { recursive: true, force: true }));
if (values.pictures) fs.mkdirSync(values.pictures, { recursive: true });

const house = new House({ moviola: path.resolve(values.moviola), root: values.root, folder });
const timed = async (name, work) => {
  const begun = performance.now();
  const value = await work();
  console.log(`${name}: good, ${((performance.now() - begun) / 1000).toFixed(1)} s`);
  return value;
};

await timed("few connections", () => execFileSync(process.execPath, [new URL("connections.mjs", import.meta.url).pathname], { stdio: "inherit" }));
const model = await timed("a model", async () => {
  if (!values.model) return house.model();
  fs.symlinkSync(path.resolve(values.model), path.join(folder, "shapes"));
  return path.join(folder, "shapes");
});
fs.mkdirSync(path.join(folder, "runs"), { recursive: true });
const browser = await Browser.open(values.chromium, values.pictures);
const server = await house.serve([model, path.join(values.root, "goldens/wan-tiny")], "--runs", path.join(folder, "runs"));
const all = { browser, house, server, steps: Number(values.steps) };
const open = await timed("a clip is made and plays", () => plays(all));
await timed("what is copied makes the same", () => copies(all, open));
await timed("two are compared", () => compares(all, open));
await timed("a grid", () => grids(all, open));
await timed("a picture is given", () => uploads(all, open));
await timed("a clip is given up", () => cancels(all, open));
await timed("keys", () => locks(all));
await timed("a run is watched", () => watches(all));
await timed("runs are compared", () => trains(all));
await timed("layouts are weighed", () => plans(all));
await timed("the keyboard", () => keyboard(all));
await timed("a phone, light and dark", () => phones(all));
await browser.close();
await house.stop(server);
process.exit(0);
