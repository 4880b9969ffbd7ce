"""How each operator of the ONNX standard is computed: by a function of this package, or by the array library."""

from . import arrays, contractions, elementwise, rows, windows

LOWERINGS = elementwise.LOWERINGS | arrays.LOWERINGS | contractions.LOWERINGS | windows.LOWERINGS | rows.LOWERINGS
