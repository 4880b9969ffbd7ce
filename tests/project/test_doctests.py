"""The docstrings of the public names: their examples run, and their sections fit the signatures."""

import ast
import dataclasses
import doctest
import inspect
import pydoc
import re
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


@pytest.fixture(autouse=True)
def _as_in_a_new_process():
    """What earlier calls loaded would change the numbers that some examples print."""
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


def ran(text: str, name: str, names: dict) -> int:
    """How many examples of a text ran; the failures are the error's message."""
    test = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    told: list[str] = []
    results = doctest.DocTestRunner(verbose=False).run(test, out=told.append)
    assert not results.failed, "".join(told)
    return results.attempted - getattr(results, "skipped", 0)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITHOUT_EXAMPLES])
def test_examples_run(name: str, tmp_path, monkeypatch):
    if name == "accelerate":
        pytest.importorskip("cupy")
    monkeypatch.chdir(tmp_path)
    text = "\n".join(sections(name)["Examples"])
    assert ran(text, name, {"np": np, "gensor_kernels": gensor_kernels}) > 0


def test_the_example_of_the_package_runs_as_it_stands():
    text = inspect.getdoc(gensor_kernels)
    assert text and ran(text, "gensor_kernels", {}) == 3
    assert not [name for name in FUNCTIONS if not re.search(rf"\b{name}\b", text)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sections_describe_the_signature(name: str):
    signature = inspect.signature(getattr(gensor_kernels, name))
    found = sections(name)
    assert list(found) == ["", *(title for title in SECTIONS if title in found)]
    assert "Examples" in found
    assert ("Returns" in found) == (signature.return_annotation not in (None, "None"))
    described = entries(found.get("Parameters", []))
    assert list(described) == list(signature.parameters)
    for parameter in signature.parameters.values():
        told = described[parameter.name]
        given = re.search(r", default (.+)$", told)
        if parameter.default is inspect.Parameter.empty:
            assert given is None and not told.endswith("optional"), parameter
        elif parameter.default is None:
            assert told.endswith(", optional"), parameter
        else:
            assert given and ast.literal_eval(given[1]) == parameter.default, parameter


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_is_no_wall(name: str):
    """A signature of two lines, and two screens at most; long rules are in docs."""
    lines = pydoc.plain(pydoc.render_doc(getattr(gensor_kernels, name))).splitlines()
    signature = next(line for line in lines if line.startswith(f"{name}("))
    assert len(signature) <= 200 and len(lines) <= 100 and max(map(len, lines[4:])) <= 92
    assert "ArrayLike" not in signature


@pytest.mark.parametrize("name", NAMES)
def test_summaries_are_one_line(name: str):
    summary, *rest = sections(name)[""]
    assert summary.endswith(".") and len(summary) <= 88 and not (rest and rest[0])


def test_attributes_describe_the_fields():
    fields = [field.name for field in dataclasses.fields(gensor_kernels.Explanation)]
    assert list(entries(sections("Explanation")["Attributes"])) == fields
    assert list(entries(sections("UnsupportedError")["Attributes"])) == list(vars(gensor_kernels.UnsupportedError("")))
    assert list(entries(sections("BuildError")["Attributes"])) == list(vars(gensor_kernels.BuildError("")))
