// The sections of each kind of answer.

function showCard(forecast) {
  const bar = make("div", { id: "bar" });
  section("On the card", bar);
  drawBar(bar, forecast.kinds, forecast.device, forecast.reserved.expected, forecast.budget);
}

function showStep(forecast, curve, modules) {
  if (curve) showCurve("curve", "Memory over the step", forecast.peak, curve);
  if (modules.length > 1) showModules(modules);
}

function showCurve(id, title, peak, curve) {
  const node = chart(id, title);
  const steps = curve.phases.filter(([, name]) => name === "forward").length;
  const two = steps === 2 ? "Two steps are drawn: the first, in which the optimizer makes its state, and one like all later ones. " : "";
  section(title, make("p", { class: "soft" }, `${two}The peak is in ${peak.phase} of ${peak.owner || "the step"} (${peak.op}${madeAtPeak(curve, peak.op)}). Hover to read; drag to zoom; double-click to zoom out.`),
    legendOf(curve), node);
  drawLater(node, () => drawCurve(node, curve));
}

// What the operation at the peak made, where the curve says so
function madeAtPeak(curve, op) {
  const live = liveBytes(curve);
  const at = live.indexOf(Math.max(...live));
  return curve.made[at]?.[1] === op ? `: ${sizeMade(curve, at)}` : "";
}

function legendOf(curve) {
  return make("ul", { class: "legend" }, ...Object.entries(curve.kinds).filter(([, held]) => !tiny(Math.max(...held))).map(([kind]) => {
    const mark = make("i");
    mark.style.background = COLOURS[kind];
    return make("li", {}, mark, NAMES[kind] ?? kind);
  }));
}

function showModules(modules) {
  const node = chart("modules", "Who holds memory at the peak, by module; the table below has the same figures");
  const search = make("input", { type: "search", id: "search", placeholder: "find a module", "aria-label": "find a module" });
  const rows = make("div", { id: "module-rows" });
  const largest = [...modules].filter((each) => each.id !== "/").sort((a, b) => b.bytes - a.bytes);
  const whole = modules[0].bytes || 1;
  const update = (wanted) => {
    const found = largest.filter((each) => each.id.toLowerCase().includes(wanted));
    rows.replaceChildren(table(["module", "GiB", "share"], found.slice(0, 40).map((each) => [each.id, gib(each.bytes), `${Math.round(100 * each.bytes / whole)} %`]), [1, 2]),
      found.length > 40 ? make("p", { class: "soft" }, `and ${found.length - 40} smaller ones`) : "");
    drawLater(node, () => drawModules(node, modules, wanted && found.length ? found[0].id : "/"));
  };
  section("Who holds it at the peak", make("p", { class: "soft" }, "Click a module to go in, the strip above to go back."), search, node, folded("As a table", rows));
  update("");
  search.addEventListener("input", () => update(search.value.toLowerCase()));
}

// Training, validation, host RAM and /dev/shm against their limits
function showParts(forecast, validationCurve) {
  const { outcomes, validation, host } = forecast;
  const rows = [["training step", forecast.device, forecast.budget, outcomes.training]];
  if (validation) rows.push(["validation", validation.device, forecast.budget, outcomes.validation]);
  rows.push(["host RAM", host, forecast.ram, outcomes.host]);
  if (host.shm || forecast.shm_limit !== null) rows.push(["/dev/shm", { expected: host.shm, high: host.shm }, forecast.shm_limit, outcomes.shm]);
  section("Parts of the run", table(["part", "expected, GiB", "at worst", "limit", "verdict"],
    rows.map(([name, needs, limit, outcome]) => [name, gib(needs.expected), gib(needs.high), limit === null ? "" : gib(limit), outcome && limit !== null ? outcomeMark(outcome) : "no limit given"]), [1, 2, 3]));
  const parts = Object.entries(forecast.host_parts);
  if (parts.length > 1) main.lastChild.append(folded("Host RAM by parts", table(["part", "expected, GiB", "at worst"], parts.map(([name, of]) => [name, gib(of.expected), gib(of.high)]), [1, 2])));
  if (validation && validationCurve) showCurve("validation-curve", "Memory in validation", validation.peak, validationCurve);
}

function showPlan(plan) {
  const percent = (factor) => factor === null ? "" : `${factor >= 1 ? "+" : ""}${Math.round(100 * (factor - 1))} %`;
  const said = (value) => typeof value === "string" ? value : JSON.stringify(value);
  if (plan.changes.length) section(plan.fits ? "The plan" : "The nearest miss", table(["change", "promise", "frees, GiB", "time per image"],
    plan.changes.map((each) => [titled(`${each.knob} ${said(each.from)} → ${said(each.to)}`, each.why), each.promise, gib(each.frees), percent(each.time)]), [2, 3]));
  const before = make("div"), after = make("div", { id: "bar" }), whole = Math.max(plan.budget, plan.before.device.high);
  if (plan.changes.length) section("Before and after", make("h3", {}, plan.before_estimated ? "As it is, estimated" : "As it is"), before, make("h3", {}, "With the plan"), after);
  else section("On the card", after);
  for (const [node, of] of [[before, plan.before], [after, plan.after]]) drawBar(node, of.kinds, of.device, of.reserved.expected, plan.budget, whole);
  if (plan.frontier.length > 1) showFrontier(plan.frontier);
  if (plan.alternatives.length) section("Turned down", table(["change", "promise", "at worst, GiB", "time per image"],
    plan.alternatives.map((each) => [titled(each.changes, each.reason), each.promise, gib(each.device), percent(each.time)]), [2, 3]));
}

function showFrontier(points) {
  const node = chart("frontier", "Memory against time of the ways that were looked at; the table below has the same figures");
  const chosen = make("p", { id: "point", role: "status" }, "Click a point to read what it changes. The star is the plan.");
  const told = (point) => `${point.changes || "as it is"}: ${gib(point.device)} GiB at worst, ${point.time.toFixed(2)} times the time, ${point.promise}`;
  section("Memory against time", node, chosen, folded("As a table", table(["change", "at worst, GiB", "time, factor", "promise"],
    points.map((each) => [`${each.chosen ? "★ " : ""}${each.changes || "as it is"}`, gib(each.device), each.time.toFixed(2), each.promise]), [1, 2])));
  drawLater(node, () => drawFrontier(node, points, (at) => { chosen.textContent = told(points[at]); }));
}

function showSweep(sweep) {
  setVerdict(sweep.conclusion, sweep.fits ? "fits" : "does not fit");
  const node = chart("sweep", `Memory on the device against ${sweep.name}; the table below has the same figures`);
  const above = sweep.rows.some((row) => row.outcomes.device === "fits" && row.device.high > sweep.budget);
  const less = above ? " A range that ends above the budget may still fit: on a full card libraries make do with less workspace." : "";
  section(`Memory against ${sweep.name}`, make("p", { class: "soft" }, `Marks are the expected memory, lines through them its range.${less}`), node);
  drawLater(node, () => drawSweep(node, sweep, "device", sweep.budget, "GiB on the device"));
  if (sweep.ram !== null) {
    const host = chart("sweep-host", `Host RAM against ${sweep.name}; the table below has the same figures`);
    section(`Host RAM against ${sweep.name}`, host);
    drawLater(host, () => drawSweep(host, sweep, "host", sweep.ram, "GiB of host RAM"));
  }
  const timed = sweep.rows.every((row) => row.seconds !== null);
  const host = sweep.ram !== null;
  const heads = [sweep.name, "verdict", "device, GiB", "at worst", ...(host ? ["host RAM", "at worst"] : []), "allocated", "reserved", ...(timed ? ["time of a step"] : [])];
  const rows = sweep.rows.map((row) => [row.text, outcomeMark(row.outcome, row.outcome_text), gib(row.device.expected), gib(row.device.high),
    ...(host ? [gib(row.host.expected), gib(row.host.high)] : []), gib(row.allocated.expected), gib(row.reserved.expected), ...(timed ? [`${row.seconds.toPrecision(2)} s`] : [])]);
  section("Row by row", table(heads, rows, heads.map((_, at) => at).filter((at) => at !== 1)));
  showLists([["Notes", sweep.notes], ["Not counted", sweep.not_counted]]);
}

function showData(data) {
  if (!data) return;
  const node = chart("batches", "Objects in a batch against the memory it needs, for batches drawn by chance, the typical one and the worst");
  const told = [`${data.path}: ${data.images} images, ${data.batches} batches an epoch`, data.rule,
    data.chance_in_words && `chance: ${data.chance_in_words}`, ...data.remedies_in_words.map((remedy) => `remedy: ${remedy}`)];
  const rows = [["worst", data.worst], ["typical", data.typical]].flatMap(([name, batch]) => batch.images.map((image) =>
    [name, image.name, `${image.height}x${image.width}`, image.objects, batch.padded.join("x"), gib(batch.device.expected), gib(batch.device.high)]));
  section("The data", list(told.filter(Boolean)), node,
    table(["batch", "image", "size", "objects", "padded to", "device, GiB", "at worst"], rows, [3, 5, 6]));
  drawLater(node, () => drawBatches(node, data));
}

function showLists(lists) {
  for (const [title, texts] of lists) if (texts.length) section(title, list(texts));
}

function showSettings(settings) {
  const said = (value) => typeof value === "string" ? value : JSON.stringify(value);
  main.append(folded(`All settings (${Object.keys(settings).length})`, table(["setting", "value"], Object.entries(settings).map(([name, value]) => [name, said(value)]))));
}

function showDiagnosis(diagnosis) {
  setVerdict(diagnosis.verdict, diagnosis.outcome);
  showOpening(diagnosis);
  const [first, ...others] = diagnosis.causes ?? [];
  if (first?.evidence.length) section("Evidence", list(first.evidence));
  if (others.length) section(diagnosis.alternatives.length ? "Other causes, as likely or less" : "Other causes, less likely",
    table(["cause", "confidence"], others.map((each) => [titled(each.id, each.why), each.confidence.toFixed(2)]), [1]));
  if (diagnosis.figures.length) section("From the log", list(diagnosis.figures));
}
