# make demo | test | test-all (what make test leaves out) | tf-object-detection | lint | bench | versions | clean. Another interpreter: make test PYTHON=python3.13
# Everything is written into this folder: .venv (about 6 GB with PyTorch, 9 with TensorFlow) and build.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHELL := bash
.DEFAULT_GOAL := help

# Processes for the tests. Each loads two frameworks and takes some GB of memory: make test WORKERS=1 where that is too much.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --no-input -c constraints.txt

# Without what it depends on, which is OpenCV's build for desktops: that needs libraries of a screen.
ULTRALYTICS := ultralytics ultralytics-thop opencv-python-headless

# Of pip's hundreds of lines: the package that is being fetched, with its size where it is large.
define BRIEFLY
awk '/\.whl/ && !/metadata/ { \
       for (i = 1; i <= NF; i++) if ($$i ~ /\.whl/) n = split($$i, path, "/"); \
       split(path[n], part, "-"); item = part[1]; \
       if (match($$0, /\([0-9.]+ [MG]B\)/)) item = item " " substr($$0, RSTART, RLENGTH); \
       if (wide + length(item) > 100) { printf "\n"; wide = 0 } \
       printf "%s%s", wide ? ", " : "    ", item; wide += length(item) + 2; fflush() } \
     /^Installing collected/ { printf "%s    unpacking (a minute or two)\n", wide ? "\n" : ""; wide = 0; fflush() }'
endef

.PHONY: help demo test test-all tf-object-detection lint bench versions clean

help:
	@sed -n '1,2s/^# //p' Makefile

demo: $(VENV)/.torch
	@mkdir -p build
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/demo.sh build

test: lint
	@echo "==> tests (pytest; they trace and train real models on the CPU: about ten minutes)"
	@$(PYTEST) -m "not thorough"

test-all: $(VENV)/.all
	@echo "==> the tests that make test leaves out (as long again)"
	@$(PYTEST) -m "thorough and not lengthy"

# The API's own packages, without what they depend on: that would bring another TensorFlow. The list is the one in
# src/oomproof/frameworks/object_detection.py. Every test that needs them is marked thorough, so that make test stays as
# quick where they are installed. ALL=1 adds those that are marked lengthy.
API_TESTS := tests/trace/test_tfod_real.py tests/trace/test_tfod_evaluation_real.py tests/run/tf_object_detection \
	tests/sources/tf_object_detection/test_tfod_situations_real.py tests/sources/tf_object_detection/test_tfod_protobuf.py

tf-object-detection: $(VENV)/.object-detection
	@echo "==> its steps forecast and for real, trainings, evaluation (a quarter of an hour; ALL=1 runs the longest too)"
	@$(PYTEST) $(API_TESTS) $(if $(ALL),,-m "not lengthy")
	@$(PYTEST) tests/test_examples.py -k "tf_object_detection.md or tf_mask_rcnn.md"

lint: $(VENV)/.all
	@echo "==> ruff check (lint)"
	@$(BIN)/python -m ruff check --output-format concise .
	@echo "==> ruff format --check (layout)"
	@$(BIN)/python -m ruff format --check --quiet .
	@echo "==> mypy (types)"
	@$(BIN)/python -m mypy

bench: $(VENV)/.all
	@echo "==> speed: tracing against running the step (some minutes)"
	@$(BIN)/python bench/speed.py
	@echo "==> plans: one job trained under a memory limit, against what people do today (some minutes; all: bench/fit.py)"
	@$(BIN)/python -W ignore bench/fit.py --quick
	@echo "==> accuracy needs tables of published figures: $(BIN)/python bench/accuracy.py TABLE.csv..."

# What the oldest and the newest versions must show: traces against the real allocator, plans' changes, the fence.
VERSIONS := tests/frameworks tests/trace/test_exact_on_cpu.py tests/trace/test_dialect.py tests/trace/test_user_code.py \
	tests/trace/test_tf_step.py tests/trace/test_tf_keras.py tests/changes/test_recompute.py \
	tests/changes/test_keras_recompute.py
# transformers, which one test needs, has no version for all of them
SKIPPED := --deselect tests/changes/test_recompute.py::test_outputs_and_arguments_in_every_form

versions: .venv-oldest/.all .venv-newest/.all
	@for each in oldest newest; do \
		echo "==> tests with the $$each versions: $$(.venv-$$each/bin/python -m pip list 2>/dev/null \
			| awk '$$1 ~ /^(torch|tensorflow|keras|numpy)$$/ { printf "%s %s  ", $$1, $$2 }')"; \
		.venv-$$each/bin/python -m pytest $(VERSIONS) $(SKIPPED) || exit 1; \
	done

.venv-oldest/.all: constraints-oldest.txt pyproject.toml
	@echo "==> creating .venv-oldest with the oldest versions (about 7 GB; Python 3.11 or 3.12: PYTHON=python3.11)"
	@$(PYTHON) -m venv .venv-oldest
	@set -o pipefail; .venv-oldest/bin/python -m pip install --disable-pip-version-check --no-input \
		-c constraints-oldest.txt -e '.[torch,tensorflow,prune]' pytest hypothesis | $(BRIEFLY)
	@touch $@

.venv-newest/.all: pyproject.toml
	@echo "==> creating .venv-newest with the newest versions that pyproject.toml allows (about 9 GB)"
	@$(PYTHON) -m venv .venv-newest
	@set -o pipefail; .venv-newest/bin/python -m pip install --disable-pip-version-check --no-input \
		-e '.[torch,tensorflow,prune]' pytest hypothesis | $(BRIEFLY)
	@touch $@

clean:
	rm -rf $(VENV) .venv-oldest .venv-newest build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "oomproof needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Say: make demo PYTHON=python3.12" >&2; \
		exit 1; }
	@echo "==> creating $(VENV) with $$($(PYTHON) --version) (seconds)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.torch: constraints.txt pyproject.toml | $(BIN)/python
	@echo "==> installing oomproof with PyTorch (the first time some GB to download and unpack: 3 to 15 minutes)"
	@set -o pipefail; $(INSTALL) -e '.[torch]' | $(BRIEFLY)
	@touch $@

$(VENV)/.all: $(VENV)/.torch
	@echo "==> installing what tests and benchmarks need, TensorFlow, Keras and XLA among it (some minutes)"
	@set -o pipefail; $(INSTALL) -e '.[torch,kerashub,xla,bench,page,dev]' | $(BRIEFLY)
	@$(INSTALL) --quiet --no-deps $(ULTRALYTICS)
	@touch $@

$(VENV)/.object-detection: $(VENV)/.all
	@echo "==> installing the TensorFlow Object Detection API (seconds)"
	@$(INSTALL) --quiet --no-deps $$($(BIN)/python -c 'from oomproof.frameworks.object_detection import PACKAGES; print(*PACKAGES)')
	@touch $@
