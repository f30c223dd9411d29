// Texts and bars at once, pictures after the browser has shown them.

document.getElementById("subtitle").textContent = page.title;
if (page.kind === "explain") showDiagnosis(page.diagnosis);
else if (page.kind === "sweep") showSweep(page.sweep);
else {
  setVerdict(page.plan?.verdict ?? page.forecast.verdict, page.forecast.outcome);
  showOpening(page.opening);
  if (page.plan) showPlan(page.plan); else showCard(page.forecast);
  showStep(page.forecast, page.curve, page.modules);
  if (page.what_if) showWhatIf(page.what_if);
  showData(page.data);
  showParts(page.forecast, page.validation_curve);
  showLists([["Notes", page.forecast.notes], ["Not counted", page.forecast.not_counted]]);
  showSettings(page.forecast.settings);
}
performance.mark("text");
addEventListener("DOMContentLoaded", () => requestAnimationFrame(() => setTimeout(() => {
  if (waiting.size) drawInView();
  performance.mark("ready");
  document.body.dataset.ready = "true";
  whenIdle(drawRest);
})));
