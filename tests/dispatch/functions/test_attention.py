"""attention: arguments that do not fit, layouts of FlashAttention, sizes on the device, calls without a kernel.

tests/public_cases draws calls, sequences and pages among them.
"""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels.dispatch.api.current import current_runtime
from gensor_kernels.dispatch.functions import attention
from gensor_kernels.dispatch.functions.attention_sequences import SEQUENCES

ONE, MORE, Q, PAGES = (1, 2, 4, 16), (1, 2, 5, 16), (1, 2, 6, 16), (4, 2, 8, 16)
FIT = (ONE, MORE, MORE)
TABLE = {"block_table": [[0, 1], [2, 3]]}
AXES = r"q, k and v have the axes \(batch, heads, rows, head\)"
#: (shapes of q, k and v, keywords, words of the ValueError)
REFUSED = [
    ((ONE, MORE, Q), {}, "k and v have the shapes"),
    (((1, 3, 4, 16), MORE, MORE), {}, "no multiple of the 2"),
    (((2, 4, 16), (2, 5, 16), (2, 5, 16)), {}, AXES),
    (((1, 2, 4, 32), MORE, MORE), {}, "batch and head must be equal"),
    (FIT, {"causal": "left"}, "causal is False, True"),
    (FIT, {"mask": np.ones((3, 5), bool)}, "does not broadcast"),
    (FIT, {"window": (1,)}, r"window is a pair \(left, right\)"),
    (FIT, {"window": 4}, r"window is a pair \(left, right\)"),
    (FIT, {"window": (-2, 0)}, "a side of window must be -1 or more"),
    (FIT, {"softcap": -1.0}, "softcap is a number above 0"),
    (FIT, {"softcap": np.inf}, "softcap is a number above 0"),
    ((Q, Q, Q), {"offsets": [4, 2]}, "sequence 1 ends at row 2, and begins at row 4"),
    ((Q, Q, Q), {"offsets": [4], "sizes": [4]}, "offsets or sizes, one of them"),
    ((Q, Q, Q), {"sizes": [2, 4], "key_sizes": [1] * 3}, r"key_offsets and key_sizes are integers of the shape \(2,\)"),
    ((Q, Q, Q), {"key_sizes": [6]}, "go with offsets or sizes, or with a block_table"),
    ((Q, Q, Q), {"sizes": [6], "mask": np.ones((6, 6), bool)}, "a mask is for sequences of one length"),
    (((2, *Q[1:]), Q, Q), {"sizes": [6]}, "k of shape|batch of 1|batch and head must be equal"),
    (((2, *Q[1:]), (2, *Q[1:]), (2, *Q[1:])), {"sizes": [6]}, "have a batch of 1, not 2"),
    ((Q, PAGES, PAGES), {"sizes": [2, 4], **TABLE}, "key_sizes are the numbers of keys in the cache"),
    ((Q, PAGES, PAGES), {"sizes": [2, 4], "key_sizes": [3], **TABLE}, r"of the shape \(2,\)"),
    ((Q, PAGES, PAGES), {"sizes": [6], "key_sizes": [3], **TABLE}, r"block_table are integers of the shape"),
    ((Q, PAGES, (5, 2, 8, 16)), {"sizes": [2, 4], "key_sizes": [3, 4], **TABLE}, "as many pages each"),
    ((Q, (4, 2, 8, 32), (4, 2, 8, 32)), {"sizes": [2, 4], "key_sizes": [3, 4], **TABLE}, "head must be equal"),
    ((Q[1:], Q, Q), {"sizes": [2, 4]}, AXES),
]


@pytest.mark.parametrize(("shapes", "keywords", "words"), REFUSED)
def test_arguments_that_do_not_fit(shapes, keywords, words):
    arrays = [np.zeros(shape, np.float16) for shape in shapes]
    with gensor_kernels.emulated("sm_87"), pytest.raises(ValueError, match=words):
        gensor_kernels.attention(*arrays, **keywords)


def test_a_mask_is_of_booleans_or_floats(emulated):
    q = np.ones((1, 2, 4, 16), np.float16)
    for dtype in ("int8", "int64", "complex64"):
        with pytest.raises(TypeError, match=rf"mask is of bool .* or float .* {dtype}"):
            gensor_kernels.attention(q, q, q, np.ones((4, 4), dtype))


def test_calls_without_a_kernel_go_to_the_library():
    q, pages = np.zeros(Q, np.float16), np.zeros((4, 2, 12, 16), np.float16)
    with gensor_kernels.emulated("sm_87"):
        with pytest.raises(gensor_kernels.UnsupportedError, match="soft cap of 1000"):
            gensor_kernels.attention(q, q, q, softcap=1000)
        with pytest.raises(gensor_kernels.UnsupportedError, match="powers of two"):
            gensor_kernels.attention(q, pages, pages, sizes=[2, 4], key_sizes=[3, 4], **TABLE)
        pages = np.zeros(PAGES, np.float16)
        with pytest.raises(gensor_kernels.UnsupportedError, match="heads of another size"):
            gensor_kernels.attention(q, pages, pages[..., :8], sizes=[2, 4], key_sizes=[3, 4], **TABLE)


@pytest.mark.parametrize("ends", [[-5, 40, 3], [30, 10, 20], [2**31 - 1, -(2**31), 7]])
def test_invalid_ends_and_pages_on_the_device_read_no_other_memory(ends):
    """As on a GPU, where sizes are not checked before the launch."""
    q, k = np.ones((1, 2, 20, 32), np.float16), np.ones((1, 1, 30, 32), np.float16)
    pages, ends = np.ones((4, 1, 8, 32), np.float16), np.array(ends, np.int32)
    table = np.array([[2**31 - 1, -1], [4, 99], [-(2**31), 3]], np.int32)
    for split in (False, True):
        ragged = attention.Parameters(True, None, ragged=True, paged=split)
        more = (ends, ends[::-1].copy(), *((table,) if split else ()))
        with gensor_kernels.emulated("sm_87"):
            own = pages if split else k
            found = current_runtime().serve(SEQUENCES, (q, own, own, *more), ragged)
        assert found.shape == q.shape


def test_no_elements():
    q, k = np.ones((1, 2, 6, 16), np.float16), np.ones((1, 2, 0, 16), np.float16)
    with gensor_kernels.emulated("sm_87"):
        assert not gensor_kernels.attention(q, k, k, sizes=[2, 4], key_sizes=[0, 0]).any()
        assert not gensor_kernels.attention(q, q, q, sizes=[]).any()
        assert gensor_kernels.attention(q[:, :, :0], q, q, sizes=[0, 0], key_sizes=[1, 2]).shape == (1, 2, 0, 16)
