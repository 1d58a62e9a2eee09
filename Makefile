# Everything starts from a fresh clone: the first target that needs it makes .venv and installs into it.
# `make help` lists the targets; PYTHON=... chooses the interpreter, VENV=... the place.

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
PYTEST := $(PY) -m pytest
RECORDS := src/barnabas/records
KERNEL_SOURCES := $(wildcard $(foreach suffix,pyx pxi pxd h,$(RECORDS)/*.$(suffix)))
READY := $(VENV)/.kernel
SPARK := $(VENV)/.spark

MAKEFLAGS += --no-print-directory
# the tests start hundreds of processes, each of which would compile all that it imports
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help test quick lint types layers unit pure soak demo sim bench fuzz wheel format clean
# a step that fails leaves no half-made stamp behind
.DELETE_ON_ERROR:
# one step after another, so that the last lines on the screen are those of the step that failed
.NOTPARALLEL:

# $(call step,name,command): run the command under a heading, and name the step if it fails
define step
	@printf '\n\033[1m== %s\033[0m\n' '$(1)'
	@$(2) || { printf '\n\033[1m== FAILED: %s\033[0m\n' '$(1)' >&2; exit 1; }
endef

# $(call install,extra): what pyproject.toml names under that extra
install = $(PY) -m pip install --quiet --disable-pip-version-check $$($(PY) -c 'import tomllib; \
    print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["$(1)"])')

# Spark needs Java: where the machine has none, a wheel brings one
define java
	@$(PY) -m barnabas.spark.java >/dev/null 2>&1 || \
	    { echo '== no Java 17 or later here: installing one into $(VENV)'; $(call install,jdk); }
endef

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

# tests/interop has other people's clients and takes as long again; tests/spark needs PySpark, not installed by this;
# tests/project runs what documents tell to paste
QUICK := --parts 3 --leave-out tests/interop --leave-out tests/spark --leave-out tests/project "slow or java or node or go or spark"
quick: $(READY)  ## in two minutes, while you edit: the tests without slow ones, other people's programs and Spark
	$(call step,quick tests,$(PY) -m tools.lanes $(QUICK))

test: lint types layers unit pure  ## everything below, as continuous integration does
	@printf '\n\033[1m== all passed\033[0m\n'

lint: $(READY)  ## style (ruff check, ruff format --check)
	$(call step,lint,$(BIN)/ruff check && $(BIN)/ruff format --check)

types: $(SPARK)  ## types (mypy --strict over src)
	$(call step,types,$(BIN)/mypy)

layers: $(READY)  ## the layer contract (import-linter)
	$(call step,layers,$(BIN)/lint-imports)

unit: $(SPARK)  ## the tests; ARGS="-k name" for some of them
	$(java)
	$(call step,tests,$(if $(ARGS),$(PYTEST) $(ARGS),$(PY) -m tools.lanes --each 3 "java or node or go" spark))

PURE := --parts 2 --within tests/records --within tests/log "slow or java"
pure: $(READY)  ## the quick tests of records and log once more, on the pure-Python kernel
	$(call step,tests on the pure kernel,BARNABAS_KERNEL=pure $(PY) -m tools.lanes $(PURE))

soak: $(SPARK)  ## tests that repeat with other versions, seeds and files what others show; some minutes
	$(java)
	$(call step,soak tests,$(PYTEST) --long -m long $(ARGS))

demo: $(SPARK)  ## orders through a broker and Spark, both killed on the way; ARGS="--orders 1000000"
	$(java)
	@$(PY) examples/demo.py $(ARGS)

sim: $(READY)  ## many seeds of the simulator on all cores; SEEDS=2000 FIRST=1 ARGS="--seconds 60"
	@$(BIN)/barnabas sim --seeds $(or $(SEEDS),200) --first $(or $(FIRST),1) $(ARGS)

bench: $(READY)  ## measure; ARGS="--small", "--json" or "--write" (to docs/benchmarks.md)
	@$(PY) -m bench $(ARGS)

fuzz: $(READY)  ## 200,000 mutated batches against the validator
	@$(PY) -m tests.records.fuzz --count 200000

wheel: $(READY)  ## dist/*.whl and dist/*.tar.gz
	@$(PY) -m build --outdir dist

format: $(READY)  ## rewrite the code in the project's style
	@$(BIN)/ruff check --fix && $(BIN)/ruff format

clean:  ## remove .venv and everything that was built
	rm -rf $(VENV) build dist src/*.egg-info .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	rm -f $(RECORDS)/_kernel.c $(RECORDS)/_kernel*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An interpreter that is on the PATH may still be too old, or a shim with nothing behind it: ask each one.
$(PY):
	@for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python); do \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	    "$$python" -c 'import ensurepip, venv' 2>/dev/null || { lame=$$python; continue; }; \
	    printf '== making %s with %s\n' $(VENV) "$$("$$python" -V)"; \
	    exec "$$python" -m venv --clear $(VENV); \
	done; \
	if [ -n "$$lame" ]; then \
	    echo "make: $$lame has no venv module; install it (Debian, Ubuntu: apt install python3-venv)" >&2; \
	else \
	    echo "make: Barnabas needs Python 3.11 or newer, and none was found; name one with: make PYTHON=/path/to/python3 ..." >&2; \
	fi; exit 1

$(VENV)/.installed: pyproject.toml setup.py | $(PY)
	@printf '== installing Barnabas and its tools into %s\n' $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# The extension is optional to setuptools, so a kernel that fails to build only prints its error: the old
# one (of this Python; others may have theirs) goes first, lest the tests pass on it.
$(READY): $(VENV)/.installed $(KERNEL_SOURCES)
	@rm -f $(RECORDS)/_kernel$$($(PY) -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
	@$(PY) setup.py --quiet build_ext --inplace
	@touch $@

# Large, and so apart: only what needs PySpark waits for it.
$(SPARK): pyproject.toml | $(READY)
	@printf '== installing PySpark into %s (some 400 MB)\n' $(VENV)
	@$(call install,spark)
	@$(call install,delta)
	@touch $@
