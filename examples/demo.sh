#!/usr/bin/env bash
# The main job end to end: will a Mask R-CNN fine-tuning fit an 8 GB card, and with which settings?
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

say "1. A batch of 8 images with up to 100 objects each, on an RTX 3070 with 8 GB (half a minute)"
run oomproof check $job --on RTX-3070 --batch 8 --set boxes=100

say "2. The same number of images a step, in four micro-batches of two; the traced step is kept in a file"
run oomproof check $job --on RTX-3070 --batch 2 --set boxes=100 --set accumulate=4 --save "$folder/step.timeline"

say "3. The kept step on a smaller card: no trace is needed, so it takes a second"
run oomproof check "$folder/step.timeline" --on 4GiB

say "4. Which batch is the largest that fits? (a minute)"
run oomproof check $job --on RTX-3070 --set boxes=100 --sweep batch=1,2,4,8

say "Done. Your own job: docs/jobs.md. The GPUs it knows: oomproof gpus. The tool itself: .venv/bin/oomproof"
