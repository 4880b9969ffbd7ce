"""onnx's own node tests, on the emulator."""

import re

import onnx
import pytest

from tests.campaign_size import sample

from .onnx_nodes import BEGIN, DOCS, REASONS, REFUSED, by_operator, cases, count_cases, documentation, excuse, table

PARTS = 32
#: The lists and the table are those of one release of onnx.
of_this_release = pytest.mark.skipif(
    f"of onnx {'.'.join(onnx.__version__.split('.')[:2])}:" not in DOCS.read_text(),
    reason="docs/reference/onnx.md counts the node tests of another release of onnx",
)


@pytest.mark.parametrize("part", sample(range(PARTS), 4))
def test_cases_are_correct_or_refused_for_a_listed_reason(part):
    _, wrong = count_cases(list(by_operator())[part::PARTS])
    assert not wrong, "\n".join(wrong)


@of_this_release
@pytest.mark.nightly
def test_the_documentation_counts_every_case():
    """`python -m tests.graph.lowerings.onnx_nodes` writes the table."""
    count, _ = count_cases(by_operator())
    assert BEGIN in DOCS.read_text() and documentation() == table(count)
    assert count.total() == len(cases())


@of_this_release
def test_no_entry_of_the_lists_is_stale():
    names = [case.name for case in cases()]
    known = {node.op_type for case in cases() for node in case.model.graph.node}
    known |= {node.op_type for case in cases() for each in case.model.functions for node in each.node}
    assert REASONS.keys() <= known
    patterns = [each for entry in REFUSED.values() for each in entry.split()]
    assert not [each for each in patterns if not any(re.match(each, name) for name in names)]
    assert sum(excuse(case) is None for case in cases()) > 0.7 * len(cases())
