"""How each operator of the ONNX standard is computed: by a function of this package, or by the array library."""

from . import arrays, attention, contractions, elementwise, resize, rows, windows

MODULES = (arrays, attention, contractions, elementwise, resize, rows, windows)
#: Lowerings by operator.
LOWERINGS = {operator: lowering for module in MODULES for operator, lowering in module.LOWERINGS.items()}
