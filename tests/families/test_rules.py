"""Tables of rules: each is stated once, and what is taken for given holds for every legal Program."""

import re
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest

from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.rules import Bound, Names, Rule, Rules, in_cpp
from gensor_kernels.families.core.source import files
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.operators.types.workload import Workload
from tests.campaign_size import sample

from .lattices import random_legal
from .workloads import contract, space

TABLES = {
    name: import_module(module)
    for name, family in FAMILIES.items()
    if find_spec(module := f"{type(family).__module__.rpartition('.')[0]}.rules") and name in family.source
}
every = pytest.mark.parametrize("name", TABLES)


@every
def test_each_rule_is_stated_once(name):
    family, texts = FAMILIES[name], {f'"{rule.text}"' for rule in TABLES[name].RULES.table if rule.asserted}
    asserts = re.findall(r'static_assert\(.*, ("[^"]*")\);', family.text.partition(f'"{name}.rules"')[2])
    assert {*asserts} == texts
    written = "".join(path.read_text() for path in files().values())
    assert not [text for text in texts if text in " ".join(written.split())]


def macros(name: str, program: Program, workload: Workload) -> dict[str, int | str]:
    """Return the macros that a Program binds, and the defaults of the others."""
    source = FAMILIES[name].text
    found = dict(re.findall(r"#ifndef (\w+)\n#define \1\b[\s\\]+(\w+)", source))
    found |= FAMILIES[name].constants(program, workload)
    for macro, value in found.items():
        value = found.get(str(value), value)  # by default of another macro's type
        found[macro] = int(value) if str(value).isdigit() else value
    return found


@every
def test_legal_programs_bind_macros_of_which_the_static_asserts_hold(name):
    family, rules = FAMILIES[name], TABLES[name].RULES
    asserts = [(rule, operand) for rule in rules.table if rule.asserted for operand in rule.of or ("",)]
    for index in sample(range(len(contract(name).served)), 4):
        lattice = space(name, index)
        of = lattice.workload, lattice.arch
        for program in map(lattice.program, random_legal(lattice, 20, seed=index)):
            columns = lattice.columns(lattice.point(program)[None])
            computed = {key: value[0] for key, value in family.computed(columns, *of).items()}
            known = macros(name, program, lattice.workload) | computed
            names = Names(Bound(rules, known), {key: np.array(value) for key, value in program.values})
            for rule, operand in asserts:
                assert names.holds(rule, operand), (rule, program.to_json())


@pytest.mark.parametrize(
    ("condition", "values", "holds", "cpp"),
    [
        ("A % 16 == 0 and B // 8 != 1", {"A": [16, 8, 32], "B": [8, 16, 24]}, [0, 0, 1], "A % 16 == 0 && B / 8 != 1"),
        ("not (A or B)", {"A": [0, 0, 1], "B": [0, 1, 0]}, [1, 0, 0], "!(A || B)"),
        ("A - (B - C) == 2 * (A + B)", {"A": [1], "B": [0], "C": [1]}, [1], "A - (B - C) == 2 * (A + B)"),
        ("A or (B and C)", {"A": [0, 1], "B": [1, 0], "C": [1, 0]}, [1, 1], "A || (B && C)"),
        ("(A if B else C) <= 4", {"A": [4, 9], "B": [1, 0], "C": [9, 4]}, [1, 1], "(B ? A : C) <= 4"),
        ("A if B else B if C else A == 2", {"A": [2, 2], "B": [0, 0], "C": [0, 1]}, [1, 0], "B ? A : C ? B : A == 2"),
        ("same_type(T, i8) == (A >= 2)", {"T": "i8", "A": [1, 2]}, [0, 1], "same_type<T, i8> == (A >= 2)"),
        ("B == 0 or A % B == 0", {"A": [1, 2], "B": 0}, [1, 1], "B == 0 || A % B == 0"),
        ("TWO * A == TileB.LINES", {"A": [1, 2], "B_ROWS": [8, 9]}, [1, 0], "2 * A == TileB::LINES"),
        ("minimum(A, 3) == sizeof(T)", {"A": [2, 9], "T": "half_t"}, [1, 0], "minimum(A, 3) == sizeof(T)"),
    ],
)
def test_conditions_as_masks_and_as_cpp(condition, values, holds, cpp):
    rule = Rule("", condition)
    rules = Rules((rule,), {"B_ROWS": "b_rows"}, of_operand={"LINES": "ROWS // 4"}, constants={"TWO": 2})
    columns = {name.lower(): np.array(value) for name, value in values.items() if isinstance(value, list)}
    known = {name: value for name, value in values.items() if not isinstance(value, list)}
    found = Names(Bound(rules, known), columns).holds(rule)
    assert np.broadcast_to(found, len(holds)).tolist() == [bool(each) for each in holds]
    assert in_cpp(condition, rules.constants) == cpp
    assert rule.row(rules.constants) == f"|  | `{cpp.replace('|', chr(92) + '|')}` |"
