// Calls of the server: with the key where it wants one, and events as they come.

import { fresh, h } from "./dom.js";

const KEY = "moviola-key";

const key = () => sessionStorage.getItem(KEY);

/** An answer that says what is wrong, and with which field. */
export class Refused extends Error {
  constructor(status, error) {
    super(error?.message ?? `the server answered ${status}`);
    this.status = status;
    this.param = error?.param ?? null;
  }
}

/** Whether this page asks with a key. */
export const hasKey = () => key() !== null;

let asking = null;

/** Asks for a key; one question at a time, whoever wants to know. */
const askKey = (message) => {
  asking ??= new Promise((resolve) => {
    const id = fresh("key");
    const input = h("input", { id, type: "password", autocomplete: "off", required: true, spellcheck: "false" });
    const form = h("form", { method: "dialog" },
      h("h2", {}, "This server wants a key"), h("p", { class: "note" }, message ?? "It is kept until this tab is closed."),
      h("div", { class: "field" }, h("label", { for: id }, "API key"), input), h("button", { class: "primary" }, "Go on"));
    const dialog = h("dialog", { class: "key", "aria-label": "A key" }, form);
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(KEY, input.value.trim());
      dialog.remove();
      asking = null;
      resolve();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
  return asking;
};

/** The response of a call that went well. */
export const call = async (path, options = {}) => {
  for (;;) {
    const used = key();
    const headers = { ...options.headers, ...(used === null ? {} : { Authorization: `Bearer ${used}` }) };
    const response = await fetch(path, { ...options, headers });
    if (response.ok) return response;
    const error = (await response.json().catch(() => ({}))).error;
    if (response.status !== 401) throw new Refused(response.status, error);
    // Another call may have been told the right one meanwhile.
    if (used === key()) await askKey(used === null ? null : error?.message);
  }
};

/** The JSON of a call. */
export const ask = async (path, options) => (await call(path, options)).json();

/** Sends fields as a form. */
export const post = (path, pairs, options = {}) => {
  const body = new FormData();
  for (const [name, value] of pairs) body.append(name, value instanceof File ? value : String(value));
  return call(path, { ...options, method: "POST", body });
};

/** The events of a response, as pairs of a name and a value. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const lines = part.split("\n");
      const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      const name = lines.find((line) => line.startsWith("event: "))?.slice(7);
      if (data) yield [name ?? "message", JSON.parse(data)];
    }
  }
}

const held = new Map();

/** An address that a player can open. A player sends no key, so with one the file is fetched for it. */
export const source = async (path) => {
  if (!hasKey()) return path;
  if (!held.has(path)) held.set(path, call(path).then(async (response) => URL.createObjectURL(await response.blob())));
  return held.get(path).catch((error) => {
    held.delete(path);
    throw error;
  });
};

/** Gives up what was fetched for players. */
export const release = (prefix) => {
  for (const [path, url] of held) {
    if (!path.startsWith(prefix)) continue;
    held.delete(path);
    url.then(URL.revokeObjectURL, () => {});
  }
};

/** Does something now and then, as long as a view is shown and the page is looked at. */
export const every = (seconds, signal, work) => {
  let busy = false;
  const turn = async () => {
    if (busy || document.hidden || signal.aborted) return;
    busy = true;
    await work().catch((error) => {
      if (!signal.aborted) document.getElementById("state").textContent = error instanceof Refused ? error.message : "the server does not answer";
    });
    busy = false;
  };
  const timer = setInterval(turn, seconds * 1000);
  signal.addEventListener("abort", () => clearInterval(timer));
  return turn();
};
