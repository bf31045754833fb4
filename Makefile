# Two commands serve a newcomer: `make run` and `make test`. Each installs into .venv what it needs, and no more.
.DEFAULT_GOAL := help
.PHONY: help run page types messages test coverage test-agents test-long check format bench docs setup clean
SHELL := /bin/bash
export NO_MKDOCS_2_WARNING := 1
# The tests start thousands of Python processes; without bytecode each of them would compile the sources again.
export PYTHONDONTWRITEBYTECODE :=
PYTHON ?= python3
BIN := .venv/bin
RUNTIME := .venv/.runtime
READY := .venv/.ready
EXTRAS ?= models
SYSTEM := jq unshare:util-linux chromium zsh fish

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

$(RUNTIME): pyproject.toml tools/setup.sh
	@tools/setup.sh runtime "$(PYTHON)" "$(EXTRAS)"

$(READY): pyproject.toml tools/setup.sh
	@tools/setup.sh dev "$(PYTHON)"

setup: $(READY) ## Create .venv with the development tools

run: $(RUNTIME) ## Start the server, with a few runs to look at (EXTRAS=models,claude adds the Claude SDK)
	@$(BIN)/python -m tools.page is-built || tools/setup.sh runtime "$(PYTHON)" "$(EXTRAS)"
	@tools/first-run.sh

page: $(READY) ## Build the page from web/, if web/ has changed
	@$(BIN)/python -m tools.page build

types: $(READY) ## Generate the page's TypeScript types from the server's OpenAPI description
	@$(BIN)/python -m tools.page types

messages: $(READY) ## Generate tests/golden/messages.txt, which lists every message, hint and help text
	@$(BIN)/python -m tools.messages

check: $(READY) ## Lint, format, types, imports
	@echo "==> ruff" && $(BIN)/ruff check . && $(BIN)/ruff format --check .
	@echo "==> pyright" && $(BIN)/pyright
	@echo "==> import-linter" && $(BIN)/lint-imports --no-cache
	@echo "==> tsc, eslint, prettier" && $(BIN)/python -m tools.page check

format: $(READY) ## Format the code
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .
	@$(BIN)/python -m tools.page format

test: $(READY) check page ## Every check and every test
	@tools/system-packages.sh $(SYSTEM)
	@$(BIN)/python tools/agents.py claude codex
	@echo "==> tests of the page" && $(BIN)/python -m tools.page test
	@echo "==> tests" && $(BIN)/pytest -n 5 --dist worksteal --durations=25 $(ARGS)

coverage: $(READY) page ## Run every test and measure the coverage of src/
	@tools/system-packages.sh $(SYSTEM)
	@$(BIN)/python tools/agents.py claude codex
	@rm -f .coverage .coverage.*
	@COVERAGE_PROCESS_START=$(CURDIR)/pyproject.toml $(BIN)/coverage run -m pytest -n 3 --dist worksteal $(ARGS)
	@$(BIN)/coverage combine -q && $(BIN)/coverage report --format=total | xargs -I% echo "==> coverage of src/: % %"
	@$(BIN)/coverage report > .coverage-report.txt || { cat .coverage-report.txt; exit 1; }

test-agents: $(READY) ## The real Gemini, Copilot and OpenCode against a scripted model
	@$(BIN)/python tools/agents.py gemini copilot opencode
	@$(BIN)/pytest -n 2 -m more_agents tests/agents $(ARGS)

test-long: $(READY) page ## The same suites with more cases and time
	@tools/system-packages.sh $(SYSTEM)
	@$(BIN)/python tools/agents.py claude codex
	@SHOPFLOOR_TEST_LONG=1 $(BIN)/pytest -n 3 --dist worksteal $(ARGS)

bench: $(READY) ## Run the benchmarks: ratios to a limit or to another system
	@$(BIN)/python -c 'import dbos, taskiq_redis' 2>/dev/null || $(BIN)/python -m pip install -q --group bench
	@$(BIN)/python -m benchmarks $(ARGS)

docs: $(READY) ## Generate the reference pages, then build docs/ into site/
	@$(BIN)/python -m tools.docs
	@$(BIN)/python -m tools.conformance
	@$(BIN)/mkdocs build --strict --quiet
	@echo "==> built site/: look at it with python3 -m http.server --directory site"

clean: ## Remove everything that make has created
	rm -rf .venv site web/node_modules src/shopfloor/server/page .pytest_cache .ruff_cache .hypothesis .coverage .coverage.* .coverage-report.txt
