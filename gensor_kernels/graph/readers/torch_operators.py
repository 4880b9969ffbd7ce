"""Our PyTorch operators in exported programs: their translation to operators of ONNX."""

from __future__ import annotations

from typing import Any


def translations(torch: Any) -> dict[Any, Any]:
    """Return the functions of onnxscript by operator, empty where the operators are not registered."""
    return {}
