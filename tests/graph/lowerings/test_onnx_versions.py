"""Calls of ONNX operators in every version compared with onnxruntime, and calls that were wrong once."""

import random
import warnings

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.errors import ModelError, UnsupportedError
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.lowerings import LOWERINGS
from gensor_kernels.graph.readers.onnx_file import Source
from tests import campaign_size

from ..models import proto
from .onnx_versions import RIGHT, WRONG, Case, definitions, model_of, older_cases, ours, outcome

PARTS = 4
#: Operators of this package, that no file has.
OWN = {"Elementwise", "GatedMatMul", "IntegerConv", "IntegerMatMul", "Layout", "MatMulAppend", "NewestRows"}
OWN |= {"Pointwise", "QuantisedLinear", "Rotary"}
#: Definitions whose form none of onnx's calls has: a number of tiles, scales as attributes, `paddings`.
APART = {("Tile", 1), ("Upsample", 1), ("Pad", 1)}


@pytest.fixture(autouse=True)
def emulator():
    with warnings.catch_warnings(), gensor_kernels.emulated("sm_87"):
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("part", range(PARTS))
def test_onnxs_own_calls_are_right_or_refused_in_older_versions(part):
    """A call of each definition; at night all calls, and each definition has a correct one."""
    cases = random.Random(campaign_size.SEED).sample(older_cases(), len(older_cases()))
    own = {(case.operator, case.version): case for case in cases}
    shares = sorted(own)[part::PARTS]
    drawn = [case for case in cases if (case.operator, case.version) in shares]
    drawn = drawn if campaign_size.FULL else [own[each] for each in shares]
    found = [(case, *outcome(case)) for case in drawn]
    assert not [f"{case}: {text}" for case, what, text in found if what == WRONG]
    assert sum(what == RIGHT for _, what, _ in found) > 0.85 * len(found)
    right = {(case.operator, case.version) for case, what, _ in found if what == RIGHT}
    assert not campaign_size.FULL or right == {*shares}


def test_every_definition_is_called():
    called = {(case.operator, case.version) for case in older_cases()}
    operators = {operator for operator, _ in called}
    every = {(operator, each.since_version) for operator in operators for each in definitions(operator)}
    assert LOWERINGS.keys() - OWN - {case.operator for case in FOUND} <= operators and every - called == APART


def floats(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype("float32")


def integers(*values):
    return np.array(values, "int64")


def scales(*values):
    return np.array(values, "float32")


IMAGE = floats(1, 2, 5, 4)
SHRUNK = scales(1, 1, 0.6, 1.5)
HEADS = [floats(1, 2, 3, 4), floats(1, 2, 5, 4), floats(1, 2, 5, 4)]
CHANNELS = [floats(2, 3, 4), floats(3)]
COORDINATES = "coordinate_transformation_mode"
DILATED = {"auto_pad": "SAME_LOWER", "dilations": [1, 2]}
CACHE = [np.zeros((2, 1, 8, 4), "float32"), floats(2, 1, 3, 4), integers(7, 3)]
BOXES, SCORES = 9 * np.abs(floats(2, 20, 4)), np.abs(floats(2, 3, 20))
ROIS, BINS = scales([1, 1, 6, 8], [0, 2, 9, 3]), {"output_height": 2, "output_width": 3}
WINDOW = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "ceil_mode": 1}
#: Calls that were wrong, circular caches, and forms that onnx's calls do not have.
FOUND = [
    *(Case("TensorScatter", 24, CACHE, {"mode": "circular"}, known=known) for known in (set(), {2})),
    Case("Attention", 23, HEADS, {"scale": 0.0}),
    Case("Attention", 24, [each.astype("float16") for each in HEADS], {"scale": 0.0}),
    *(Case("Upsample", 7, [IMAGE], {"mode": mode, "scales": [1.0, 1.0, 1.5, 2.5]}) for mode in ("linear", "nearest")),
    Case("Upsample", 9, [IMAGE, scales(1, 1, 1.5, 2)], {"mode": "linear"}, known={1}),
    *(Case("Resize", 10, [IMAGE, SHRUNK], {"mode": mode}, known={1}) for mode in ("linear", "nearest")),
    Case("Resize", 10, [IMAGE, scales(1, 1, 2.6, 1)], {"mode": "linear"}, known={1}),
    *(
        Case("Resize", 11, [IMAGE, scales(), SHRUNK], {COORDINATES: "tf_half_pixel_for_nn"}, known=known)
        for known in ({1, 2}, {2})
    ),
    *(Case(operator, 12, [IMAGE], {"axis": 1}) for operator in ("Hardmax", "Softmax", "LogSoftmax")),
    *(Case("Hardmax", version, [IMAGE], free=True) for version in (7, 12)),
    Case("Conv", 22, [IMAGE, floats(1, 2, 3, 2)], DILATED),
    Case("MaxPool", 22, [IMAGE], {"kernel_shape": [1, 3], "strides": [1, 3], "pads": [0, 1, 0, 2], "ceil_mode": 1}),
    *(
        Case("CumSum", 14, [scales(1, np.inf, 2), np.array(0)], {"exclusive": 1, "reverse": back}, known={1})
        for back in (0, 1)
    ),
    *(
        Case("Resize", 19, [IMAGE, None, None, integers(1, 2, 3, 9)], {"mode": "cubic", **more}, known={3})
        for more in ({"antialias": 1}, {"exclude_outside": 1}, {COORDINATES: "half_pixel_symmetric"})
    ),
    *(
        Case("GridSample", 20, [floats(2, 2, *[4, 3, 5][:rank]), 1.5 * floats(2, *[2, 3, 2][:rank], rank)], more)
        for rank, mode, padding in ((2, "cubic", "reflection"), (2, "nearest", "border"), (3, "linear", "reflection"))
        for more in ({"mode": mode, "padding_mode": padding, "align_corners": corners} for corners in (0, 1))
    ),
    *(
        Case("NonMaxSuppression", 11, [BOXES, SCORES, integers(4), scales(limit), scales(0.2)], {"center_point_box": 1})
        for limit in (0.0, 0.4)
    ),
    *(
        Case("RoiAlign", 16, [floats(2, 3, 9, 9), ROIS, integers(1, 0)], {"sampling_ratio": 0, "mode": mode, **BINS})
        for mode in ("avg", "max")
    ),
    *(Case("MaxPool", 12, [floats(2, 2, 5, 6)], {**WINDOW, "storage_order": order}, outputs=2) for order in (0, 1)),
    Case("MaxPool", 12, [np.arange(60, dtype="uint8").reshape(1, 2, 5, 6)], WINDOW),
    *(Case("LpPool", 18, [IMAGE], {"kernel_shape": [2, 3], "pads": [0, 1, 1, 1], "p": power}) for power in (1, 3)),
    *(Case("GlobalLpPool", 2, [IMAGE], {"p": power}) for power in (1, 2)),
    Case("AveragePool", 19, [IMAGE], {"kernel_shape": [2, 2], "dilations": [2, 1], "pads": [1, 1, 0, 1]}),
    *(
        Case(operator, 12, [floats(1, 2, 5, 4, 5)], {"kernel_shape": [2, 3, 2], "strides": [2, 1, 2], "ceil_mode": 1})
        for operator in ("MaxPool", "AveragePool")
    ),
    *(
        Case(operator, 11, [floats(1, 4, 4, 5, 5), floats(4, 2, 2, 3, 2), floats(4)], {"group": 2, **more})
        for operator in ("Conv", "ConvTranspose")
        for more in ({"strides": [2, 1, 2]}, {"dilations": [1, 1, 2], "pads": [1, 1, 0, 0, 1, 1]})
    ),
    Case(
        "DeformConv",
        19,
        [floats(2, 4, 7, 8), floats(6, 2, 3, 2), floats(2, 24, 3, 6), floats(6), floats(2, 12, 3, 6)],
        {"group": 2, "offset_group": 2, "strides": [2, 1], "dilations": [1, 2], "kernel_shape": [3, 2]},
    ),
    *(Case("STFT", 17, [floats(2, 40, 1), np.int64(5), floats(9)], {"onesided": half}, known={1}) for half in (0, 1)),
    *(Case("Unique", 11, [scales(3, 1, 3, 2, 1)], {"sorted": in_order}, outputs=4) for in_order in (0, 1)),
    Case("ReverseSequence", 10, [floats(3, 4, 2), integers(1, 3, 0, 2)], {"batch_axis": 1, "time_axis": 0}),
    Case("GatherElements", 13, [floats(3, 3), integers([0, -1])], {"axis": 1}),
    Case("GatherND", 13, [floats(3, 3), integers(1, -1)]),
    Case("MatMulInteger", 10, [np.full((2, 9), 100, "int8"), np.full((9, 2), 100, "int8")]),
    Case("Slice", 13, [floats(1, 2), integers(-9), integers(-9), integers(0), integers(-1)], known={1, 2, 3, 4}),
    *(Case(f"Reduce{each}", 20, [np.zeros((0, 2), "uint8"), integers(0)], known={1}) for each in ("Max", "Min")),
    Case("LayerNormalization", 17, [floats(2, 3).astype("float64"), np.ones(3)], outputs=3),
    Case("LayerNormalization", 17, [floats(2, 3), 1 + floats(2, 3), floats(2, 1)]),
    Case("RMSNormalization", 23, [floats(2, 3), 1 + floats(2, 3)]),
    *(
        Case(operator, 6, CHANNELS, more, meant=Case(operator, 9, [CHANNELS[0], CHANNELS[1][:, None]]))
        for operator, more in (("Add", {"broadcast": 1, "axis": 1}), ("PRelu", {}))
    ),
]


@pytest.mark.parametrize("case", FOUND, ids=lambda case: f"{case.operator}-{case.version}")
def test_calls_that_were_wrong_once_are_correct(case):
    assert outcome(case) == (RIGHT, "")


def test_scores_are_scaled_by_a_negative_number():
    """The standard takes a root of the scale, and the references give NaN."""
    q, k, v = HEADS
    shares = np.exp(-0.5 * q @ k.swapaxes(-1, -2))
    wanted = shares / shares.sum(-1, keepdims=True) @ v
    for dtype, most in (("float32", 1e-5), ("float16", 4e-3)):
        (found,) = ours(Case("Attention", 23, [each.astype(dtype) for each in HEADS], {"scale": -0.5}))
        assert np.abs(found - wanted).max() < most


VECTOR = [floats(2, 3), *(np.ones(3, "float32") for _ in range(4))]


@pytest.mark.parametrize(
    "case, says",
    [
        (Case("BatchNormalization", 6, VECTOR), "evaluation mode"),
        (Case("BatchNormalization", 7, VECTOR, {"spatial": 0}), "spatial=0"),
        (Case("BatchNormalization", 9, VECTOR, outputs=5), "evaluation mode"),
        (Case("Dropout", 6, [IMAGE]), "evaluation mode"),
        (Case("Tile", 5, [IMAGE, integers(2), integers(1)]), "newer version"),
        (Case("Resize", 13, [IMAGE, None, SHRUNK], {"nearest_mode": "round"}, known={2}), "'round' are unknown"),
    ],
)
def test_old_meanings_that_are_not_served_are_refused(case, says):
    with pytest.raises(UnsupportedError, match=says):
        ours(case)


def test_a_rank_that_is_needed_and_unknown_is_refused():
    model = model_of(Case("Add", 6, [floats(2, 3, 4), floats(3)], {"broadcast": 1, "axis": 1}))
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ModelError, match="needs the rank of 'x0'"):
        Source(model)


def test_nodes_of_branches_are_lifted_under_free_names():
    """A tensor has the first name that lifting would take."""
    branch = "branch () => (float[2, 2, 2] inner) { inner = Hardmax(lifted_0) }"
    text = f"yes = Constant<value = bool {{1}}>(); y = If<then_branch = {branch}, else_branch = {branch}>(yes)"
    made = proto(text, {"lifted_0": ("float32", (2, 2, 2))}, {"y": (2, 2, 2)}, opset=11)
    found = Model(Source(made), "branches")(floats(2, 2, 2))
    assert (found.reshape(2, 4).sum(axis=1) == 1).all()
