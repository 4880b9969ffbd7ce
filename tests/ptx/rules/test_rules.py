"""Rules of the PTX ISA: a kernel that breaks one is caught by emulator and executor, its twin passes both."""

import re
from dataclasses import replace

import pytest

from tests.campaign_size import sample
from tests.ptx.rules.rules import HERE, RULES, UNSEEN, VALUES, Rule, found

RUNS = tuple(dict.fromkeys((rule.source, by) for by in ("emulator", "executor") for rule in RULES))


def outcome(rule: Rule, by: str) -> str:
    """Return the kind of the wrong twin's fault, or how it differs from the right one, which must pass."""
    fault, results = found(rule, "wrong", by)
    unwanted, wanted = found(rule, "right", by)
    assert not unwanted and len(wanted) == 1, f"{rule.name}_right: {unwanted}"
    if fault:
        return fault.split(":")[0]
    return VALUES if results != wanted else UNSEEN


@pytest.mark.usefixtures("needs_emulator")  # both are compiled by g++
@pytest.mark.parametrize(("source", "by"), sample(RUNS, 2))
def test_broken_rules_are_caught(source: str, by: str):
    outcomes = {rule: outcome(rule, by) for rule in RULES if rule.source == source}
    assert len(outcomes) > 10
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


def test_every_kernel_has_a_rule():
    text = "".join(path.read_text() for path in HERE.glob("*.cu"))
    kernels = set(re.findall(r"^(?:PAIR_|PAIRS_)?RULE\((\w+),", text, flags=re.MULTILINE))
    assert kernels == {rule.name for rule in RULES}
