"""Models of every served operator, changed at random: a result or an error of the package, nothing else."""

import numpy as np
import pytest

from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.graph.execution.model import load
from tests.campaign_size import SEED

from ..models import proto
from .mutated_models import draw_file, outcome

#: Mutated models of a push; python -m tests.graph.readers.mutated_models draws many.
FEW = 70


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("emulator")
def test_mutated_models_end_in_a_result_or_an_error_of_the_package():
    raw, computed = [], 0
    for number in range(FEW):
        case, data = draw_file(number, SEED)
        what, text = outcome(data)
        computed += what == "computed"
        raw += [] if what else [f"{number}: {case}: {text}"]
    assert not raw and computed > 5


X = np.ones((2, 4), np.float32)


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize(
    ("text", "k", "opset", "reason"),
    [
        ("[node] y, i = TopK(x, k)", [-1], 20, r"node 'node' \(TopK\)"),
        ("[node] y, z = Split<axis = 1>(x, k)", [3, 3], 20, r"node 'node' \(Split\)"),
        ("y = Relu(x)", [], 9999, "operators of version 9999 of the standard"),
        ("c = Constant(); y = Add(x, c)", [], 20, "no valid ONNX model"),
        ("c = Constant<value_int = 1, value_float = 1.0>(); y = Add(x, c)", [], 20, "no valid ONNX model"),
        ("[node] y = Pad(x, k)", [0, 2**40, 0, 0], 20, r"node 'node' \(Pad\)"),
    ],
)
def test_models_that_are_not_valid_are_refused(text, k, opset, reason):
    found = proto(text, {"x": ("float32", ("n", 4))}, ["y"], {"k": np.array(k)} if k else {}, opset)
    with pytest.raises((ModelError, UnsupportedError), match=reason):
        load(found)(X)
