// Sliders: every place of theirs has its forecast in the page.

function showWhatIf(grid) {
  const places = grid.axes.map((axis) => axis.chosen);
  let card = 0;
  const cells = new Map(grid.cells.map((cell) => [cell.at.join(), cell]));
  const refused = new Map(grid.refused.map((cell) => [cell.at.join(), cell.reason]));
  const controls = make("div", { class: "what-if" });
  const answer = make("p", { id: "answer", role: "status", "aria-live": "polite" });
  const bar = make("div", { id: "what-if-bar" });
  const curve = chart("what-if-curve", "Memory over the step");
  const cards = make("div", { id: "cards" });
  const command = make("pre", { id: "command", tabindex: 0 });
  const file = make("pre", { id: "settings-file", tabindex: 0 });
  // One scale for all places, so that a bar that grows is seen to grow
  const widest = Math.max(...grid.cells.flatMap((cell) => cell.on.map((on) => on.device.high)));
  const updates = grid.axes.map((axis, number) => addControl(axis, number));
  const choice = make("select", { id: "card" }, ...grid.cards.map((each, at) => make("option", { value: at }, `${each.name}, ${gib(each.budget)} GiB`)));
  choice.addEventListener("change", () => { card = Number(choice.value); update(); });
  controls.append(make("div", {}, make("label", { for: "card" }, "GPU"), choice));

  function addControl(axis, number) {
    const id = `axis-${number}`;
    const shown = make("output", { for: id });
    const control = axis.ordered
      ? make("input", { type: "range", id, min: 0, max: axis.values.length - 1, step: 1, value: axis.chosen })
      : make("select", { id }, ...axis.values.map((text, at) => make("option", { value: at }, text)));
    control.value = axis.chosen;
    const fitting = make("div", { class: "fitting" });
    control.addEventListener("input", () => { places[number] = Number(control.value); update(); });
    controls.append(make("div", {}, make("label", { for: id }, axis.ordered ? `${axis.name}: ` : axis.name, shown), control, fitting));
    return () => {
      if (axis.ordered) {
        shown.textContent = axis.values[places[number]];
        control.setAttribute("aria-valuetext", axis.values[places[number]]);
      }
      const outcome = (at) => cells.get(places.with(number, at).join())?.on[card].outcome;
      const good = axis.values.filter((_, at) => outcome(at) === 0);
      fitting.replaceChildren(good.length ? "fits: " : "no value fits", make("b", {}, good.join(", ")));
    };
  }

  function update() {
    const cell = cells.get(places.join());
    updates.forEach((refresh) => refresh());
    const options = grid.axes.map((axis, number) => axis.options[places[number]]);
    const flags = options.filter((each) => each.startsWith("-"));
    const keys = options.filter((each) => !each.startsWith("-"));
    command.textContent = [grid.command, ...flags, grid.cards[card].option, ...keys, ...grid.command_end].join(" ");
    const chosen = Object.fromEntries(grid.axes.map((axis, number) => [axis.name, axis.plain[places[number]]]));
    file.textContent = JSON.stringify({ ...grid.file, settings: { ...grid.file.settings, ...chosen } }, null, 1);
    if (!cell) {
      answer.className = "";
      answer.textContent = refused.get(places.join()) ?? "not looked at";
      for (const node of [bar, cards]) node.replaceChildren();
      curve.hidden = true;
      return;
    }
    curve.hidden = false;
    const found = cell.on[card];
    const outcome = grid.outcomes[found.outcome];
    answer.className = `outcome ${OUTCOMES[outcome].style}`;
    answer.textContent = `${outcome}: ${gib(found.device.expected)} of ${gib(grid.cards[card].budget)} GiB (at worst ${gib(found.device.high)})`;
    const step = cell.curves[found.curve];
    drawBar(bar, kindsAtPeak(step), found.device, found.reserved, grid.cards[card].budget, Math.max(grid.cards[card].budget, widest));
    drawLater(curve, () => drawCurve(curve, step));
    const order = grid.cards.map((each, at) => [each, cell.on[at]]).sort((a, b) => a[0].budget - b[0].budget);
    cards.replaceChildren(table(["GPU", "has, GiB", "expected", "at worst", "verdict"],
      order.map(([each, on]) => [each.name, gib(each.budget), gib(on.device.expected), gib(on.device.high), outcomeMark(grid.outcomes[on.outcome])]), [1, 2, 3]));
  }

  if (grid.axes.length) {
    section("What if?", make("p", { class: "soft" }, "Every setting here was traced: what you see is what oomproof check would say."),
      controls, answer, bar, curve, make("h3", {}, "As a command"), command, copyButton(command, "copy"),
      folded("As a settings file, for --from", make("div", {}, file, copyButton(file, "copy-file"))));
  }
  section("Which GPUs would do", make("p", { class: "soft" }, "The smallest first."), cards);
  update();
}

function kindsAtPeak(curve) {
  const sums = curve.tick.map((_, at) => Object.values(curve.kinds).reduce((sum, held) => sum + held[at], 0));
  const peak = sums.indexOf(Math.max(...sums));
  return Object.fromEntries(Object.entries(curve.kinds).map(([kind, held]) => [kind, held[peak]]));
}

function copyButton(source, id) {
  const button = make("button", { type: "button", id }, "Copy");
  const told = make("span", { role: "status", class: "soft" });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(source.textContent);
      told.textContent = " Copied.";
    } catch { // a browser that does not let a page in a frame write there
      getSelection().selectAllChildren(source);
      told.textContent = " Selected: press Ctrl+C.";
    }
  });
  return make("p", {}, button, told);
}
