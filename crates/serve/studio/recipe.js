// Recipes: what a run was told, and what another one was told otherwise.

import { h } from "./dom.js";

/** The values of a YAML document by their path, as a run writes it: maps by indentation, lists by dashes. */
export const flat = (text) => {
  const found = new Map();
  const path = [];
  const counts = new Map();
  const name = () => path.map((own) => own.key).join(".");
  for (const raw of (text ?? "").split("\n")) {
    if (!raw.trim() || raw.trim().startsWith("#")) continue;
    let indent = raw.length - raw.trimStart().length;
    let rest = raw.trim();
    while (path.length > 0 && path.at(-1).indent >= indent && !(rest.startsWith("- ") && path.at(-1).indent === indent && !path.at(-1).isItem)) path.pop();
    while (rest === "-" || rest.startsWith("- ")) {
      const at = counts.get(name()) ?? 0;
      counts.set(name(), at + 1);
      path.push({ key: String(at), indent, isItem: true });
      rest = rest.slice(1).trim();
      indent += 2;
    }
    const pair = rest.match(/^("[^"]*"|'[^']*'|[^\s:"'{[][^:]*):(?:\s+(.*))?$/);
    if (!pair) {
      if (rest) found.set(name(), rest);
      continue;
    }
    path.push({ key: pair[1].replace(/^["']|["']$/g, ""), indent });
    if (pair[2] !== undefined && pair[2] !== "") found.set(name(), pair[2]);
  }
  return found;
};

/** What two recipes tell otherwise: path, one's value and the other's. */
export const differences = (one, other) => {
  const [a, b] = [flat(one), flat(other)];
  const keys = [...new Set([...a.keys(), ...b.keys()])];
  return keys.filter((key) => a.get(key) !== b.get(key)).map((key) => [key, a.get(key) ?? "–", b.get(key) ?? "–"]);
};

/** A table of the differences of two runs. */
export const table = (one, other, rows) => {
  if (rows.length === 0) return h("p", { class: "note" }, "Both were told the same.");
  const head = h("tr", {}, h("th", { scope: "col" }, ""), h("th", { scope: "col" }, one), h("th", { scope: "col" }, other));
  const body = rows.map(([key, left, right]) => h("tr", {}, h("th", { scope: "row" }, key), h("td", {}, left), h("td", {}, right)));
  return h("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": "What differs" }, h("table", {}, h("thead", {}, head), h("tbody", {}, body)));
};

/** The text of a recipe with its keys set off. */
export const shown = (text) => {
  const lines = text.split("\n").map((line) => {
    const parts = line.match(/^(\s*(?:- )*)([\w.-]+)(:.*)$/);
    if (line.trimStart().startsWith("#")) return h("span", { class: "comment" }, `${line}\n`);
    return parts ? h("span", {}, parts[1], h("b", {}, parts[2]), `${parts[3]}\n`) : `${line}\n`;
  });
  return h("pre", { class: "yaml", tabindex: "0", "aria-label": "Recipe" }, lines);
};
