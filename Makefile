# One place for every command; CI calls the same ones.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup java says run quick test test-all prove matrix check docs bench lock dist native clean

setup: $(STAMP)  ## make .venv with everything (uv where there is one, else pip)

$(STAMP): pyproject.toml
	@echo "$(VENV): installing all dependencies, which takes some minutes the first time"
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing --python $(PYTHON) $(VENV) && \
	  uv pip install --quiet --python $(BIN)/python -e '.[dev]'; \
	else \
	  $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install --quiet -e '.[dev]'; \
	fi
	@touch $(STAMP)

java: setup  ## a Java for Spark, inside .venv where the machine has none
	@.ci/java $(VENV)

run: says java  ## the main job on real data
	@$(BIN)/python examples/flights.py

says:
	@echo "make run: a year of flights through a stream, Spark and another stream; a few minutes"


# Tests wait for other processes half of the time: two workers for each of two cores.
WORKERS ?= 4
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup
# Each of a thousand child processes would compile what it imports.
export PYTHONDONTWRITEBYTECODE :=

quick: setup  ## what needs no server, no Spark and no network; under 2 minutes
	$(PYTEST) --tier quick

test: java  ## the default suite, each real component at least once; under 8 minutes
	@$(BIN)/python -m tests.proving.java >/dev/null 2>&1 &
	@$(BIN)/python -m tests.kafka.broker >/dev/null 2>&1 &
	@$(BIN)/python native/compiling.py .run/native >/dev/null 2>&1 &
	$(PYTEST) --tier test

SHARE ?=
test-all: java  ## the rest: clusters, series of kills, object stores; SHARE=1/3: a third
	@$(BIN)/python -m tests.proving.java >/dev/null 2>&1 &
	$(PYTEST) --tier rest $(if $(SHARE),--share $(SHARE))

N ?= 20
SEED ?= 0
PATHS ?=
prove: java  ## N kills on each path, and faults, from SEED; ends in lost=0 twice=0
	@$(BIN)/python tests/prove.py --rounds $(N) --seed $(SEED) --paths $(PATHS)

ONLY ?=
MATRIX ?=
matrix: java  ## the suites under other Pythons, other PySparks, lowest versions, no extras
	@$(BIN)/python tests/matrix.py $(if $(ONLY),--only $(ONLY)) $(MATRIX)

check: setup  ## format, lint, types, docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python docs/reference.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir .site

docs: setup  ## prove the built-ins, and write the generated pages
	$(BIN)/python docs/reference.py --prove

BENCH ?=
bench: java  ## ratios against the raw libraries, in one table at the end; gates nothing
	@.ci/native $(VENV) --install >&2 || \
	  echo "only the Python paths are measured, without streamfactory-native" >&2
	@$(BIN)/python benchmarks/all.py --output .run/bench.json $(BENCH)

lock: setup  ## constraints.txt: the newest version of each dependency that fits
	@$(BIN)/uv pip compile --quiet --upgrade pyproject.toml --extra all --universal \
	  --python-version 3.11 --no-annotate --custom-compile-command 'make lock' \
	  --output-file constraints.txt

dist: setup  ## wheel, sdist and SBOM in dist/, tried in a clean environment
	@.ci/dist $(VENV)

native: setup  ## the compiled part, for the platform of this machine: wheel, and into .venv
	@.ci/native $(VENV) --install

clean:
	rm -rf $(VENV) .site .run dist
