"""What `load` is asked for beside a file."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gensor_kernels.operators.types.dtypes import array_dtype
from gensor_kernels.shown import shown

DTYPES, WEIGHTS = ("float16", "bfloat16"), ("int8", "int4")


class Options(NamedTuple):
    """How a model is computed.

    Attributes
    ----------
    dtype : str, optional
        dtype of 16 bits in which float32 tensors are computed; None for the dtypes of the file.
    weights : str, optional
        Type that constant weights of products are stored in; None for that of the tensors.
    """

    dtype: str | None = None
    weights: str | None = None

    def validate(self) -> Options:
        """Return the options themselves; ValueError where there are none such."""
        for name, value, known in (("dtype", self.dtype, DTYPES), ("weights", self.weights, WEIGHTS)):
            if value is not None and value not in known:
                raise ValueError(f"{name} must be None, {' or '.join(map(repr, known))}, not {shown(value)}")
        return self

    def narrow(self) -> np.dtype[np.generic] | None:
        """Return the dtype in which float32 tensors are computed; None for float32."""
        return None if self.dtype is None else np.dtype(array_dtype(self.dtype))


#: As the file is.
DEFAULT = Options()
