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

  // The places after a control has moved. Of the axes that were looked at one at a time, the others go back.
  function reach(number, at) {
    const back = grid.axes[number].alone && at !== grid.axes[number].chosen;
    return places.map((place, other) => other === number ? at : back && grid.axes[other].alone ? grid.axes[other].chosen : place);
  }

  function addControl(axis, number) {
    const id = `axis-${number}`;
    const shown = make("output", { for: id });
    const control = axis.ordered
      ? make("input", { type: "range", id, min: 0, max: axis.values.length - 1, step: 1, value: axis.chosen })
      : make("select", { id }, ...axis.values.map((text, at) => make("option", { value: at }, text)));
    control.value = axis.chosen;
    const fitting = make("div", { class: "fitting" });
    control.addEventListener("input", () => { places.splice(0, places.length, ...reach(number, Number(control.value))); update(); });
    controls.append(make("div", {}, make("label", { for: id, title: axis.help }, axis.ordered ? `${axis.name}: ` : axis.name, shown), control, fitting));
    return () => {
      control.value = places[number];
      if (axis.ordered) {
        shown.textContent = axis.values[places[number]];
        control.setAttribute("aria-valuetext", axis.values[places[number]]);
      }
      const outcome = (at) => cells.get(reach(number, at).join())?.on[card].outcome;
      const good = axis.values.filter((_, at) => outcome(at) === 0);
      fitting.replaceChildren(good.length ? "fits: " : "no value fits", make("b", {}, good.join(", ")));
    };
  }

  function update() {
    const cell = cells.get(places.join());
    updates.forEach((refresh) => refresh());
    // A job's own value of what it does not ask for need not be said.
    const options = grid.axes.flatMap((axis, number) => axis.silent && places[number] === axis.chosen ? [] : [axis.options[places[number]]]);
    const flags = options.filter((each) => each.startsWith("-"));
    const keys = options.filter((each) => !each.startsWith("-"));
    command.textContent = (cell?.text ? [grid.command, grid.cards[card].option, cell.text]
      : [grid.command, ...flags, grid.cards[card].option, ...keys, ...grid.command_end]).join(" ");
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
    const step = readCurve(cell.curves[found.curve]);
    drawBar(bar, kindsAtPeak(step), found.device, found.reserved, grid.cards[card].budget, Math.max(grid.cards[card].budget, widest));
    drawLater(curve, () => drawCurve(curve, step));
    const order = grid.cards.map((each, at) => [each, cell.on[at]]).sort((a, b) => a[0].budget - b[0].budget);
    cards.replaceChildren(table(["GPU", "has, GiB", "expected", "at worst", "verdict"],
      order.map(([each, on]) => [each.name, gib(each.budget), gib(on.device.expected), gib(on.device.high), outcomeMark(grid.outcomes[on.outcome])]), [1, 2, 3]));
  }

  if (grid.axes.length) {
    const alone = grid.axes.filter((axis) => axis.alone).map((axis) => axis.name);
    const turns = alone.length > 1 ? ` Of ${alone.slice(0, -1).join(", ")} and ${alone.at(-1)}, one at a time: moving one takes the others back. --what-if looks at any combination.` : "";
    section("What if?", make("p", { class: "soft" }, `Every setting here was traced: what you see is what oomproof check would say.${turns}`),
      controls, answer, bar, curve, make("h3", {}, "As a command"), command, copyButton(command, "copy"),
      ...(grid.cells.some((cell) => cell.text) ? [] : [folded("As a settings file, for --from", make("div", {}, file, copyButton(file, "copy-file")))]));
  }
  section("Which GPUs would do", make("p", { class: "soft" }, "The smallest first."), cards);
  update();
}

// The curve of a cell is kept as changes from point to point, and without what was made at each.
function readCurve({ tick, kinds, phases }) {
  const add = (changes) => { let sum = 0; return changes.map((change) => (sum += change)); };
  return { tick: add(tick), kinds: Object.fromEntries(Object.entries(kinds).map(([kind, changes]) => [kind, add(changes)])), phases, made: [], tensors: [] };
}

function kindsAtPeak(curve) {
  const live = liveBytes(curve);
  const peak = live.indexOf(Math.max(...live));
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
