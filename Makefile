# The habits of this repository, by name. `make` alone prints them.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup test lint types format models docs bench ci

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "%-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## a virtual environment with everything but the lab extra
	$(PYTHON) -m venv .venv && $(BIN)/pip install --quiet -e '.[dev]'

test: ## the tests
	$(BIN)/pytest

lint: ## ruff
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: ## mypy, strict
	$(BIN)/mypy

format: ## let ruff format and fix what it can
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

models: ## every catalogue file against its schema and its expected bytes
	$(BIN)/kvcalc models validate model_configs/*.yaml

docs: ## regenerate the pages and the schemas that are made from code
	$(BIN)/python tools/schemas.py
	for tool in tools/*_page.py; do $(BIN)/python $$tool; done

bench: ## start-up, throughput and memory, as information
	for script in benchmarks/*.py; do $(BIN)/python $$script; done

ci: ## what CI runs
	bash .ci/run
