"""Types of the public functions: mypy accepts arrays of NumPy, CuPy and PyTorch, and rejects nonsense."""

import re
from pathlib import Path

import pytest

import gensor_kernels

mypy = pytest.importorskip("mypy.api")

SNIPPET = """

from typing import Any

import numpy as np

import gensor_kernels


class Tensor:
    '''PyTorch's tensor, as its stubs describe it.'''

    @property
    def shape(self) -> tuple[int, ...]:
        raise NotImplementedError
    @property
    def dtype(self) -> object:
        raise NotImplementedError
    @property
    def ndim(self) -> int:
        raise NotImplementedError


def accepted(a: np.ndarray[Any, Any], cupys: Any, tensor: Tensor) -> None:
    gensor_kernels.matmul(a, a, out=a, activation="relu", precision="tf32", dtype=np.float32, alpha=2j)
    gensor_kernels.matmul(cupys, cupys, epilogue=["relu", ("scale", 2.0)], dtype="float32")
    gensor_kernels.matmul(tensor, tensor, bias=tensor, activation="swiglu")
    gensor_kernels.einsum("ij,jk", a, tensor)
    gensor_kernels.conv2d(a, a, padding="same", stride=(1, 2), layout="NHWC", precision="tf32")
    gensor_kernels.sum(tensor, axis=(0, 1))


def rejected(a: np.ndarray[Any, Any]) -> None:
    gensor_kernels.matmul("nonsense", a)  # line 1
    gensor_kernels.matmul(a, 3)  # line 2
    gensor_kernels.matmul(a, a, activation="typo")  # line 3
    gensor_kernels.matmul(a, a, precision="float8")  # line 4
    gensor_kernels.matmul(a, a, typo=1)  # line 5
    gensor_kernels.conv2d(a, a, layout="HWCN")  # line 6
    gensor_kernels.sum(a, axis="last")  # line 7
    gensor_kernels.attention(a, a, a, causal="left")  # line 8
"""


def test_mypy_accepts_arrays_and_rejects_nonsense(tmp_path, monkeypatch):
    path = tmp_path / "snippet.py"
    path.write_text(SNIPPET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MYPYPATH", str(Path(gensor_kernels.__file__).parents[1]))
    plain = ["--config-file=", "--follow-imports=silent", "--ignore-missing-imports"]
    told, errors, _ = mypy.run([*plain, "--cache-dir", str(tmp_path / "cache"), str(path)])
    wrong = {int(line) for line in re.findall(r"snippet\.py:(\d+): error", told)}
    marked = {number for number, line in enumerate(SNIPPET.splitlines(), 1) if "# line" in line}
    assert wrong == marked, told + errors
