"use strict";
// Draws the document that stands in the page. Every text goes in as text, never as markup.

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
const OUTCOME_CLASS = { "fits": "fits", "at risk": "risk", "does not fit": "fails" };

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
const gib = (bytes) => (bytes / GIB).toFixed(2);
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function section(title, ...children) {
  const node = make("section", {}, make("h2", {}, title), ...children);
  main.append(node);
  return node;
}

function table(heads, rows, figures = []) {
  const head = make("tr", {}, ...heads.map((text, at) => make("th", figures.includes(at) ? { class: "figure", scope: "col" } : { scope: "col" }, text)));
  const body = rows.map((row) => make("tr", {}, ...row.map((text, at) => make("td", figures.includes(at) ? { class: "figure" } : {}, String(text)))));
  return make("div", { class: "scroll" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
}

// The card's memory as a bar

function drawBar(node, kinds, device, reserved, budget) {
  const whole = Math.max(budget, device.high) * 1.02;
  const share = (bytes) => `${(100 * bytes / whole).toFixed(3)}%`;
  const allocated = Object.values(kinds).reduce((sum, each) => sum + each, 0);
  const parts = Object.entries(kinds).map(([kind, bytes]) => [NAMES[kind], bytes, COLOURS[kind]]);
  parts.push(["reserved, unused", Math.max(0, reserved - allocated), "#c2c8cf"]);
  parts.push(["CUDA context", Math.max(0, device.expected - reserved), "#5c6570"]);
  const bar = make("div", { class: "bar", role: "img", "aria-label":
    `${gib(device.expected)} GiB expected, ${gib(device.low)} to ${gib(device.high)}, of ${gib(budget)} GiB` });
  for (const [name, bytes, colour] of parts) {
    const part = make("span", { title: `${name}: ${gib(bytes)} GiB` });
    part.style.cssText = `width:${share(bytes)};background:${colour}`;
    bar.append(part);
  }
  const range = make("div", { class: "range", title: `between ${gib(device.low)} and ${gib(device.high)} GiB` });
  range.style.cssText = `left:${share(device.low)};width:${share(device.high - device.low)}`;
  const line = make("div", { class: "budget", title: `budget: ${gib(budget)} GiB` });
  line.style.left = share(budget);
  bar.append(range, line);
  const legend = make("ul", { class: "legend" }, ...parts.filter(([, bytes]) => bytes > 0).map(([name, bytes, colour]) => {
    const mark = make("i");
    mark.style.background = colour;
    return make("li", {}, mark, `${name} ${gib(bytes)} GiB`);
  }));
  node.replaceChildren(bar, make("p", { class: "soft" },
    `${gib(device.expected)} GiB expected, ${gib(device.low)} to ${gib(device.high)}; the red line is the budget, ${gib(budget)} GiB`), legend);
}

// Plotly

const CONFIG = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] };
function layout(extra) {
  const colour = style("--front");
  return { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colour, size: 13 },
    margin: { l: 50, r: 12, t: 24, b: 40 }, ...extra };
}

function drawCurve(node, curve) {
  const kinds = Object.entries(curve.kinds);
  const live = curve.tick.map((_, at) => kinds.reduce((sum, [, held]) => sum + held[at], 0));
  const peak = live.indexOf(Math.max(...live));
  const phase = (tick) => curve.phases.filter(([from]) => from <= tick).at(-1)?.[1] ?? "";
  const about = curve.tick.map((tick, at) => {
    const [owner, op, bytes] = curve.made[at] ?? ["", "", 0];
    return `${phase(tick)}${op ? `: ${escaped(op)}${owner ? ` in ${escaped(owner)}` : ""}, ${gib(bytes)} GiB` : ""}`;
  });
  const traces = kinds.map(([kind, held]) => ({
    x: curve.tick, y: held.map((bytes) => bytes / GIB), name: NAMES[kind], stackgroup: "live", mode: "lines",
    line: { width: 0, color: COLOURS[kind] }, fillcolor: COLOURS[kind], hovertemplate: "%{y:.2f} GiB",
  }));
  traces.push({ x: curve.tick, y: live.map((bytes) => bytes / GIB), name: "all", mode: "lines",
    line: { width: 1, color: style("--front") }, text: about, hovertemplate: "%{y:.2f} GiB<br>%{text}", showlegend: false });
  const starts = curve.phases.filter(([, name], at) => at === 0 || curve.phases[at - 1][1] !== name);
  const length = curve.tick.at(-1) || 1;
  const roomy = ([at], number) => ((starts[number + 1]?.[0] ?? length) - at) / length > 0.09;
  Plotly.react(node, traces, layout({
    hovermode: "x unified", showlegend: false,
    xaxis: { title: { text: "the step, operation by operation" }, gridcolor: style("--line") },
    yaxis: { title: { text: "GiB" }, rangemode: "tozero", gridcolor: style("--line") },
    shapes: starts.map(([at]) => ({ type: "line", x0: at, x1: at, y0: 0, y1: 1, yref: "paper", line: { color: style("--soft"), width: 1, dash: "dot" } })),
    annotations: [
      ...starts.filter(roomy).map(([at, name]) => ({ x: at, y: 1.06, yref: "paper", text: name, showarrow: false, xanchor: "left", font: { size: 11 } })),
      { x: curve.tick[peak], y: live[peak] / GIB, text: `peak ${gib(live[peak])} GiB`, showarrow: true, arrowhead: 2 },
    ],
  }), CONFIG);
  node.setAttribute("aria-label", `Memory over the step; the peak is ${gib(live[peak])} GiB`);
}

function drawModules(node, modules, level) {
  Plotly.react(node, [{
    type: "icicle", ids: modules.map((each) => each.id), labels: modules.map((each) => escaped(each.label)),
    parents: modules.map((each) => each.parent), values: modules.map((each) => each.bytes), branchvalues: "total",
    text: modules.map((each) => `${gib(each.bytes)} GiB`), hovertemplate: "%{id}<br>%{text}<extra></extra>",
    textinfo: "label+text", level, maxdepth: 4, tiling: { orientation: "v" }, marker: { colorscale: "Cividis" },
  }], layout({ margin: { l: 4, r: 4, t: 24, b: 4 } }), CONFIG);
}

// Sections

function setVerdict(text, outcome) {
  const head = document.getElementById("verdict");
  head.textContent = text;
  head.className = OUTCOME_CLASS[outcome] ?? "";
}

function showForecast(forecast, curve, modules) {
  setVerdict(forecast.verdict, forecast.outcome);
  const bar = make("div", { id: "bar" });
  section("On the card", bar);
  drawBar(bar, forecast.kinds, forecast.device, forecast.reserved.expected, forecast.budget);
  if (curve) {
    const chart = make("div", { class: "chart", id: "curve", role: "img" });
    section("Memory over the step", make("p", { class: "soft" },
      `The peak is in ${forecast.peak.phase} of ${forecast.peak.owner || "the step"} (${forecast.peak.op}). Drag to zoom, double-click to go back.`), chart);
    drawCurve(chart, curve);
  }
  if (modules.length > 1) {
    const chart = make("div", { class: "chart", id: "modules", role: "img", "aria-label": "Who holds memory at the peak, by module" });
    const search = make("input", { type: "search", id: "search", placeholder: "find a module", "aria-label": "find a module" });
    section("Who holds it at the peak", search, chart);
    drawModules(chart, modules);
    search.addEventListener("input", () => {
      const wanted = search.value.toLowerCase();
      const found = modules.filter((each) => each.id.toLowerCase().includes(wanted)).sort((a, b) => b.bytes - a.bytes);
      drawModules(chart, modules, wanted && found.length ? found[0].id : "/");
    });
  }
}

function showWhatIf(grid) {
  const places = grid.axes.map((axis) => axis.chosen);
  let card = 0;
  const cells = new Map(grid.cells.map((cell) => [cell.at.join(), cell]));
  const refused = new Map(grid.refused.map((cell) => [cell.at.join(), cell.reason]));
  const controls = make("div", { class: "what-if" });
  const answer = make("p", { id: "answer", role: "status", "aria-live": "polite" });
  const bar = make("div", { id: "what-if-bar" });
  const chart = make("div", { class: "chart", id: "what-if-curve", role: "img" });
  const cards = make("div", { id: "cards" });
  const command = make("pre", { id: "command" });
  const copy = make("button", { type: "button" }, "Copy");
  copy.addEventListener("click", () => navigator.clipboard?.writeText(command.textContent));
  const notes = [];
  grid.axes.forEach((axis, number) => {
    const id = `axis-${number}`;
    const shown = make("output", { for: id });
    const control = make("input", { type: "range", id, min: 0, max: axis.values.length - 1, step: 1, value: axis.chosen });
    const fitting = make("div", { class: "fitting" });
    control.addEventListener("input", () => { places[number] = Number(control.value); update(); });
    controls.append(make("div", {}, make("label", { for: id }, `${axis.name}: `, shown), control, fitting));
    notes.push(() => {
      shown.textContent = axis.values[places[number]];
      control.setAttribute("aria-valuetext", axis.values[places[number]]);
      const good = axis.values.filter((_, at) => cells.get(places.with(number, at).join())?.on[card].outcome === 0);
      fitting.replaceChildren(good.length ? "fits: " : "no value fits", make("b", {}, good.join(", ")));
    });
  });
  const choice = make("select", { id: "card" }, ...grid.cards.map((each, at) => make("option", { value: at }, `${each.name}, ${gib(each.budget)} GiB`)));
  choice.addEventListener("change", () => { card = Number(choice.value); update(); });
  controls.append(make("div", {}, make("label", { for: "card" }, "GPU"), choice));

  function update() {
    const cell = cells.get(places.join());
    notes.forEach((note) => note());
    const options = grid.axes.map((axis, number) => axis.options[places[number]]);
    const flags = [...options.filter((each) => each.startsWith("-")), `--on "${grid.cards[card].name}"`, ...options.filter((each) => !each.startsWith("-"))];
    command.textContent = `${grid.command} ${flags.join(" ")}`;
    if (!cell) {
      answer.textContent = refused.get(places.join()) ?? "not looked at";
      bar.replaceChildren();
      cards.replaceChildren();
      return;
    }
    const found = cell.on[card];
    const outcome = grid.outcomes[found.outcome];
    answer.className = OUTCOME_CLASS[outcome];
    answer.textContent = `${outcome}: ${gib(found.device.expected)} of ${gib(grid.cards[card].budget)} GiB (at worst ${gib(found.device.high)})`;
    const sums = cell.curve.tick.map((_, at) => Object.values(cell.curve.kinds).reduce((sum, held) => sum + held[at], 0));
    const peak = sums.indexOf(Math.max(...sums));
    const kinds = Object.fromEntries(Object.entries(cell.curve.kinds).map(([kind, held]) => [kind, held[peak]]));
    drawBar(bar, kinds, found.device, found.reserved, grid.cards[card].budget);
    drawCurve(chart, cell.curve);
    const order = grid.cards.map((each, at) => [each, cell.on[at]]).sort((a, b) => a[0].budget - b[0].budget);
    cards.replaceChildren(table(["GPU", "has, GiB", "expected", "at worst", "verdict"],
      order.map(([each, on]) => [each.name, gib(each.budget), gib(on.device.expected), gib(on.device.high), grid.outcomes[on.outcome]]), [1, 2, 3]));
  }
  section("What if?", make("p", { class: "soft" }, "Every setting here was traced: what you see is what oomproof check would say."),
    controls, answer, bar, chart, make("h2", {}, "Which GPU would do, the smallest first"), cards,
    make("h2", {}, "As a command"), command, copy);
  update();
}

function showPlan(plan) {
  setVerdict(plan.verdict, plan.fits ? "fits" : "does not fit");
  const percent = (factor) => factor === null ? "" : `${factor >= 1 ? "+" : ""}${Math.round(100 * (factor - 1))} %`;
  const said = (value) => typeof value === "string" ? value : JSON.stringify(value);
  section("The plan", table(["change", "promise", "frees GiB", "time/image"],
    plan.changes.map((each) => [`${each.knob} ${said(each.from)} → ${said(each.to)}: ${each.why}`, each.promise, gib(each.frees), percent(each.time)]), [2, 3]));
  if (plan.frontier.length > 1) {
    const chart = make("div", { class: "chart", id: "frontier", role: "img", "aria-label": "Memory against time of the ways that were looked at" });
    const chosen = make("p", { id: "point", role: "status" }, "Click a point to read what it changes.");
    section("Memory against time", chart, chosen);
    Plotly.newPlot(chart, [{
      x: plan.frontier.map((each) => each.device / GIB), y: plan.frontier.map((each) => each.time), mode: "lines+markers",
      marker: { size: plan.frontier.map((each) => each.chosen ? 16 : 10), color: plan.frontier.map((each) => each.chosen ? COLOURS.gradient : COLOURS.parameter) },
      text: plan.frontier.map((each) => escaped(each.changes)), hovertemplate: "%{text}<br>%{x:.2f} GiB, %{y:.2f} x time<extra></extra>",
    }], layout({ xaxis: { title: { text: "GiB on the device, at worst" }, gridcolor: style("--line") },
      yaxis: { title: { text: "time per image, factor" }, gridcolor: style("--line") } }), CONFIG);
    chart.on("plotly_click", (event) => {
      const point = plan.frontier[event.points[0].pointIndex];
      chosen.textContent = `${point.changes || "as it is"}: ${gib(point.device)} GiB at worst, ${point.time.toFixed(2)} times the time, ${point.promise}`;
    });
  }
}

function showNotes(forecast) {
  for (const [title, texts] of [["Notes", forecast.notes], ["Not counted", forecast.not_counted]])
    if (texts.length) section(title, make("ul", {}, ...texts.map((text) => make("li", {}, text))));
  section("Settings", table(["setting", "value"], Object.entries(forecast.settings).map(([name, value]) => [name, JSON.stringify(value)])));
}

function showData(data) {
  if (!data) return;
  const chart = make("div", { class: "chart", id: "batches", role: "img", "aria-label":
    "Objects in a batch against the memory it needs, for batches drawn by chance, the typical one and the worst" });
  const told = [`${data.path}: ${data.images} images, ${data.batches} batches an epoch`, data.rule, data.chance_in_words, ...data.remedies_in_words];
  const rows = [["worst", data.worst], ["typical", data.typical]].flatMap(([name, batch]) => batch.images.map((image) =>
    [name, image.name, `${image.height}x${image.width}`, image.objects, batch.padded.join("x"), gib(batch.device.expected), gib(batch.device.high)]));
  section("The data", make("ul", {}, ...told.filter(Boolean).map((text) => make("li", {}, text))), chart,
    table(["batch", "image", "size", "objects", "padded to", "device, GiB", "at worst"], rows, [3, 5, 6]));
  const objects = (batch) => batch.images.reduce((sum, image) => sum + image.objects, 0);
  const named = (batch) => batch.images.map((image) => `${escaped(image.name)} (${image.objects})`).slice(0, 8).join("<br>");
  const points = (name, found, size, colour) => ({ name, mode: "markers", x: found.map(([many]) => many),
    y: found.map(([, bytes]) => bytes / GIB), text: found.map(([, , text]) => text ?? ""), marker: { size, color: colour },
    hovertemplate: "%{x} objects, %{y:.2f} GiB<br>%{text}" });
  Plotly.newPlot(chart, [
    points("drawn by chance", data.samples, 5, COLOURS.buffer),
    ...[["typical", data.typical, COLOURS.gradient], ["worst", data.worst, COLOURS.temporary]].map(([name, batch, colour]) =>
      points(name, [[objects(batch), batch.allocated.expected, named(batch)]], 14, colour)),
  ], layout({ xaxis: { title: { text: "objects in the batch" }, gridcolor: style("--line") },
    yaxis: { title: { text: "GiB allocated at the peak" }, rangemode: "tozero", gridcolor: style("--line") } }), CONFIG);
}

function showDiagnosis(diagnosis) {
  setVerdict(diagnosis.verdict, "does not fit");
  for (const [title, name] of [["Why", "why"], ["Next", "next"]]) if (diagnosis[name]) section(title, make("p", {}, diagnosis[name]));
  if (diagnosis.causes?.length) section("Causes, the likeliest first", table(["cause", "confidence", "evidence"],
    diagnosis.causes.map((each) => [each.id, each.confidence.toFixed(2), each.evidence.join("\n")]), [1]));
}

if (page.kind === "explain") {
  document.getElementById("subtitle").textContent = page.title;
  showDiagnosis(page.diagnosis);
} else {
  document.getElementById("subtitle").textContent = `${page.title} on ${page.forecast.device_name}`;
  showForecast(page.forecast, page.curve, page.modules);
  if (page.plan) showPlan(page.plan);
  if (page.what_if) showWhatIf(page.what_if);
  showData(page.data);
  showNotes(page.forecast);
}
document.body.dataset.ready = "true";
