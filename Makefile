# Needs only make and Python 3.11 or newer with its venv module. `make help` lists the targets.
.DEFAULT_GOAL := help
.PHONY: help run unit test nightly lint bench chaos clean lock browser install install-dev
SHELL := /bin/bash
# Many containers set it. Without bytecode files, each process compiles every module and test that it imports.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --disable-pip-version-check --require-hashes
SOURCES := .
TESTS ?= tests
# More than the cores of a small machine: half of the time tests wait.
WORKERS ?= 3
PYTEST_ARGS ?= -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=40 --durations-min=8
COMPILE := uv pip compile --quiet --no-strip-extras --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --no-annotate --python-version 3.11 --universal

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 16

run: install ## set everything up, start it with the demo, print the address and the log-in
	@exec $(PY) manage.py up --demo

unit: install-dev ## the tests that need no server, no JVM and no browser
	$(PY) -m pytest $(PYTEST_ARGS) -m unit $(TESTS)

test: install-dev browser ## set everything up, run what has to hold for a change (TESTS=path, PYTEST_ARGS=… narrow it)
	$(PY) -m pytest $(PYTEST_ARGS) -m "not nightly" $(TESTS)

# First the tests of `make test`, with their coverage. Drivers are measured, too: a job manager passes the variable on to
# them. Then the others, which coverage would make a third slower. They have two workers: the longest each run a dozen
# processes, and three of them at a time would let sessions and leases expire. pytest ends with 5 if it finds no test.
nightly: install-dev browser ## every test, those that repeat themselves more often and with a random seed (WAYMARK_TESTS_SEED; fetches 330 MB for each of two Flink versions), and the coverage of each package by the tests of `make test`
	@export WAYMARK_TESTS=nightly WAYMARK_TESTS_SEED=$${WAYMARK_TESTS_SEED:-$$RANDOM}; failed=0; \
	  WAYMARK_PROGRAM_ENVIRONMENT=COVERAGE_PROCESS_CONFIG \
	    $(PY) -m pytest $(PYTEST_ARGS) -m "not nightly" --cov --cov-report= $(TESTS) || [ $$? -eq 5 ] || failed=1; \
	  $(PY) -m pytest $(subst -n $(WORKERS),-n 2,$(PYTEST_ARGS)) -m nightly $(TESTS) || [ $$? -eq 5 ] || failed=1; \
	  $(PY) -m coverage json -q -o - | $(PY) -m tests.coverage_by_package; exit $$failed

lint: install-dev ## ruff, mypy, the import contracts and the length of commit subjects
	$(VENV)/bin/ruff check $(SOURCES)
	$(VENV)/bin/ruff format --check $(SOURCES)
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	@git log -n 20 --format=%s | awk 'length > 72 { print "longer than 72 characters: " $$0; bad = 1 } END { exit bad }'

bench: install-dev browser ## run the benchmarks
	$(PY) -m bench

chaos: install-dev ## faults, kills, restarts under fire and snapshots under load for several hours (WAYMARK_TESTS_SEED repeats a run)
	WAYMARK_TESTS=chaos $(PY) -m pytest -q -s tests/chaos tests/monitoring/fire \
	  tests/checkpointing/coordinator/test_killed_at_every_step.py tests/checkpointing/spark/test_consistent_cut.py \
	  tests/monitoring/discovery/test_random_changes.py tests/monitoring/discovery/test_random_applications.py

clean: ## remove the virtual environment, the caches and ALL data under ./var
	@if [ -s var/run/up.lock ] && kill -0 "$$(cat var/run/up.lock)" 2>/dev/null; then \
	  echo "Waymark is running (pid $$(cat var/run/up.lock)): stop it first."; exit 1; fi
	@# Under root in a private home PostgreSQL's data lies elsewhere, behind this link.
	@if [ -L var/postgres ]; then rm -rf "$$(readlink var/postgres)"; fi
	rm -rf $(VENV) var .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage staticfiles
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

lock: ## write requirements*.txt from pyproject.toml (needs uv)
	$(COMPILE) --all-extras pyproject.toml -o requirements.txt
	$(COMPILE) --all-extras --group dev pyproject.toml -c requirements.txt -o requirements-dev.txt

install: $(VENV)/.installed

install-dev: $(VENV)/.installed-dev

# The stamps are newer than what they were made from: a second run installs nothing.
$(VENV)/.installed: requirements.txt | $(VENV)/bin/python
	@echo "Installing what Waymark needs into $(VENV) (about 1.2 GB, a minute or two) …"
	@$(PIP) --quiet -r requirements.txt
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt requirements.txt | $(VENV)/bin/python
	@echo "Installing what Waymark and its tests need into $(VENV) (about 1.5 GB, a minute or two) …"
	@$(PIP) --quiet -r requirements-dev.txt
	@touch $@ $(VENV)/.installed

$(VENV)/bin/python:
	@for candidate in $(PYTHON) python3.11 python3.12 python3.13 python3 python; do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$candidate; break; fi; done; \
	if [ -z "$$found" ]; then \
	  echo "No Python 3.11 or newer on the PATH. Install one, or say which: make PYTHON=/path/to/python3.11 …"; exit 1; fi; \
	echo "Making $(VENV) with $$("$$found" --version)"; \
	"$$found" -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$$found cannot make a virtual environment. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }

# Tests drive a real browser: the system's, else Debian's package where we may install it, else Playwright's own download.
# Playwright's driver is a Node.js that needs libatomic, which a bare Debian lacks.
browser: install-dev
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do \
	  command -v $$name >/dev/null && found=$$name; done; \
	if [ -n "$$found" ] && $(PY) -m playwright --version >/dev/null 2>&1; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing chromium for the browser tests …"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium libatomic1 >/dev/null; \
	elif [ -z "$$found" ]; then \
	  echo "No Chromium or Chrome on the PATH; trying Playwright's own …"; \
	  $(PY) -m playwright install chromium || echo "No browser: the browser tests will not run. Install chromium."; \
	else echo "Playwright does not start: the browser tests will not run. Install libatomic1."; fi
