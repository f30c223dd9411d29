#!/usr/bin/env bash
# The main job end to end: will a Mask R-CNN fine-tuning fit an 8 GB card, with which settings does it, and does it train so?
# Every command is shown as you would type it. Exit code 2 says "does not fit", which is an answer, not a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build}
job=examples/train_job.py:job

say() { printf '\n==> %s\n' "$*"; }

run() {
    printf '$ %s\n' "$*"
    local code=0
    "$@" || code=$?
    if [ "$code" -ne 0 ] && [ "$code" -ne 2 ]; then
        echo "exit code $code" >&2
        exit "$code"
    fi
    printf '(exit code %s)\n' "$code"
}

say "1. Will it fit? A batch of 8 images with up to 50 objects each, on an RTX 3070 with 8 GB (a quarter of a minute)"
run oomproof check $job --on RTX-3070 --batch 8 --set boxes=50

say "2. Make it fit, with the same batch and the same gradients; the settings are kept in a file (half a minute)"
run oomproof fit $job --on RTX-3070 --batch 8 --set boxes=50 --keep identical --write "$folder/fitted.json"

say "3. The same question with these settings; the traced step is kept in a file as well (a quarter of a minute)"
run oomproof check $job --on RTX-3070 --from "$folder/fitted.json" --save "$folder/step.timeline"

say "4. The kept step on a smaller card: no trace is needed, so it takes a second"
run oomproof check "$folder/step.timeline" --on 4GiB

say "5. Does it train, and as before? Two real steps on the CPU, plain and as planned, of the same detector on small images"
run python examples/train_fitted.py "$folder/fitted.json"

say "Done. Your own job: docs/jobs.md. More about plans: docs/fit.md. The tool itself: .venv/bin/oomproof"
