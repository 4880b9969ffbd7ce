"""That nothing is left out: every public function is drawn, often enough, and what serves no kernel is noticed."""

import inspect

import numpy as np
import pytest

import gensor_kernels

from .counts import CASES
from .drawing import FORMS, Cases, Draw
from .serving import serving

#: Public functions that compute nothing; `linear` is drawn with weights of `prepack`.
OTHERS = {
    "accelerate",
    "counters",
    "deterministic",
    "emulated",
    "explain",
    "from_torch",
    "load",
    "prepack",
    "record",
    "refresh",
    "warmup",
}


def test_every_public_function_is_drawn_and_3000_calls_together():
    public = {name for name in gensor_kernels.__all__ if inspect.isfunction(getattr(gensor_kernels, name))}
    assert set(CASES) == public - OTHERS
    assert sum(CASES.values()) >= 3000 and min(CASES.values()) >= 90


def test_forms_are_what_they_are_called():
    draw = Draw(1)
    values = draw.rng.standard_normal((6, 7)).astype(np.float32)
    seen = {form: draw.laid_out(values, form) for form in FORMS}
    assert all(np.array_equal(array, values) for form, array in seen.items() if form != "broadcast")
    assert seen["contiguous"].ctypes.data % 16 == 0 and seen["unaligned"].ctypes.data % 16 == 4
    assert min(seen["negative strides"].strides) < 0 and 0 in seen["broadcast"].strides
    assert not seen["non-contiguous"].flags.forc and not seen["odd strides"].flags.forc


def test_a_result_without_a_launch_is_noticed(monkeypatch):
    with serving(monkeypatch) as served:
        with pytest.raises(AssertionError, match="0 launches"):
            served.call(np.sum, np.ones(3))
        with pytest.raises(AssertionError, match="1 launches"):
            served.call(lambda x: gensor_kernels.sum(x)[None][:0], np.ones(3, np.float32))


def test_a_class_that_did_not_occur_is_noticed():
    cases = Cases("any", 100)
    cases.run(lambda draw: draw.array((draw.extent(), 3), "float32"))
    cases.require("odd strides", "size one", "nan", "inf")
    with pytest.raises(AssertionError, match="int8"):
        cases.require("int8")
