# Everything a newcomer needs: `make demo` and `make test`. Both set up .venv from requirements.lock first.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Test processes at a time: many tests wait for brokers and deadlines, so one more than the two cores of CI.
JOBS   ?= 3
# Tests and demo start hundreds of processes; each would compile all its modules anew.
unexport PYTHONDONTWRITEBYTECODE
# Many processes share the cores. And OpenBLAS with threads of its own can wait for ever when two threads of a process
# multiply at once (seen: dsyrk, one holds its lock and waits for a worker that never comes).
export OPENBLAS_NUM_THREADS = 1

.PHONY: help setup demo pictures test test-bare test-lowest test-fast test-slow fuzz fuzz-guided check docs format lock bench clean
.DEFAULT_GOAL := help

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

$(READY): requirements.lock pyproject.toml deploy/bootstrap.py
	$(PYTHON) deploy/bootstrap.py $(VENV)

setup: $(READY)  ## Create the virtual environment with the locked versions

demo: $(READY)  ## Fifteen vehicles learn one model while some are killed; ARGS=--stay keeps the dashboard up
	$(BIN)/glassfleet demo $(ARGS)

test: $(READY)  ## Checks and every test but the slow ones (about five minutes)
	@$(BIN)/python -m tests.support.needs.make_test -n $(JOBS) $(ARGS)

test-bare: $(READY)  ## The tests that need programs or real data, with all of it hidden: each is left out (half a minute)
	@env -u GLASSFLEET_DATA -u GLASSFLEET_NO_SKIPS GLASSFLEET_BARE=1 GLASSFLEET_CHROMIUM=/nowhere PATH=$(abspath $(BIN)) \
	    $(abspath $(BIN))/python -m pytest -m needs -qq $(ARGS)

test-fast: $(READY)  ## Unit and property tests only
	$(BIN)/python -m pytest tests/unit tests/property -m "not slow" $(ARGS)

test-lowest: $(READY)  ## A telling part of the tests, with the lowest versions that pyproject.toml allows
	@$(PYTHON) deploy/bootstrap.py $(VENV)/lowest deploy/lowest.lock
	$(VENV)/lowest/bin/python -m pytest -m "not slow" -n $(JOBS) @deploy/lowest-tests.txt $(ARGS)

test-slow: $(READY)  ## The slow suite: all published tables, long chaos (an hour and a half on two cores)
	$(BIN)/python -m pytest -m slow --timeout 3600 -n $(JOBS) --dist worksteal $(ARGS)

fuzz-guided: $(READY)  ## Ten minutes of fuzzing led by coverage; ARGS="--seconds N --only TARGET --corpus DIR"
	@test -d $(VENV)/fuzz || $(BIN)/python -m pip install --quiet --target $(VENV)/fuzz atheris==3.0.0
	PYTHONPATH=$(VENV)/fuzz nice $(BIN)/python -m tests.fuzz.guided $(ARGS)

fuzz: $(READY)  ## A million broken messages (about thirteen minutes); ARGS="--inputs N --seed N"
	$(BIN)/python -m tests.fuzz $(ARGS)

check: $(READY)  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# Without Python's search for garbage, which takes a quarter of mypy's time on a clean clone.
	$(BIN)/python -c 'import gc, mypy.__main__ as mypy; gc.disable(); gc.enable = gc.disable; mypy.console_entry()'
	$(BIN)/lint-imports

docs: $(READY)  ## Build the documentation's site into site/ (strict, works offline)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(READY)  ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## Measure; prints the tables of docs/reference/benchmarks.md
	$(BIN)/python -m lab.benchmarks $(ARGS)

pictures: $(READY)  ## Renew docs/images from the demo: its terminal and its dashboard (needs Chromium)
	GLASSFLEET_PICTURES=docs/images $(BIN)/python -m pytest tests/acceptance/test_demo_pictures.py -q $(ARGS)

lock: $(READY)  ## Renew requirements.lock and deploy/lowest.lock from pyproject.toml
	$(BIN)/python deploy/lock.py

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis
