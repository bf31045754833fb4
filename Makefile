# Two commands serve a newcomer: `make run` and `make test`. Each sets up what it needs in .venv.
.DEFAULT_GOAL := help
.PHONY: help run page types test coverage test-agents test-long check format bench docs setup clean
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
SYSTEM := jq unshare:util-linux chromium

help: ## Say what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

$(READY): pyproject.toml tools/setup.sh
	@tools/setup.sh "$(PYTHON)"
	@touch $@

setup: $(READY) ## Make .venv with everything in it

run: $(READY) page ## Start the server, with a few runs to look at
	@tools/first-run.sh

page: $(READY) ## Build the page from web/, where it has changed
	@$(BIN)/python -m tools.page build

types: $(READY) ## Make the page's types anew from what the server says of itself
	@$(BIN)/python -m tools.page types

check: $(READY) ## Lint, format, types, imports
	@echo "==> ruff" && $(BIN)/ruff check . && $(BIN)/ruff format --check .
	@echo "==> pyright" && $(BIN)/pyright
	@echo "==> import-linter" && $(BIN)/lint-imports --no-cache
	@echo "==> tsc" && $(BIN)/python -m tools.page check

format: $(READY) ## Put the code into shape
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

test: $(READY) check page ## Every check and every test
	@tools/system-packages.sh $(SYSTEM)
	@$(BIN)/python tools/agents.py claude codex
	@echo "==> tests of the page" && $(BIN)/python -m tools.page test
	@echo "==> tests" && $(BIN)/pytest -n 4 --durations=25 $(ARGS)

coverage: $(READY) page ## Every test once more, measured: which lines of src/ they reach
	@tools/system-packages.sh $(SYSTEM)
	@$(BIN)/python tools/agents.py claude codex
	@rm -f .coverage .coverage.*
	@COVERAGE_PROCESS_START=$(CURDIR)/pyproject.toml $(BIN)/coverage run -m pytest -n 3 $(ARGS)
	@$(BIN)/coverage combine -q && $(BIN)/coverage report --format=total | xargs -I% echo "==> coverage of src/: % %"
	@$(BIN)/coverage report > .coverage-report.txt || { cat .coverage-report.txt; exit 1; }

test-agents: $(READY) ## The real Gemini, Copilot and OpenCode against a scripted model
	@$(BIN)/python tools/agents.py gemini copilot opencode
	@$(BIN)/pytest -n 2 -m more_agents tests/agents $(ARGS)

test-long: $(READY) page ## The same suites with more cases and time
	@tools/system-packages.sh $(SYSTEM)
	@$(BIN)/python tools/agents.py claude codex
	@SHOPFLOOR_TEST_LONG=1 $(BIN)/pytest -n 3 $(ARGS)

bench: $(READY) ## Measure us against the limit or a peer, as ratios
	@$(BIN)/python -c 'import dbos, taskiq_redis' 2>/dev/null || $(BIN)/python -m pip install -q --group bench
	@$(BIN)/python -m benchmarks $(ARGS)

docs: $(READY) ## Make the generated pages of docs/ anew
	@$(BIN)/python -m tools.docs
	@$(BIN)/python -m tools.conformance

clean: ## Remove what make has made
	rm -rf .venv web/node_modules src/shopfloor/server/page .pytest_cache .ruff_cache .hypothesis .coverage .coverage.* .coverage-report.txt
