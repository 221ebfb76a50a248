// The views of training runs and of layouts, and what holds for all views: keys, names, a phone.

import assert from "node:assert/strict";

/** Lets a run look at what it makes. */
const LOOKS = ["--set", "callbacks.validation={every: 4, prompts: [a red circle moves left, a blue square moves up], steps: 4, seed: 3}"];

/** A run is watched while it trains. */
export const watches = async ({ browser, house, steps }) => {
  const run = await house.train("live", steps, "--set", "checkpoint.every=8", ...LOOKS);
  const page = await browser.page(run.url);
  assert.equal(await page.locator("nav a").count(), 0, "a run's page has one view");
  const step = () => page.evaluate(() => Number(document.querySelector(".run .note")?.textContent.match(/step (\d+)/)?.[1] ?? 0));
  await page.waitForFunction(() => /step \d+/.test(document.querySelector(".run .note")?.textContent ?? ""));
  const first = await step();
  await page.waitForFunction((before) => Number(document.querySelector(".run .note").textContent.match(/step (\d+)/)[1]) > before, first);
  await page.locator(".chart .curve").first().waitFor({ state: "attached" });
  const titles = await page.locator(".chart:not([hidden]) figcaption b").allTextContents();
  for (const title of ["Loss", "Learning rate", "Gradient norm", "Samples per second"]) assert.ok(titles.includes(title), `no ${title} in ${titles}`);
  assert.ok(titles.some((title) => title.startsWith("Loss by noise level")), titles.join());
  await page.locator(".look img").first().waitFor();
  await browser.picture(page, "watch");
  assert.deepEqual(page.wrong, []);
  await house.stop(run);
  await page.context().close();
};

/** Runs beside each other: curves of both, what their recipes have otherwise, clips by step. */
export const trains = async ({ browser, house, server }) => {
  const other = await house.train("fast", 12, "--set", "models.student.rate.peak=6e-3", "--set", "checkpoint.every=6", ...LOOKS);
  await new Promise((resolve) => other.child.on("exit", resolve));
  const page = await browser.page(`${server.url}#/training`);
  await page.locator(".runs li").nth(1).waitFor();
  for (const box of await page.locator(".runs input").all()) await box.check();
  await page.waitForFunction(() => document.querySelectorAll(".chart .curve:not(.faint)").length > 8);
  // Whatever is asked for at once, no line of a log is drawn twice: curves go from left to right.
  const turns = await page.evaluate(() => [...document.querySelectorAll(".chart .curve")].filter((curve) => {
    const xs = curve.getAttribute("d").slice(1).split("L").map((pair) => Number(pair.split(" ")[0]));
    return xs.some((x, at) => x < xs[at - 1]);
  }).length);
  assert.equal(turns, 0, "a curve turns back");
  await page.getByLabel("Another run").selectOption({ index: 1 });
  await page.getByRole("rowheader", { name: "models.student.rate.peak" }).waitFor();
  const slider = page.getByLabel("Step of the clips");
  await slider.focus();
  const before = await page.locator(".look img").first().getAttribute("src");
  await page.keyboard.press("ArrowLeft");
  await page.waitForFunction((src) => document.querySelector(".look img").getAttribute("src") !== src, before);
  await page.locator(".curves").first().focus();
  await page.keyboard.press("ArrowLeft");
  assert.match(await page.locator(".chart .at").first().textContent(), /step \d+/);
  await page.evaluate(() => scrollTo(0, 0));
  await browser.picture(page, "training");
  await page.getByLabel("Recipe", { exact: true }).first().scrollIntoViewIfNeeded();
  await browser.picture(page, "training-run");
  assert.deepEqual(page.wrong, []);
  await page.context().close();
};

/** Layouts are weighed and drawn. */
export const plans = async ({ browser, server }) => {
  const page = await browser.page(`${server.url}#/plan`);
  await page.locator(".layouts tbody tr").nth(2).waitFor();
  const first = await page.locator(".big b").first().textContent();
  await page.getByLabel("Steps").fill("100");
  await page.waitForFunction((text) => document.querySelector(".big b").textContent !== text, first);
  assert.equal(await page.locator(".layouts .chosen").count(), 1);
  await browser.picture(page, "plan");
  assert.deepEqual(page.wrong, []);
  await page.context().close();
};

/** Everything that can be used has a name, and is reached by the keyboard in the order of the page. */
export const keyboard = async ({ browser, server }) => {
  for (const view of ["generate", "training", "plan"]) {
    const page = await browser.page(`${server.url}#/${view}`);
    await page.locator("main .panel").waitFor();
    const nameless = await page.evaluate(() => [...document.querySelectorAll("input, select, textarea, button, a, summary")]
      .filter((own) => !(own.labels?.length || own.getAttribute("aria-label") || own.textContent.trim() || own.title)).map((own) => own.outerHTML));
    assert.deepEqual(nameless, [], view);
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
    const seen = [];
    for (let at = 0; at < 12; at += 1) {
      await page.keyboard.press("Tab");
      // Beyond the last one is the browser's own.
      if (await page.evaluate(() => document.activeElement === document.body)) break;
      const own = await page.evaluate(() => {
        const { top, left } = document.activeElement.getBoundingClientRect();
        const { outlineStyle } = getComputedStyle(document.activeElement.closest(".drop") ?? document.activeElement);
        return { top: top + scrollY, left, outlineStyle, name: document.activeElement.outerHTML.slice(0, 80) };
      });
      assert.notEqual(own.outlineStyle, "none", `the focus is not seen on ${own.name}`);
      seen.push(own);
    }
    assert.ok(seen.at(-1).top > seen[0].top, `${view}: ${JSON.stringify(seen)}`);
    await page.context().close();
  }
};

/** On a phone nothing is wider than the screen; light and dark. */
export const phones = async ({ browser, server }) => {
  for (const dark of [false, true]) {
    for (const view of ["generate", "training", "plan"]) {
      for (const phone of [true, false]) {
        const page = await browser.page(`${server.url}#/${view}`, { phone, dark });
        await page.locator("main .panel").waitFor();
        await page.waitForTimeout(600);
        const [width, room] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
        assert.ok(width <= room, `${view} is ${width} wide on a screen of ${room}`);
        if (phone || dark) await browser.picture(page, `${view}${phone ? "-phone" : ""}${dark ? "-dark" : ""}`, { fullPage: phone && view !== "training" });
        await page.context().close();
      }
    }
  }
};
