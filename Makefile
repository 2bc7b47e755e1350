# make demo        the story of one lake, on the embedded default (Python 3.11+ and Java 17)
# make test        everything that runs on the embedded default
# make test-stack  what needs real servers (PostgreSQL 15 binaries)

SHELL := /bin/sh
.SHELLFLAGS := -eu -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11; do \
	if $$name -c "$(NEW_ENOUGH)" 2>/dev/null; then echo $$name; break; fi; done)
WORKERS ?= 2
LOCK := uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --quiet
FAST_TIERS = $(wildcard tests/unit tests/contract tests/property)
SPARK_TIERS = $(wildcard tests/spark tests/crash)
PYTEST = $(BIN)/python -m pytest --durations=10

.PHONY: help venv python java demo test test-fast test-spark test-stack soak bench lint types \
	layers lock docs clean

help:
	@sed -n 's/^# //p' Makefile

python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "odi-audit needs Python 3.11 or newer, and found none on the PATH." >&2; \
		echo "  next: Debian/Ubuntu 'sudo apt install python3 python3-venv', macOS 'brew install python@3.12';" >&2; \
		echo "        or name one: make $(or $(MAKECMDGOALS),demo) PYTHON=/path/to/python3" >&2; \
		exit 3; \
	fi

# Asked before anything is downloaded: it needs nothing but Python itself.
java: python
	@$(PYTHON) -S -m odi_audit.spark.java

$(STAMP): requirements/dev.txt pyproject.toml | python
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments." >&2; \
		echo "  next: on Debian/Ubuntu 'sudo apt install python3-venv'" >&2; exit 3; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--no-build-isolation --editable .
	@touch $(STAMP)

venv: $(STAMP)

demo: java venv
	@$(BIN)/odi-audit demo

test: java venv lint types layers test-fast test-spark

test-fast: venv
	$(PYTEST) -n $(WORKERS) $(FAST_TIERS)

test-spark: venv
	$(PYTEST) -n $(WORKERS) --dist loadfile $(SPARK_TIERS)

# Each worker starts servers of its own; a test may have to wait for those of the other.
test-stack: java venv
	$(PYTEST) -n $(WORKERS) --dist loadfile --timeout=900 -m "not soak and not alone" tests/stack
	$(PYTEST) --timeout=900 -m "alone and not soak" tests/stack

soak: java venv
	$(PYTEST) -m soak --timeout=0 tests

bench: java venv
	$(BIN)/python -m benchmarks.commit
	$(BIN)/python -m benchmarks.ledger

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: venv
	$(BIN)/mypy

layers: venv
	$(BIN)/lint-imports

# Run after a change to the dependencies in pyproject.toml; the files name no registry.
lock: venv
	$(BIN)/$(LOCK) --output-file requirements/runtime.txt
	$(BIN)/$(LOCK) --extra dev --constraint requirements/runtime.txt \
		--output-file requirements/dev.txt

docs: venv
	$(BIN)/python -m odi_audit.cli.reference docs

clean:
	rm -rf $(VENV) demo-lake dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
