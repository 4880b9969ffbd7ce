"""Rules of the PTX ISA: a kernel that breaks one is caught by emulator and executor, its twin passes both."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gensor_kernels.build.source import CUDA_FOLDER
from tests.campaign_size import sample
from tests.ptx.rules.rules import HERE, RULES, UNSEEN, VALUES, Rule, found

INTRINSICS = (
    *("intrinsics_ptx.cuh", "intrinsics_arithmetic.cuh", "dependent.cuh", "vote.cuh"),
    *("hopper.cuh", "hopper_products.cuh"),
)
TABLE = Path(__file__).resolve().parents[3] / "docs" / "verification.md"


def outcome(rule: Rule, by: str) -> str:
    """Return the kind of the wrong twin's fault, or how it differs from the right one, which must pass."""
    fault, results = found(rule, "wrong", by)
    unwanted, wanted = found(rule, "right", by)
    assert not unwanted and len(wanted) == 1, f"{rule.name}_right: {unwanted}"
    if fault:
        return fault.split(":")[0]
    return VALUES if results != wanted else UNSEEN


@pytest.mark.usefixtures("needs_emulator")  # both are compiled by g++
@pytest.mark.parametrize("by", ["emulator", "executor"])
@pytest.mark.parametrize("source", sample(("classic.cu", "hopper.cu", "wgmma.cu"), 1))
def test_broken_rules_are_caught(source: str, by: str):
    outcomes = {rule: outcome(rule, by) for rule in RULES if rule.source == source}
    assert len(outcomes) > 15
    assert {rule.name: found for rule, found in outcomes.items() if found not in getattr(rule, by).split("|")} == {}


@pytest.mark.usefixtures("needs_emulator")
@pytest.mark.parametrize("by", ["emulator", "executor"])
def test_a_copy_of_nothing_needs_no_aligned_address(by):
    fault, results = found(replace(RULES[0], name="copies_nothing"), "right", by)
    assert not fault and results == {bytes(8192)}


@pytest.mark.usefixtures("needs_emulator")
@pytest.mark.parametrize("by", ["emulator", "executor"])
def test_blocks_that_wait_for_one_another_are_resident_together(by):
    rule = next(each for each in RULES if each.name == "release_of_a_flag")
    assert found(rule, "right", by)[0] == ""
    assert found(replace(rule, together=False), "right", by)[0].split(":")[0] in ("deadlock", "race")


def section() -> str:
    """Return the rules of docs/verification.md."""
    return TABLE.read_text().partition("## Rules of the ISA\n")[2].partition("\n## ")[0]


def test_the_table_names_every_kernel():
    text = "".join(path.read_text() for path in HERE.glob("*.cu"))
    kernels = set(re.findall(r"^(?:PAIR_)?RULE\((\w+),", text, flags=re.MULTILINE))
    assert kernels == {rule.name for rule in RULES}
    assert not [name for name in sorted(kernels) if f"`{name}`" not in section()]


def test_the_table_names_every_intrinsic():
    named = re.findall(r"`(\w+)`", section().partition("| rule |")[0])
    text = "".join((CUDA_FOLDER / "core" / each).read_text() for each in INTRINSICS)
    intrinsics = set(re.findall(r"^ *DEVICE [\w<> ]+ (\w+)\(", text, flags=re.MULTILINE))
    assert len(intrinsics) > 60 and "wgmma" in intrinsics
    assert not {name for name in intrinsics if not name.startswith("mma_")} - set(named)
