// The page: which views there are, and which one is shown.

import { ask } from "./api.js";
import { h } from "./dom.js";
import { generate } from "./generate.js";
import { plan } from "./plan.js";
import { training } from "./training.js";

const VIEWS = { generate: ["Generate", generate], training: ["Training", training], plan: ["Plan", plan] };

const view = document.getElementById("view");
const tabs = document.getElementById("tabs");
let shown = null;

/** Shows what the address says, and lets the view before it stop what it does. */
const show = (names) => {
  const name = names.find((known) => location.hash === `#/${known}`) ?? names[0];
  if (shown?.name === name) return;
  shown?.stop.abort();
  shown = { name, stop: new AbortController() };
  tabs.querySelectorAll("a").forEach((tab) => tab.toggleAttribute("aria-current", tab.dataset.view === name));
  tabs.querySelectorAll("a[aria-current]").forEach((tab) => tab.setAttribute("aria-current", "page"));
  document.title = `${VIEWS[name][0]} · Moviola`;
  document.getElementById("state").textContent = "";
  view.replaceChildren();
  view.className = name;
  VIEWS[name][1](view, shown.stop.signal).catch((error) => {
    view.replaceChildren(h("p", { class: "empty", role: "alert" }, `This cannot be shown: ${error.message}`));
  });
};

const begin = async () => {
  const { views } = await ask("/studio/api/about");
  const names = views.filter((name) => name in VIEWS);
  if (names.length > 1) tabs.replaceChildren(...names.map((name) => h("a", { href: `#/${name}`, "data-view": name }, VIEWS[name][0])));
  window.addEventListener("hashchange", () => show(names));
  show(names);
};

begin().catch((error) => view.replaceChildren(h("p", { class: "empty", role: "alert" }, `The server does not answer: ${error.message}`)));
