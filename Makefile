# make demo | test | test-all (what make test leaves out) | lint | bench | clean. Another interpreter: make test PYTHON=python3.13
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

.PHONY: help demo test test-all lint bench clean

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
	@$(PYTEST) -m thorough

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

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
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
	@set -o pipefail; $(INSTALL) -e '.[torch,kerashub,xla,bench,dev]' | $(BRIEFLY)
	@touch $@
