# Two commands, each enough by itself on a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test lint pretuned clean

demo: $(VENV)/installed
	$(BIN)/gensor-tune --arch sm_87 --shapes examples/shapes.csv

test: $(VENV)/installed
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=40 --durations-min=4

# The shipped database of one architecture; see CONTRIBUTING.md before committing its result.
ARCH ?= sm_87
pretuned: $(VENV)/installed
	$(BIN)/gensor-tune pretune --arch $(ARCH) --shapes examples/common_shapes.csv

lint: $(VENV)/installed
	$(BIN)/python -m pip install -q ruff mypy clang-format
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $$(git ls-files '*.cu' '*.cuh' '*.h' '*.cpp')
	# Type checkers do not see through the renaming import hook of an editable install: check what is installed.
	rm -rf build/typed && $(BIN)/python -m pip install -q --no-deps --target build/typed .
	cd build/typed && ../../$(BIN)/mypy --config-file ../../pyproject.toml -p gensor_database -p gensor_kernels -p gensor_tuner
	rm -rf build

$(VENV)/installed: pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10) and 'Python 3.10 or newer is needed: make PYTHON=python3.11')"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q -e '.[test]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
