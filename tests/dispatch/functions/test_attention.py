"""attention: what does not fit; test_library.py and tests/public_cases draw calls."""

import numpy as np
import pytest

import gensor_kernels


@pytest.mark.parametrize(
    ("shapes", "more", "words"),
    [
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 6, 16)), {}, "k and v have the shapes"),
        (((1, 3, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {}, "no multiple of the 2"),
        (((2, 4, 16), (2, 5, 16), (2, 5, 16)), {}, r"q, k and v have the axes \(batch, heads, rows, head\)"),
        (((1, 2, 4, 32), (1, 2, 5, 16), (1, 2, 5, 16)), {}, "batch and head must be equal"),
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {"causal": "left"}, "causal is False, True"),
        (((1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 5, 16)), {"mask": np.ones((3, 5), bool)}, "does not broadcast"),
    ],
)
def test_what_does_not_fit(shapes, more, words):
    arrays = [np.zeros(shape, np.float16) for shape in shapes]
    with gensor_kernels.emulated("sm_87"), pytest.raises(ValueError, match=words):
        gensor_kernels.attention(*arrays, **more)
