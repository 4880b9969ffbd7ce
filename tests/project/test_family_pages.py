"""The pages of docs/families against the code: names, levels and values of coordinates; rewritten families."""

import re
from collections import defaultdict
from functools import lru_cache

import pytest

from gensor_kernels.machine.arch import lookup
from gensor_kernels.programs.core.family import Coordinate
from gensor_kernels.programs.registry import FAMILIES
from gensor_tuner.shapes.reader import read_shapes

from .test_packaging import ROOT

PAGES = {page.stem: page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "families").glob("*.md")}
ROW = re.compile(r"^\| `(\w+)` \| (\d) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
REWRITTEN = re.compile(r"^\| `(contraction_\w+)` \| [^|]+ \| `(contraction_\w+)` \|", re.MULTILINE)
ARCHS = ("sm_75", "sm_80", "sm_87", "sm_90")
#: Coordinates whose values depend on the class; the examples do not have every class.
OF_A_CLASS = {"block_k", "form", "instruction", "vector", "vector_a", "vector_b", "vector_c", "vector_k", "vector_v"}
OWN_PAGES = sorted(set(FAMILIES) & set(PAGES))


def documented_values(cell: str) -> set[int]:
    """The integers of a cell such as "1, 2, 4, 8, 16 to 256 by 16"."""
    found: set[int] = set()
    for item in cell.split(", "):
        first, last, step = re.fullmatch(r"(\d+)(?: to (\d+))?(?: by (\d+))?", item.strip()).groups()
        found |= set(range(int(first), int(last or first) + 1, int(step or 1)))
    return found


@lru_cache(maxsize=1)
def found_coordinates() -> dict[str, dict[str, set[Coordinate]]]:
    """By family and name, the coordinates that the Workloads of the examples have on several Archs."""
    rows = [
        row for name in ("every_operator", "common_shapes") for row in read_shapes(ROOT / "examples" / f"{name}.csv")
    ]
    workloads = {row.workload for row in rows if row.workload}
    found: dict[str, dict[str, set[Coordinate]]] = defaultdict(lambda: defaultdict(set))
    for name, family in FAMILIES.items():
        for arch in map(lookup, ARCHS):
            for workload in workloads:
                if family.serves(workload, arch) is None:
                    for coordinate in family.coordinates(workload, arch):
                        found[name][coordinate.name].add(coordinate)
    return found


def test_every_family_has_a_page():
    rewritten = dict(REWRITTEN.findall(PAGES["rewrites"]))
    assert set(FAMILIES) == set(OWN_PAGES) | set(rewritten) and not set(OWN_PAGES) & set(rewritten)
    for name in FAMILIES:
        assert name in PAGES["README"]


@pytest.mark.parametrize("name", OWN_PAGES)
def test_the_table_of_coordinates_is_that_of_the_code(name):
    rows = ROW.findall(PAGES[name])
    assert ["level", *(coordinate for coordinate, *_ in rows)] == list(FAMILIES[name].names)
    for coordinate, level, cell, _ in rows:
        found, stated = found_coordinates()[name][coordinate], documented_values(cell)
        assert found, f"no example has {coordinate}"
        assert {each.level for each in found} == {int(level)}, coordinate
        assert {value for each in found for value in each.values} <= stated, coordinate
        if coordinate not in OF_A_CLASS and len({each.values for each in found}) == 1:
            assert set(next(iter(found)).values) == stated, coordinate


def test_rewritten_families_have_the_coordinates_of_their_main_loops():
    rewritten = dict(REWRITTEN.findall(PAGES["rewrites"]))
    for name, main in rewritten.items():
        assert FAMILIES[name].names == FAMILIES[main].names
        stated = {coordinate: documented_values(cell) for coordinate, _, cell, _ in ROW.findall(PAGES[main])}
        for coordinate, found in found_coordinates()[name].items():
            if coordinate != "level":
                assert {value for each in found for value in each.values} <= stated[coordinate], (name, coordinate)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_a_page_opens_with_who_it_is_for(page):
    assert re.match(r"# [^\n]+\n\nFor anyone who ", page.read_text(encoding="utf-8"))
