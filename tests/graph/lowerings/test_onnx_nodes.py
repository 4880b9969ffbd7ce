"""onnx's own node tests on the emulator: each is computed, or docs/reference/onnx.md lists its operator as refused."""

import re
import warnings
from collections import Counter
from functools import lru_cache
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases

import gensor_kernels
from gensor_kernels.errors import GensorError
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.lowerings.base import Run
from gensor_kernels.graph.readers.onnx_file import Source
from tests.campaign_size import sample

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "onnx.md").read_text()
#: Operators that have refused cases, by the page's table of reasons.
LISTED = re.findall(r"^\| [a-z][^|`]* \| ([A-Z]\w+(?:, \w+)*) \|$", PAGE, re.MULTILINE)
REFUSED = {name for names in LISTED for name in names.split(", ")}
PARTS = 32
of_this_release = pytest.mark.skipif(
    f"of onnx {'.'.join(onnx.__version__.split('.')[:2])}:" not in PAGE.replace("\n", " "),
    reason="docs/reference/onnx.md is about the node tests of another release of onnx",
)


@lru_cache
def by_operator():
    """Return the cases by the operator that each tests; an expanded case computes it by other operators."""
    cases = collect_testcases(None)
    plain, found = {case.name: case.model.graph.node[0].op_type for case in cases}, {}
    for case in cases:
        found.setdefault(plain[case.name.split("_expanded")[0]], []).append(case)
    return dict(sorted(found.items()))


def array(value):
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def assert_agree(found, wanted, case):
    """Compare a result as onnx's runner does: dtype, shape, and the tolerance of the case.

    A case whose expected value was rounded to 16 bits at every operator may differ from one that was rounded less often
    by two units in the last place. The expected values of Fourier transforms were computed in float32: their error is
    relative to the largest.
    """
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, (found.dtype, found.shape)
    if wanted.dtype.kind in "OSUb":
        assert (found == wanted).all()
        return
    rounding = {"float16": 2.0**-9, "bfloat16": 2.0**-6}.get(wanted.dtype.name, 0.0)
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    largest = np.abs(wanted).max(initial=0) if case.name.startswith(("test_dft", "test_stft")) else 0
    bounds = max(case.rtol, rounding), max(case.atol, 1e-7, 2.0**-23 * largest)
    np.testing.assert_allclose(found.astype(wide), wanted.astype(wide), *bounds)


def compute(case):
    """Run a case, and return what computes it: kernels, wholly or in part, the array library, or nothing."""
    with mock.patch.object(Run, "call", autospec=True, side_effect=Run.call) as called:
        try:
            model = Model(Source(case.model), case.name)
            for inputs, outputs in case.data_sets:
                found = model(*map(array, inputs))
                for each, wanted in zip(found if isinstance(found, tuple) else (found,), outputs, strict=True):
                    assert_agree(each, array(wanted), case)
        except GensorError as error:
            assert len(str(error)) > 20 and "\n" not in str(error)
            return "refused"
    return "kernels" if called.called else "library"


def outcomes(operators):
    """Return how many cases of some operators have each outcome, and the operators with refused ones."""
    count, refused, wrong = Counter(), set(), []
    with warnings.catch_warnings(), gensor_kernels.emulated("sm_87"):
        warnings.simplefilter("ignore")
        for operator in operators:
            for case in by_operator()[operator]:
                try:
                    what = compute(case)
                except Exception as error:
                    wrong.append(f"{case.name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
                    continue
                count[what] += 1
                refused |= {operator} if what == "refused" else set()
    assert not wrong, "\n".join(wrong)
    return count, refused


@of_this_release
@pytest.mark.parametrize("part", sample(range(PARTS), 4))
def test_cases_are_correct_or_of_an_operator_that_is_listed(part):
    operators = list(by_operator())[part::PARTS]
    assert outcomes(operators)[1] == REFUSED & {*operators}


@of_this_release
@pytest.mark.nightly
def test_the_documentation_counts_every_case():
    count, refused = outcomes(by_operator())
    passing = count["kernels"] + count["library"]
    text = f"passes {passing:,} of the {count.total():,} node tests of onnx {onnx.__version__.rpartition('.')[0]}: "
    text += f"{count['kernels']:,} by kernels, wholly or in part, and {count['library']:,} by the array library alone."
    assert text in PAGE.replace("\n", " ") and refused == REFUSED
