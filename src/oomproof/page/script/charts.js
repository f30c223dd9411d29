// Pictures, by Plotly. It is as large as thirty pages of text, so it is read after those are on the screen; then the
// pictures in view are drawn, and the others when the browser is idle, when they come into view, or before printing.

const CONFIG = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"] };
const waiting = new Map();
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// Plotly reads a few tags in texts, and fields of a hover's template in none.
const escaped = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const shortened = (text, most = 60) => text.length > most ? `${text.slice(0, most - 1)}…` : text;
const inView = (node) => { const { top, bottom } = node.getBoundingClientRect(); return bottom > 0 && top < innerHeight; };

function chart(id, label) {
  return make("div", { class: "chart", id, role: "img", "aria-label": label });
}

// `draw` may be asked for again, with other figures, before the first was drawn: the last one counts.
function drawLater(node, draw) {
  if (window.Plotly && node.dataset.drawn) { draw(); return; }
  waiting.set(node, draw);
  if (window.Plotly) seen.observe(node);
}
function drawNow(node) {
  const draw = waiting.get(node);
  if (!draw) return;
  waiting.delete(node);
  node.dataset.drawn = "true";
  draw();
}
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) { seen.unobserve(entry.target); drawNow(entry.target); }
}, { rootMargin: "200px" });

function loadPlotly() {
  const source = document.getElementById("plotly");
  if (window.Plotly || !source) return;
  document.head.append(make("script", {}, source.textContent));
  source.remove();
}
function drawInView() {
  loadPlotly();
  for (const node of [...waiting.keys()].filter(inView)) drawNow(node);
  for (const node of waiting.keys()) seen.observe(node);
}
function drawRest() {
  const next = waiting.keys().next().value;
  if (!next) { document.body.dataset.drawn = "true"; return; }
  drawNow(next);
  whenIdle(drawRest);
}
const whenIdle = (task) => window.requestIdleCallback ? requestIdleCallback(task, { timeout: 2000 }) : setTimeout(task, 50);
// A sheet of paper is narrower than a window, and does not tell pictures so.
const WIDTH_ON_PAPER = 660;
const drawn = () => document.querySelectorAll(".chart[data-drawn]");
addEventListener("beforeprint", () => {
  loadPlotly();
  for (const node of [...waiting.keys()]) drawNow(node);
  for (const node of drawn()) Plotly.relayout(node, { width: WIDTH_ON_PAPER });
});
addEventListener("afterprint", () => {
  for (const node of drawn()) Plotly.relayout(node, { width: null, autosize: true });
});

function layout(extra) {
  return { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: style("--front"), size: 13 },
    hoverlabel: { bgcolor: style("--card"), bordercolor: style("--line"), font: { color: style("--front") }, namelength: -1 },
    margin: { l: 56, r: 12, t: 28, b: 44 }, ...extra };
}
const axis = (text, extra = {}) => ({ title: { text }, gridcolor: style("--line"), zerolinecolor: style("--line"), automargin: true, ...extra });

function drawCurve(node, curve) {
  const kinds = Object.entries(curve.kinds);
  const live = liveBytes(curve);
  const top = Math.max(...live);
  const peak = live.indexOf(top);
  const length = curve.tick.at(-1) || 1;
  const { phases } = curve;
  const phase = (tick) => phases.filter(([from]) => from <= tick).at(-1)?.[1] ?? "";
  const narrow = node.clientWidth < 500; // a phone's: lines have to be short
  const about = curve.tick.map((tick, at) => {
    const [owner, op] = curve.made[at] ?? ["", ""];
    const where = owner ? `${narrow ? "<br>" : " "}in ${escaped(shortened(owner, narrow ? 30 : 60))}` : "";
    return `${phase(tick)}${op ? `: ${escaped(op)}${where},${narrow ? "<br>" : " "}${sizeMade(curve, at)}` : ""}`;
  });
  const traces = kinds.map(([kind, held]) => ({
    x: curve.tick, y: held.map((bytes) => bytes / GIB), name: NAMES[kind] ?? kind, stackgroup: "live", mode: "lines",
    line: { width: 0, color: COLOURS[kind] }, fillcolor: COLOURS[kind], customdata: held.map(amount), hovertemplate: "%{customdata}",
  }));
  traces.push({ x: curve.tick, y: live.map((bytes) => bytes / GIB), name: "all", mode: "lines",
    line: { width: 1, color: style("--front") }, text: about, customdata: live.map(amount), hovertemplate: "%{customdata}<br>%{text}" });
  const wide = node.clientWidth - 70;
  const roomy = ([at], number) => ((phases[number + 1]?.[0] ?? length) - at) / length * wide > 56;
  Plotly.react(node, traces, layout({
    hovermode: "x unified", showlegend: false, dragmode: "zoom",
    xaxis: axis("operations, in order", { range: [0, length] }),
    yaxis: axis("GiB allocated", { range: [0, top / GIB * 1.2 || 1] }),
    shapes: phases.map(([at]) => ({ type: "line", x0: at, x1: at, y0: 0, y1: 1, yref: "paper", line: { color: style("--soft"), width: 1, dash: "dot" } })),
    annotations: [
      ...phases.filter(roomy).map(([at, name]) => ({ x: at, y: 1, yref: "paper", yanchor: "bottom", text: name, showarrow: false, xanchor: "left", font: { size: 11 } })),
      { x: curve.tick[peak], y: top / GIB, text: `peak ${gib(top)} GiB`, showarrow: true, arrowhead: 2, ax: 0, ay: -22,
        xanchor: peak < live.length / 6 ? "left" : peak > live.length * 5 / 6 ? "right" : "center" },
    ],
  }), CONFIG);
  node.setAttribute("aria-label", `Memory over the step; the peak is ${gib(top)} GiB, in ${phase(curve.tick[peak])}`);
}

// Where a phase begins that lasts: of a moment between two others, a picture shows nothing.
const liveBytes = (curve) => curve.tick.map((_, at) => Object.values(curve.kinds).reduce((sum, held) => sum + held[at], 0));

// What was made last at a point: "[2, 256, 200, 336], 0.13 GiB"; the shape only where it is known
function sizeMade(curve, at) {
  const tensor = curve.tensors[at];
  return `${tensor ? `${tensor}, ` : ""}${amount(curve.made[at][2])}`;
}

// A tree as an icicle. Layers that stand side by side (Keras names no modules) would be slivers there: they are tiles.
function drawModules(node, modules, level) {
  const flat = modules.every((each) => each.parent === "" || each.parent === "/");
  Plotly.react(node, [{
    type: flat ? "treemap" : "icicle", ids: modules.map((each) => each.id), labels: modules.map((each) => escaped(shortened(each.label))),
    parents: modules.map((each) => each.parent), values: modules.map((each) => each.bytes), branchvalues: "total",
    text: modules.map((each) => amount(each.bytes)), customdata: modules.map((each) => escaped(shortened(each.id, 90))),
    hovertemplate: "%{customdata}<br>%{text}<extra></extra>", textinfo: "label+text", level, maxdepth: 4,
    tiling: flat ? { pad: 1 } : { orientation: "v", pad: 1 }, pathbar: { visible: true, edgeshape: "/" },
    marker: { colors: modules.map((each) => Math.sqrt(each.bytes)), colorscale: [[0, "#e3eefa"], [1, "#8fbdea"]], line: { width: 0 } },
  }], layout({ margin: { l: 4, r: 4, t: 28, b: 4 }, uniformtext: { minsize: 10, mode: "hide" } }), CONFIG);
}

function drawFrontier(node, points, onClick) {
  Plotly.newPlot(node, [{
    x: points.map((each) => each.device / GIB), y: points.map((each) => each.time), mode: "lines+markers",
    line: { color: COLOURS.parameter },
    marker: { opacity: 1, size: points.map((each) => each.chosen ? 16 : 10), symbol: points.map((each) => each.chosen ? "star" : "circle"),
      color: points.map((each) => each.chosen ? COLOURS.temporary : COLOURS.parameter) },
    text: points.map((each) => escaped(shortened(each.changes || "as it is", 90))), hovertemplate: "%{text}<br>%{x:.2f} GiB, %{y:.2f} x time<extra></extra>",
  }], layout({ xaxis: axis("GiB on the device, at worst"), yaxis: axis("time per image, factor") }), CONFIG);
  node.on("plotly_click", (event) => onClick(event.points[0].pointIndex));
}

function drawBatches(node, data) {
  const most = Math.max(data.worst.allocated.expected, data.typical.allocated.expected, ...data.samples.map(([, bytes]) => bytes));
  const objects = (batch) => batch.images.reduce((sum, image) => sum + image.objects, 0);
  const named = (batch) => batch.images.map((image) => `${escaped(shortened(image.name))} (${image.objects})`).slice(0, 8).join("<br>");
  const points = (name, found, size, colour, symbol) => ({ name, mode: "markers", x: found.map(([many]) => many),
    y: found.map(([, bytes]) => bytes / GIB), text: found.map(([, , text]) => text ?? ""), marker: { size, color: colour, symbol },
    hovertemplate: "%{x} objects, %{y:.2f} GiB<br>%{text}" });
  Plotly.newPlot(node, [
    points("drawn by chance", data.samples, 5, COLOURS.buffer, "circle"),
    ...[["typical", data.typical, COLOURS.gradient, "diamond"], ["worst", data.worst, COLOURS.temporary, "star"]].map(([name, batch, colour, symbol]) =>
      points(name, [[objects(batch), batch.allocated.expected, named(batch)]], 14, colour, symbol)),
  ], layout({ xaxis: axis("objects in the batch"), yaxis: axis("GiB allocated at the peak", { range: [0, most / GIB * 1.15] }),
    legend: { orientation: "h", y: 1.02, yanchor: "bottom" } }), CONFIG);
}

// Memory against the swept value: `part` is that of the device or of the host, and `limit` a line.
function drawSweep(node, sweep, part, limit, unit) {
  const figure = (row) => row[part];
  const numbers = sweep.rows.every((row) => typeof row.value === "number");
  const x = (row) => numbers ? row.value : row.text;
  const of = (outcome) => sweep.rows.filter((row) => row.outcomes[part] === outcome);
  const line = { name: "expected", showlegend: false, mode: "lines", x: sweep.rows.map(x), y: sweep.rows.map((row) => figure(row).expected / GIB),
    line: { color: style("--soft"), width: 1 }, hoverinfo: "skip" };
  const groups = Object.entries(OUTCOMES).filter(([outcome]) => of(outcome).length).map(([outcome, { style: name, mark, shape }]) => ({
    name: `${mark} ${outcome}`, mode: "markers", x: of(outcome).map(x), y: of(outcome).map((row) => figure(row).expected / GIB),
    error_y: { type: "data", symmetric: false, color: style(`--${name}`), thickness: 2,
      array: of(outcome).map((row) => (figure(row).high - figure(row).expected) / GIB),
      arrayminus: of(outcome).map((row) => (figure(row).expected - figure(row).low) / GIB) },
    marker: { size: 12, symbol: shape, color: style(`--${name}`) },
    customdata: of(outcome).map((row) => [escaped(row.text), gib(figure(row).high)]),
    hovertemplate: `${escaped(sweep.name)} %{customdata[0]}: %{y:.2f} GiB, at worst %{customdata[1]}<extra>${outcome}</extra>`,
  }));
  const most = Math.max(limit, ...sweep.rows.map((row) => figure(row).high)) / GIB;
  Plotly.newPlot(node, [line, ...groups], layout({
    xaxis: axis(escaped(sweep.name), numbers ? { tickvals: sweep.rows.map((row) => row.value) } : { type: "category" }),
    yaxis: axis(unit, { range: [0, most * 1.08] }), legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
    shapes: [{ type: "line", x0: 0, x1: 1, xref: "paper", y0: limit / GIB, y1: limit / GIB, line: { color: style("--fails"), width: 2, dash: "dash" } }],
    annotations: [{ x: 0, xref: "paper", y: limit / GIB, text: `budget ${gib(limit)} GiB`, showarrow: false, xanchor: "left", yanchor: "bottom" }],
  }), CONFIG);
}
