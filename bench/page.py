"""How soon a page can be read and used: seconds of the browser's main thread, as ratios to reading Plotly alone.

    python bench/page.py [REPORT.html]      (needs chromium, or one in CHROMIUM; without a file a Mask R-CNN is traced)

CPU time, so that a busy machine counts for less, and beside it the clock, which means something on an idle one. The
browser traces itself: with a debugger attached, as Playwright has one, V8 parses a script again where an error is
caught in it, and Plotly takes twice as long.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MASK = ("torchvision:maskrcnn_resnet50_fpn", "--batch", "2", "--image-size", "800x1333", "--on", "RTX 3060 12GB")
RUNS = 3
MARKS = ("text", "ready")
EMPTY = """<!doctype html><meta charset="utf-8"><script>%s</script><script>performance.mark("ready")</script>"""


def main() -> int:
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        print("bench/page.py needs chromium: install it, or name one in CHROMIUM", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        page = Path(sys.argv[1]).resolve() if sys.argv[1:] else write_report(Path(folder) / "report.html")
        from plotly.offline import get_plotlyjs

        alone = Path(folder) / "plotly.html"
        alone.write_text(EMPTY % get_plotlyjs(), encoding="utf-8")
        base = statistics.median(measure_start(chromium, alone)["ready"][0] for _ in range(RUNS))
        runs = [measure_start(chromium, page) for _ in range(RUNS)]
    print(f"{page.name}, {page.stat().st_size / 1e6:.1f} MB; reading Plotly alone: {base:.2f} CPU s")
    for mark, meaning in zip(MARKS, ("verdict, bar, tables and controls", "and the pictures in view"), strict=True):
        cpu, clock = zip(*(run[mark] for run in runs), strict=True)
        median = statistics.median(cpu)
        print(f"{meaning:34} {median:.2f} CPU s ({min(cpu):.2f} to {max(cpu):.2f}), {median / base:.2f} of it; "
              f"by the clock {statistics.median(clock):.2f} s ({min(clock):.2f} to {max(clock):.2f})")  # fmt: skip
    return 0


def write_report(path: Path) -> Path:
    command = [sys.executable, "-m", "oomproof", "check", *MASK, "--html", str(path), "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return path


def measure_start(chromium: str, page: Path) -> dict[str, tuple[float, float]]:
    """Seconds of the page's thread from the navigation to each of its marks: of CPU, and by the clock."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        options = [
            "--headless",
            "--no-sandbox",
            "--no-first-run",
            "--window-size=1400,900",
            f"--user-data-dir={folder}/user",
        ]
        tracing = ["--trace-startup=blink.user_timing,loading", f"--trace-startup-file={trace}"]
        ends = ["--trace-startup-duration=30", "--trace-startup-format=json", f"--screenshot={folder}/page.png"]
        command = [chromium, *options, *tracing, *ends, page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        events = json.loads(trace.read_text())["traceEvents"]
    ready = next(event for event in events if is_mark(event, "ready"))
    own = [event for event in events if (event["pid"], event["tid"]) == (ready["pid"], ready["tid"]) and "tts" in event]
    begun = [each for each in own if "CommitNavigation" in each["name"] and each["tts"] < ready["tts"]]
    start = max(begun, key=lambda each: each["tts"])
    return {
        name: ((each["tts"] - start["tts"]) / 1e6, (each["ts"] - start["ts"]) / 1e6)
        for name in MARKS
        for each in own
        if is_mark(each, name)
    }


def is_mark(event: dict[str, Any], name: str) -> bool:
    return event["name"] == name and "blink.user_timing" in event.get("cat", "")


if __name__ == "__main__":
    raise SystemExit(main())
