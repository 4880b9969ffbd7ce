"""For PyTorch: the backend "gensor" of `torch.compile`, and our functions as operators of `torch.library`.

torch is imported at first use.

register    make `torch.ops.gensor.*`
gensor      the backend, which `torch.compile(module, backend="gensor")` finds by its entry point
"""

from .backend import gensor
from .operators import register

__all__ = ["gensor", "register"]
