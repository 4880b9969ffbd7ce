"""The node tests in the wheel of onnx: what computes each, and why some are refused.

`python -m tests.graph.lowerings.onnx_nodes` runs them all and writes their table into docs/reference/onnx.md.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from textwrap import fill
from typing import Any
from unittest import mock

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from tqdm import tqdm

import gensor_kernels
from gensor_kernels.errors import GensorError
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.lowerings.base import Run
from gensor_kernels.graph.readers.onnx_file import Source

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "onnx.md"
#: Beginning and end of the table in DOCS.
BEGIN, END = "<!-- written by python -m tests.graph.lowerings.onnx_nodes -->\n", "<!-- end -->"
KERNELS, LIBRARY, REFUSAL = "kernels", "the array library", "refused: "

#: Operators of node tests that are not served, by reason.
NOT_SERVED = {
    "graphs within graphs": "If Loop Scan",
    "values that are no tensors": "OptionalGetElement OptionalHasElement "
    "SequenceEmpty SequenceInsert SequenceLength SequenceMap SplitToSequence",
    "text": "RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer",
    "training": "Adagrad Adam Momentum NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
    "random numbers": "Bernoulli RandomUniformLike",
    "classical machine learning": "ArrayFeatureExtractor Binarizer LabelEncoder TreeEnsemble",
    "recurrent networks": "CausalConvWithState GRU LSTM LinearAttention RNN",
    "signals": "BlackmanWindow DFT HammingWindow HannWindow MelWeightMatrix STFT",
    "images": "AffineGrid CenterCropPad Col2Im DeformConv GridSample ImageDecoder MaxUnpool NonMaxSuppression RoiAlign",
    "quantised tensors": "ConvInteger DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul QuantizeLinear",
    "not yet": "BitCast CumProd Det FlexAttention LpPool ReverseSequence SwiGLU Unique",
}
#: Beginnings of the names of cases in which constants and shapes take such operators out.
FOLDED = r"test_affine_grid_(2d|3d|2d_align_corners)_expanded|test_optional_has_element_empty_no_input"
REASONS = {operator: reason for reason, operators in NOT_SERVED.items() for operator in operators.split()}

#: Beginnings of the names of further cases that are refused, as regular expressions, by reason.
REFUSED = {
    "poolings and convolutions with three spatial axes": "test_averagepool_3d test_maxpool_3d test_convtranspose_3d",
    "training": "test_training_dropout test_batchnorm_example_training_mode test_batchnorm_epsilon_training_mode",
    "positions of maxima": "test_maxpool_with_argmax_2d",
    "a padding of more than half of the window": "test_averagepool_2d_pads$",
    "average poolings with dilation": "test_averagepool_2d_dilations",
    "poolings of integers": "test_maxpool_2d_uint8",
    "an output that is larger than the convolution's": "test_convtranspose_output_shape",
    "casts like another tensor that do not saturate": r"test_castlike_no_saturate_\w+(?<!_expanded)$",
    "casts to float8_e8m0fnu": "test_cast_e8m0_FLOAT_ test_cast_e8m0_FLOAT16_",
    "bfloat16 in einsum of one operand": "test_einsum_sum_bfloat16",
    "cubic interpolation": "test_resize_upsample_scales_cubic test_resize_downsample_scales_cubic "
    "test_resize_upsample_sizes_cubic test_resize_downsample_sizes_cubic",
    "filters against aliasing": "test_resize_downsample_scales_linear_antialias "
    "test_resize_downsample_sizes_linear_antialias",
    "regions of interest": "test_resize_tf_crop_and_resize",
    "sizes that keep the aspect ratio": "test_resize_upsample_sizes_nearest_not "
    "test_resize_downsample_sizes_nearest_not",
    "values that are no tensors": "test_identity_sequence test_identity_opt test_optional test_sequence "
    "test_split_to_sequence",
    "text": "test_equal_string",
}


@lru_cache
def cases() -> tuple[Any, ...]:
    return tuple(collect_testcases(None))


def excuse(case: Any) -> str | None:
    """Return the reason why a case is not served, or None if it must pass."""
    if re.match(FOLDED, case.name):
        return None
    operators = {node.op_type for node in case.model.graph.node}
    operators |= {node.op_type for function in case.model.functions for node in function.node}
    for operator in sorted(operators):
        if operator in REASONS:
            return REASONS[operator]
    for reason, names in REFUSED.items():
        if any(re.match(name, case.name) for name in names.split()):
            return reason
    return None


def array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def agree(found: Any, wanted: Any, case: Any) -> None:
    """Compare a result as onnx's runner does: dtype, shape, and the tolerance of the case.

    A case whose expected value was rounded to 16 bits at every operator may differ from one that was rounded less often
    by two units in the last place.
    """
    assert found.dtype == wanted.dtype and found.shape == wanted.shape, (found.dtype, found.shape)
    if wanted.dtype.kind in "OSUb":
        assert (found == wanted).all()
        return
    rounding = {"float16": 2.0**-9, "bfloat16": 2.0**-6}.get(wanted.dtype.name, 0.0)
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(
        found.astype(wide), wanted.astype(wide), rtol=max(case.rtol, rounding), atol=max(case.atol, 1e-7)
    )


@lru_cache
def by_operator() -> dict[str, list[Any]]:
    """Return the cases by the operator that each tests; an expanded case computes it by other operators."""
    plain = {case.name: case.model.graph.node[0].op_type for case in cases()}
    found: dict[str, list[Any]] = {}
    for case in cases():
        found.setdefault(plain[case.name.split("_expanded")[0]], []).append(case)
    return dict(sorted(found.items()))


def compute(case: Any) -> str:
    made: list[Any] = []
    real = Run.call

    def call(run: Run, function: Any, *args: Any, **keywords: Any) -> Any:
        made.append(function)
        return real(run, function, *args, **keywords)

    with mock.patch.object(Run, "call", call):
        model = Model(Source(case.model), case.name)
        for inputs, outputs in case.data_sets:
            found = model(*map(array, inputs))
            for each, wanted in zip(found if isinstance(found, tuple) else (found,), outputs, strict=True):
                agree(each, array(wanted), case)
    return KERNELS if made else LIBRARY


def outcome(case: Any) -> tuple[str, str | None]:
    reason, found, wrong = excuse(case), "wrong", None
    try:
        found = compute(case)
        if reason is not None:
            wrong = f"it passes now, but is listed as refused: {reason}"
    except GensorError as error:
        found, text = f"{REFUSAL}{reason}", str(error)
        if reason is None or len(text) < 20 or "\n" in text:
            wrong = f"{type(error).__name__}: {text}"
    except Exception as error:
        wrong = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return found, wrong and f"{case.name}: {wrong}"


def count_cases(operators: Iterable[str]) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Return how many cases of some operators are computed by what, as (row, operator), and what is wrong."""
    count: Counter[tuple[str, str]] = Counter()
    failures = []
    with warnings.catch_warnings(), gensor_kernels.emulated("sm_87"):
        warnings.simplefilter("ignore")
        for operator in operators:
            for case in by_operator()[operator]:
                row, wrong = outcome(case)
                count[row, operator] += 1
                failures += [wrong] if wrong else []
    return count, failures


def table(count: Counter[tuple[str, str]]) -> str:
    totals: Counter[str] = Counter()
    for (row, _), cases_of in count.items():
        totals[row] += cases_of
    passing, release = totals[KERNELS] + totals[LIBRARY], ".".join(onnx.__version__.split(".")[:2])
    text = (
        f"The emulator passes {passing:,} of the {count.total():,} node tests of onnx {release}: {totals[KERNELS]:,} "
        f"by kernels, wholly or in part, and {totals[LIBRARY]:,} by the array library alone. Refused with a sentence:"
    )
    lines = [fill(text, 120), "", "| reason | tests | operators |", "| --- | --- | --- |"]
    for row in sorted((row for row in totals if row.startswith(REFUSAL)), key=lambda row: (-totals[row], row)):
        operators = ", ".join(sorted(name for at, name in count if at == row))
        lines.append(f"| {row.removeprefix(REFUSAL)} | {totals[row]} | {operators} |")
    return "\n".join(lines) + "\n"


def documentation() -> str:
    return DOCS.read_text().partition(BEGIN)[2].partition(END)[0]


def main() -> None:
    count, failures = count_cases(tqdm(by_operator()))
    if failures:
        raise SystemExit("\n".join(failures))
    head, begin, rest = DOCS.read_text().partition(BEGIN)
    DOCS.write_text(f"{head}{begin}{table(count)}{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
