"""CuPy's own switch for TF32 products: `CUPY_TF32`, or `cupy._core.set_compute_type`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

FLOAT32 = np.dtype(np.float32)


def compute_types(core: Any, constants: Any) -> tuple[Callable[[Any], Any], Any, Callable[[bool], None]]:
    """(CuPy's query of its switch, the state that means TF32, a function that sets it).

    `core` is `cupy._core`, `constants` its module with the states. A CuPy without that query has the environment
    variable only, which nothing can be set against.
    """
    if not hasattr(core, "get_compute_type"):
        return lambda dtype: os.environ.get("CUPY_TF32", "0").strip() not in ("", "0"), True, lambda on: None
    states = {True: constants.COMPUTE_TYPE_TF32, False: constants.COMPUTE_TYPE_DEFAULT}
    return core.get_compute_type, states[True], lambda on: core.set_compute_type(FLOAT32, states[on])
