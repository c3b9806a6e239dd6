# Two commands for a newcomer: `make demo` and `make test`. Both set everything up themselves.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	"$$p" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
	&& command -v "$$p" && break; done)
BIN := .venv/bin

.PHONY: demo test check setup setup-dev unit live

demo: setup
	$(BIN)/tune demo-model mlruns/demo-model
	$(BIN)/tune start --study demo
	@echo "Here, tune is $(BIN)/tune; . $(BIN)/activate puts it on your path."

test: setup-dev check unit live

setup:
	@test -n "$(PYTHON)" || { echo "Python 3.11, 3.12 or 3.13 is needed: install one of them."; exit 1; }
	@$(PYTHON) .ci/setup.py

setup-dev:
	@test -n "$(PYTHON)" || { echo "Python 3.11, 3.12 or 3.13 is needed: install one of them."; exit 1; }
	@$(PYTHON) .ci/setup.py --dev

check:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/codespell

unit:
	$(BIN)/pytest -m "not gpu and not live"

live:
	$(BIN)/pytest -m "live and not gpu"
