"use strict";
// What pages are built of. Every text goes in as text, never as markup.

const page = JSON.parse(document.getElementById("document").textContent);
const main = document.getElementById("main");
const GIB = 2 ** 30;
// Okabe and Ito's colours, which people with any colour vision can tell apart.
const COLOURS = {
  parameter: "#0072B2", buffer: "#56B4E9", gradient: "#009E73", optimizer: "#F0E442", activation: "#E69F00",
  input: "#CC79A7", temporary: "#D55E00", workspace: "#999999",
};
const NAMES = {
  parameter: "parameters", buffer: "buffers", gradient: "gradients", optimizer: "optimizer state",
  activation: "activations", input: "inputs", temporary: "temporaries", workspace: "workspace",
};
// An outcome is told by its word, a mark and a shape as well as by its colour.
const OUTCOMES = {
  "fits": { style: "fits", mark: "✓", shape: "circle" },
  "at risk": { style: "risk", mark: "!", shape: "triangle-up" },
  "does not fit": { style: "fails", mark: "✗", shape: "x" },
};

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
const tiny = (bytes) => bytes < GIB / 200; // 0.00 with two decimals
const gib = (bytes) => bytes > 0 && tiny(bytes) ? "<0.01" : (bytes / GIB).toFixed(2);
const short = (number) => number < 10 ? number.toFixed(1) : String(Math.round(number));
const amount = (bytes) => bytes === 0 ? "0" : bytes < 100 * 1024 ? `${short(bytes / 1024)} KiB` : bytes < GIB / 100 ? `${short(bytes / 2 ** 20)} MiB` : `${gib(bytes)} GiB`;
// A sentence, in which `backticks` stand around what is typed
const prose = (text) => text.split("`").map((part, at) => at % 2 ? make("code", {}, part) : part);
const list = (texts) => make("ul", {}, ...texts.map((text) => make("li", {}, ...prose(text))));

function section(title, ...children) {
  const node = make("section", {}, make("h2", {}, title), ...children);
  main.append(node);
  return node;
}

// Cells are texts or nodes; `figures` are the columns that hold numbers.
function table(heads, rows, figures = []) {
  const kind = (content, at) => figures.includes(at) ? "figure" : /\S{40,}/.test(content.textContent ?? content) ? "long" : "";
  const cell = (tag, content, at, more = {}) => make(tag, { class: kind(content, at), ...more }, content);
  const head = make("tr", {}, ...heads.map((text, at) => cell("th", text, at, { scope: "col" })));
  const body = rows.map((row) => make("tr", {}, ...row.map((content, at) => cell("td", content instanceof Node ? content : String(content), at))));
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": heads.join(", ") },
    make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
}

const titled = (title, text) => make("span", {}, make("b", {}, title), make("br"), text);

function outcomeMark(outcome, text = outcome) {
  const { style, mark } = OUTCOMES[outcome];
  return make("span", { class: `outcome ${style}` }, make("span", { "aria-hidden": "true" }, `${mark} `), text);
}

function folded(title, content) {
  return make("details", {}, make("summary", {}, title), content);
}

function setVerdict(text, outcome) {
  const head = document.getElementById("verdict");
  head.textContent = text;
  head.className = OUTCOMES[outcome]?.style ?? "";
}

// Why, and what to do: the sentences of the terminal's report
function showOpening(opening) {
  const rows = [["For", opening.for], ["Unseen", opening.unseen], ["Why", opening.why], ["Next", opening.next]].filter(([, text]) => text);
  const facts = make("dl", { class: "opening" }, ...rows.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, ...prose(text))]));
  for (const { option, reason } of opening.options ?? [])
    facts.append(make("dd", { class: "option" }, make("code", {}, option), reason ? ` ${reason}` : ""));
  main.append(facts);
}

// The card's memory as a bar

function drawBar(node, kinds, device, reserved, budget, whole = Math.max(budget, device.high)) {
  const share = (bytes) => `${(100 * bytes / (whole * 1.02)).toFixed(3)}%`;
  const allocated = Object.values(kinds).reduce((sum, each) => sum + each, 0);
  const parts = Object.entries(kinds).map(([kind, bytes]) => [NAMES[kind] ?? kind, bytes, COLOURS[kind]]);
  parts.push(["reserved, unused", Math.max(0, reserved - allocated), "repeating-linear-gradient(45deg,#aab2bb 0 4px,#d3d8dd 4px 8px)"]);
  parts.push(["context and libraries", Math.max(0, device.expected - reserved), "#5c6570"]);
  const told = `${gib(device.expected)} GiB expected, ${gib(device.low)} to ${gib(device.high)}; the budget is ${gib(budget)} GiB`;
  const bar = make("div", { class: "bar", role: "img", "aria-label": told });
  for (const [name, bytes, colour] of parts) {
    const part = make("span", { title: `${name}: ${gib(bytes)} GiB` });
    part.style.cssText = `width:${share(bytes)};background:${colour}`;
    bar.append(part);
  }
  const place = (className, left, width, ...children) => {
    const mark = make("div", { class: className, "aria-hidden": "true" }, ...children);
    mark.style.cssText = `left:${share(left)};${width === null ? "" : `width:${share(width)}`}`;
    return mark;
  };
  const side = budget / whole > 0.5 ? "left-of-line" : "right-of-line";
  const legend = make("ul", { class: "legend" }, ...parts.filter(([, bytes]) => !tiny(bytes)).map(([name, bytes, colour]) => {
    const mark = make("i");
    mark.style.background = colour;
    return make("li", {}, mark, `${name} ${gib(bytes)} GiB`);
  }));
  node.replaceChildren(
    make("div", { class: "bar-frame" },
      place("budget", budget, null, make("span", { class: side }, `budget ${gib(budget)} GiB`)),
      bar, place("range", device.low, device.high - device.low)),
    make("p", { class: "soft" }, make("i", { class: "whisker" }), told), legend);
}
