"""The docstrings of the public names: their examples run, and their sections match the signatures."""

import ast
import dataclasses
import doctest
import inspect
import pydoc
import re
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest

import gensor_kernels

NAMES = sorted(gensor_kernels.__all__)
FUNCTIONS = [name for name in NAMES if inspect.isfunction(getattr(gensor_kernels, name))]
#: In NumPy's order.
SECTIONS = ["Attributes", "Parameters", "Returns", "Raises", "Warns", "Notes", "References", "Examples"]
#: Errors that no call on the emulator raises.
WITHOUT_EXAMPLES = {"BuildError", "ConfigError", "GensorError", "MachineError", "ToolMissingError"}
ENTRY = re.compile(r"(?P<names>[\w*]+(?:, [\w*]+)*)(?: : (?P<type>.+))?")
BY_MODULE: dict[str, list[str]] = defaultdict(list)
for _name in NAMES:
    if _name not in WITHOUT_EXAMPLES and hasattr(getattr(gensor_kernels, _name), "__module__"):
        BY_MODULE[getattr(gensor_kernels, _name).__module__.rpartition(".")[2]].append(_name)


@pytest.fixture(autouse=True)
def _as_in_a_new_process():
    """Kernels of earlier tests would change the numbers that some examples print."""
    gensor_kernels.refresh()
    yield
    gensor_kernels.refresh()


def sections(name: str) -> dict[str, list[str]]:
    """The lines of every section of a docstring, by title; the summary's title is empty."""
    lines = (inspect.getdoc(getattr(gensor_kernels, name)) or "").splitlines()
    found: dict[str, list[str]] = {"": []}
    for line, under in pairwise([*lines, ""]):
        if line and under == "-" * len(line):
            found[line] = []
        elif not re.fullmatch("-{5,}", line):
            found[list(found)[-1]].append(line)
    return found


def entries(lines: list[str]) -> dict[str, str]:
    """The type of every name that a section of parameters or attributes describes."""
    found = {}
    for line, under in pairwise([*lines, ""]):
        entry = ENTRY.fullmatch(line)
        if entry and (under.startswith("    ") or entry["type"]):
            found |= {each.lstrip("*"): entry["type"] or "" for each in entry["names"].split(", ")}
    return found


def run_examples(text: str, name: str, names: dict) -> int:
    """Return the number of examples of a text that ran; a failure is an AssertionError with their output."""
    test = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    output: list[str] = []
    results = doctest.DocTestRunner(verbose=False).run(test, out=output.append)
    assert not results.failed, "".join(output)
    return results.attempted - getattr(results, "skipped", 0)


@pytest.mark.parametrize("module", BY_MODULE)
def test_examples_run(module, tmp_path, monkeypatch):
    if module == "accelerate":
        pytest.importorskip("cupy")
    monkeypatch.chdir(tmp_path)
    for name in BY_MODULE[module]:
        text = "\n".join(sections(name)["Examples"])
        assert run_examples(text, name, {"np": np, "gensor_kernels": gensor_kernels}), name


def test_the_example_of_the_package_runs():
    text = inspect.getdoc(gensor_kernels)
    assert text and run_examples(text, "gensor_kernels", {}) == 3
    assert not [name for name in FUNCTIONS if not re.search(rf"\b{name}\b", text)]


def test_sections_describe_the_signatures_and_fields():
    for name in FUNCTIONS:
        signature = inspect.signature(getattr(gensor_kernels, name))
        found = sections(name)
        assert list(found) == ["", *(title for title in SECTIONS if title in found)] and "Examples" in found, name
        assert ("Returns" in found) == (signature.return_annotation not in (None, "None")), name
        described = entries(found.get("Parameters", []))
        assert list(described) == list(signature.parameters), name
        for parameter in signature.parameters.values():
            text = described[parameter.name]
            default = re.search(r", default (.+)$", text)
            if parameter.default is inspect.Parameter.empty:
                assert default is None and not text.endswith("optional"), (name, parameter)
            elif parameter.default is None:
                assert text.endswith(", optional"), (name, parameter)
            else:
                assert default and ast.literal_eval(default[1]) == parameter.default, (name, parameter)
    fields = [field.name for field in dataclasses.fields(gensor_kernels.Explanation)]
    assert list(entries(sections("Explanation")["Attributes"])) == fields
    for error in (gensor_kernels.UnsupportedError, gensor_kernels.BuildError):
        assert list(entries(sections(error.__name__)["Attributes"])) == list(vars(error("")))


def test_help_is_short():
    """A signature of three lines, two screens at most, and a summary of one line."""
    for name in FUNCTIONS:
        lines = pydoc.plain(pydoc.render_doc(getattr(gensor_kernels, name))).splitlines()
        first = next(number for number, line in enumerate(lines) if line.startswith(f"{name}("))
        # Newer versions of pydoc print each parameter of a long signature in a line.
        ends = (number for number, line in enumerate(lines) if line.startswith(")"))
        last = next(ends) if lines[first].endswith("(") else first
        signature = " ".join(line.strip() for line in lines[first : last + 1]).replace("( ", "(").replace(", )", ")")
        del lines[first:last]
        assert len(signature) <= 220 and len(lines) <= 120 and max(map(len, lines[4:])) <= 92, name
        assert "ArrayLike" not in signature, name
    for name in NAMES:
        summary, *rest = sections(name)[""]
        assert summary.endswith(".") and len(summary) <= 88 and not (rest and rest[0]), name
