"""Which results of a Workload its tolerance admits."""

import numpy as np

from gensor_kernels.operators import operator
from gensor_kernels.operators.tolerance import base as tolerance_base
from gensor_kernels.operators.types.dtypes import decode, encode


def verdicts(workload, results):
    """Whether each of the results, by name, agrees; `results` makes them of normal operands, rounded to float16."""
    rng, declared = np.random.default_rng(1), operator(workload.operator)
    names = declared.operands(workload)[:-1]
    arrays = {each.name: encode("float16", rng.standard_normal(each.shape)) for each in names}
    expected = declared.expect(workload, arrays)
    found = results(**{name: np.float32(decode("float16", array)) for name, array in arrays.items()})
    return {
        name: tolerance_base.check(np.float32(value).reshape(expected.values.shape), expected).ok
        for name, value in found.items()
    }


def sum_in(dtype, a, b):
    """a @ b, one product after the other, as a kernel sums."""
    total = np.zeros((len(a), b.shape[1]), dtype)
    for column, row in zip(a.T.astype(dtype), b.astype(dtype), strict=True):
        total += column[:, None] * row
    return total
