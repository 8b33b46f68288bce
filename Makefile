# `make report` and `make test` set everything up on first use; a second call does no set-up again.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.ONESHELL:
.SHELLFLAGS := -eu -o pipefail -c

# The first Python of a version that the locks were made for, with venv; `make PYTHON=...` overrides.
PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
  $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null \
  && { command -v $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FLASHINFER := $(shell cat locks/embedded-flashinfer.txt)
FLASHINFER_DIR := .stacks/$(subst ==,-,$(FLASHINFER))
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip install --quiet

# A checkout that was moved needs its environment anew: scripts in it name their folder.
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
$(shell rm -f $(READY))
endif

.PHONY: report test check lab setup lock clean

report: $(READY)  ## set up, run the notebooks in order, render the report
	@$(BIN)/workbook run

test: $(READY)  ## set up, then all that CI checks
	@bash tests/system_packages.sh
	$(MAKE) --no-print-directory check
	$(BIN)/pytest

check: $(READY)  ## lint, format, types
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lab: $(READY)  ## JupyterLab on the notebooks
	@$(BIN)/jupyter lab notebooks

setup: $(READY)

$(READY): locks/embedded.txt locks/embedded-flashinfer.txt pyproject.toml
	@if [ -z "$(PYTHON)" ]; then
	  echo "No Python 3.11 or 3.12 with venv was found. Install one, or run: make PYTHON=/path/to/python3.11" >&2
	  exit 1
	fi
	echo "Setting up $(VENV) with $$($(PYTHON) --version): about 3 GB and a few minutes, once."
	$(PYTHON) -m venv --clear $(VENV)
	echo "  torch"
	$(PIP) --constraint locks/embedded.txt $$(grep '^torch==' locks/embedded.txt)
	echo "  $$(grep -c == locks/embedded.txt) packages"
	$(PIP) --no-deps --requirement locks/embedded.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	if [ ! -e $(FLASHINFER_DIR) ]; then
	  echo "  $(FLASHINFER), in a folder of its own"
	  rm -rf $(FLASHINFER_DIR).partial
	  $(PIP) --no-deps --target $(FLASHINFER_DIR).partial $(FLASHINFER)
	  mv $(FLASHINFER_DIR).partial $(FLASHINFER_DIR)
	fi
	$(BIN)/workbook stack create seed --sources || echo "Only \`workbook foresee\` needs them; it names this command."
	echo "$(CURDIR)" > $@

lock:  ## make locks/embedded.txt anew from embedded.in and pyproject.toml
	@rm -rf .lock-venv
	$(PYTHON) -m venv .lock-venv
	.lock-venv/bin/pip install --quiet --requirement locks/embedded.in --editable '.[dev]'
	.lock-venv/bin/pip install --quiet --no-deps torchvision==0.28.0 sglang==0.5.23
	{ echo "# Made by \`make lock\` from embedded.in and pyproject.toml, with $$(.lock-venv/bin/python --version)."
	  .lock-venv/bin/pip freeze --exclude-editable | sed 's/+cpu$$//' ; } > locks/embedded.txt
	rm -rf .lock-venv

clean:  ## remove the set-up; runs and reports stay
	@rm -rf $(VENV) .stacks .lock-venv
