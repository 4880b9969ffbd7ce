"""A board of a fleet: every product of a site database called through the public function, with next to nothing there.

No NVRTC and no tuner can be imported, and the runtime's database is the one that GENSOR_SITE_DB names. The GPU is the
strict double of the driver, which loads the database's cubins and checks their launches against the part's limits.
Prints what happened as one JSON object.
"""

import importlib.abc
import json
import os
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

BLOCKED = ("cuda.bindings", "cuda.core", "cuda.nvrtc", "gensor_tuner", "typer", "tqdm", "sqlite_utils")


class Blocker(importlib.abc.MetaPathFinder):
    def __init__(self, *names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if any(name == each or name.startswith(f"{each}.") for each in self.names):
            raise ModuleNotFoundError(f"{name} is not on this board", name=name)


def operand(cupy, dtype, shape, axes, unit):
    """An array of the axes `axes` whose elements along `unit` are neighbours; without a batch of one."""
    if unit == "s":  # every second element along the last axis
        return operand(cupy, dtype, [*shape[:-1], 2 * shape[-1]], axes, axes[-1])[..., ::2]
    if dtype.startswith("float8"):  # CuPy has bytes only
        dtype = "uint8"
    if dtype == "bfloat16":
        import ml_dtypes

        dtype = ml_dtypes.bfloat16
    last = axes.index(unit)
    turned = [*(i for i in range(len(shape)) if i != last), last]
    array = cupy.empty([shape[i] for i in turned], dtype).transpose([turned.index(i) for i in range(len(shape))])
    return array[0] if axes[0] == "batch" and shape[0] == 1 else array


def arguments(cupy, key):
    """(a, b), and the keywords, of the call that a record's key stands for."""
    sizes, dtypes, layout = key["sizes"], key["dtypes"], key["layout"]
    arrays = {}
    for name, axes in dict(a=("batch", "m", "k"), b=("batch", "k", "n"), c=("batch", "m", "n")).items():
        arrays[name] = operand(cupy, dtypes[name], [sizes[axis] for axis in axes], axes, layout[name])
    c, steps = arrays["c"], []
    for name in key["epilogue"]:
        if name in ("bias", "mul", "add"):
            shape = c.shape[-1:] if name == "bias" else c.shape
            steps.append((name, cupy.empty(shape, c.dtype)))
        else:
            steps.append({"scale": ("scale", 0.5), "mask": ("mask", cupy.empty(c.shape, bool), 0.0)}.get(name, name))
    keywords = {"epilogue": steps} if steps else {}
    keywords |= {f"dtype_{name}": dtypes[name] for name in "ab" if dtypes[name].startswith("float8")}
    if dtypes["c"] != dtypes["a"]:
        keywords["dtype"] = c.dtype
    return (arrays["a"], arrays["b"]), {**keywords, "precision": key["math"] if key["math"] == "tf32" else None}


@contextmanager
def board():
    """(machine, its device): what this process may import is what a board has; the device serves public calls."""
    sys.meta_path.insert(0, Blocker(*BLOCKED))
    from gensor_database import layers
    from gensor_kernels.dispatch.api import current
    from gensor_kernels.dispatch.plans.runtime import Runtime
    from gensor_kernels.dispatch.selection import load

    from .strict.machine import installed
    from .strict.surface import Surface

    layers.PRETUNED = Path(os.devnull) / "nothing ships here"
    with installed(["orin-nano-8gb"], surface=Surface) as machine:
        device = machine.device()
        runtime = Runtime(device, load.library(device.arch))
        current.lookup = lambda: runtime
        yield machine, device
        device.synchronize()


def main():
    with warnings.catch_warnings(record=True) as caught, board() as (machine, _):
        warnings.simplefilter("always")
        found = call_all(machine, int(sys.argv[1]))
    found["warnings"] = [str(each.message) for each in caught]
    found["python"] = sys.version_info[:2]
    found["modules"] = [name for name in sys.modules if name.startswith(BLOCKED)]
    print(json.dumps(found))


def call_all(machine, most):
    import cupy

    import gensor_kernels
    from gensor_database import Record, Store
    from gensor_kernels.build import nvrtc

    with Store.open(os.environ["GENSOR_SITE_DB"], readonly=True) as store:
        every = {row.key for row in store.rows(Record, arch="sm_87")}
    # Conjugated operands are those of other functions.
    keys = [key for key in sorted(every) if json.loads(key)["operator"] == "matmul" and "*" not in key]
    keys = keys[:most]
    found = {"asked": len(keys), "tiers": {}, "missed": [], "library": []}
    for key in keys:
        given, keywords = arguments(cupy, json.loads(key))
        said = gensor_kernels.explain(gensor_kernels.matmul, *given, **keywords)
        before = len(machine.context.launches)
        try:
            gensor_kernels.matmul(*given, **keywords)
        except (ImportError, cupy.cuda.runtime.CUDARuntimeError) as error:  # the library's call, without a library
            found["library"].append(f"{type(error).__name__}: {error}"[:200])
        found["tiers"][str(said.tier)] = found["tiers"].get(str(said.tier), 0) + 1
        if len(machine.context.launches) == before:
            found["missed"].append([key, said.reason])
    return found | {"loads": len(machine.context.modules), "compiled": nvrtc.compile_count()}


if __name__ == "__main__":
    main()
