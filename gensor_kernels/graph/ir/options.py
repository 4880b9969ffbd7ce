"""Options of `load`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gensor_kernels.operators.types.dtypes import array_dtype
from gensor_kernels.shown import shown

DTYPES, WEIGHTS = ("float16", "bfloat16"), ("int8", "int4")


class Options(NamedTuple):
    """How a model is computed."""

    #: 16-bit dtype in which float32 tensors are computed, by default that of the file.
    dtype: str | None = None
    #: Type in which constant weights of products are stored, by default that of the tensors.
    weights: str | None = None

    def validate(self) -> Options:
        """Return the options themselves; ValueError for unknown values."""
        for name, value, known in (("dtype", self.dtype, DTYPES), ("weights", self.weights, WEIGHTS)):
            if value is not None and value not in known:
                raise ValueError(f"{name} must be None, {' or '.join(map(repr, known))}, not {shown(value)}")
        return self

    def narrow(self) -> np.dtype[np.generic] | None:
        """Return the dtype in which float32 tensors are computed, or None for float32."""
        return None if self.dtype is None else np.dtype(array_dtype(self.dtype))


#: The dtypes of the file.
DEFAULT = Options()
