"""Wrong arguments of `matmul` and `explain`: the same sentence from both, about the public function."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels import explain, matmul

A = np.ones((4, 4), np.float32)
WRONG = {
    "a misspelt name": ((A, A), {"typo": 1}, TypeError, r"matmul\(\) got an unexpected keyword argument 'typo'"),
    "no second operand": ((A,), {}, TypeError, r"matmul\(\) missing .* argument"),
    "too many": ((A, A, None, 2), {}, TypeError, "too many positional arguments|takes from 2 to 3 positional"),
    "a list": ((A, [[1.0]]), {}, TypeError, "^b must be a numpy array, not list$"),
    "a bias that is a list": ((A, A), {"bias": [1.0] * 4}, TypeError, "^bias must be a numpy array, not list$"),
    "a list in the epilogue": (
        (A, A),
        {"epilogue": [("mul", [1])]},
        TypeError,
        "^mul must be a numpy array, not list$",
    ),
    "an epilogue that is a name": ((A, A), {"epilogue": "relu"}, TypeError, "^epilogue must be a list such as"),
    "an entry that is a number": ((A, A), {"epilogue": [2.0]}, TypeError, "^an epilogue operation is .* not 2.0$"),
    "an activation": ((A, A), {"activation": "swish"}, ValueError, "^activation must be one of relu, .*'swish'$"),
    "shapes": ((A, A[:3]), {}, ValueError, "^matmul: Input operand 1 has a mismatch"),
}


@pytest.mark.parametrize(("arguments", "keywords", "error", "words"), WRONG.values(), ids=WRONG)
def test_both_say_the_same(arguments, keywords, error, words, no_databases):
    with gensor_kernels.emulated("sm_87"):
        for call in (matmul, lambda *args, **more: explain(matmul, *args, **more)):
            with pytest.raises(error, match=words) as caught:
                call(*arguments, **keywords)
            for internal in ("operations", "_explain", "builtins", "unhashable", "unpack"):
                assert internal not in str(caught.value)


def test_explain_takes_the_calls_own_arguments(no_databases):
    out = np.empty((4, 4), np.float32)
    with gensor_kernels.emulated("sm_87"):
        why = explain(matmul, A, A, out, alpha=2, activation="relu", precision="ieee")
        assert why.tier == 3 and '"epilogue":["scale","relu"]' in why.workload
        assert explain(matmul, A, A, out=out).workload == explain(matmul, A, A).workload
        assert explain(matmul, A[:0], A).tier == 0
    with pytest.raises(TypeError, match=r"explain knows gensor_kernels\.matmul"):
        explain(np.matmul, A, A)
