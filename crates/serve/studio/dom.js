// Elements, and numbers in words.

const SVG = "http://www.w3.org/2000/svg";

const put = (element, props, children) => {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset" || name === "style") Object.entries(value).forEach(([key, own]) => (name === "style" ? element.style.setProperty(key, own) : (element.dataset[key] = own)));
    else if (["value", "checked", "muted", "loop", "playsInline", "selected"].includes(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
};

/** An element of the page; `on…` are listeners. */
export const h = (name, props, ...children) => put(document.createElement(name), props, children);

/** An element of a drawing. */
export const s = (name, props, ...children) => put(document.createElementNS(SVG, name), props, children);

let numbered = 0;

/** An id that nothing else has. */
export const fresh = (name) => `${name}-${++numbered}`;

/** A label over a field, with what is said of it below. */
export const labelled = (text, field, { hint, name } = {}) => {
  field.id ||= fresh("field");
  const note = h("p", { class: "note", id: `${field.id}-note`, "data-note": name ?? "" }, hint ?? "");
  field.setAttribute("aria-describedby", note.id);
  return h("div", { class: "field", "data-field": name ?? "" }, h("label", { for: field.id }, text), field, note);
};

/** One of several, as buttons of which one is pressed. */
export const choice = (label, options, chosen, pick) => {
  const buttons = options.map(([value, text]) =>
    h("button", { type: "button", "aria-pressed": String(value === chosen), onclick: () => set(value) }, text));
  const set = (value) => {
    buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(options[at][0] === value)));
    pick(value);
  };
  return h("div", { class: "choice", role: "group", "aria-label": label }, buttons);
};

/** A few digits of a number, as many as matter. */
export const number = (value, digits = 4) => {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)) return value.toExponential(2).replace("e+", "e");
  return String(Number(value.toPrecision(digits)));
};

/** Bytes in words. */
export const bytes = (count) => {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  for (; count >= 1000 && at < units.length - 1; at += 1) count /= 1000;
  return `${at === 0 ? count : Number(count.toPrecision(3))} ${units[at]}`;
};

/** Seconds in words. */
export const duration = (seconds) => {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds < 0.1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 90) return `${Number(seconds.toPrecision(seconds < 10 ? 2 : 3))} s`;
  if (seconds < 5400) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
};

/** How long ago a moment of the server's clock was. */
export const ago = (at) => {
  const seconds = Math.max(0, Date.now() / 1000 - at);
  if (seconds < 45) return "just now";
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
};

/** Says something for a moment, to eyes and to readers of screens. */
export const say = (text) => {
  const place = document.getElementById("says");
  place.textContent = text;
  place.classList.add("shown");
  clearTimeout(say.timer);
  say.timer = setTimeout(() => place.classList.remove("shown"), 3500);
};

/** Puts a text on the clipboard, or shows it where that is not allowed. */
export const copy = async (text, what) => {
  try {
    await navigator.clipboard.writeText(text);
    say(`${what} is copied`);
  } catch {
    window.prompt(`${what}: copy it from here`, text);
  }
};

const ICONS = {
  play: "M7 4.5v15l12-7.5z", pause: "M6 4.5h4v15H6zM14 4.5h4v15h-4z", back: "M18 5v14l-9-7zM6 5h2v14H6z", on: "M6 5v14l9-7zM16 5h2v14h-2z",
  close: "M6 6l12 12M18 6L6 18", dice: "M5 5h14v14H5zM9 9h.01M15 15h.01M15 9h.01M9 15h.01M12 12h.01", drop: "M12 16V5m0 0L7.5 9.5M12 5l4.5 4.5M5 19h14",
};

/** A small drawing. */
export const icon = (name) => {
  const line = ["close", "dice", "drop"].includes(name);
  return s("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true", fill: line ? "none" : "currentColor", stroke: line ? "currentColor" : "none", "stroke-width": "2", "stroke-linecap": "round", "stroke-linejoin": "round" }, s("path", { d: ICONS[name] }));
};
