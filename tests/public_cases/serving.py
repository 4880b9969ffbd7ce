"""Runs public functions on the emulator with one kernel per class, and counts what ran."""

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import gensor_kernels
from gensor_kernels.dispatch.api import current
from gensor_kernels.dispatch.plans.runtime import Runtime
from gensor_kernels.dispatch.selection import tiers
from gensor_kernels.dispatch.selection.library import Contents, Kernel, Library, Shelf, fits_class, generate
from gensor_kernels.dispatch.selection.predict import predict
from gensor_kernels.dispatch.selection.tiers import coarsen
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import Arch, lookup
from gensor_kernels.operators import operator
from gensor_kernels.operators.products import block_scaled
from gensor_kernels.operators.products.quantised import Quantised
from gensor_kernels.operators.rows.rows import RowOperator
from gensor_kernels.operators.types.dtypes import facts
from gensor_kernels.operators.types.workload import Workload
from tests.doubles.device import FakeDevice, emulate


class OnePerClass(Library):
    """A library with one generated kernel of every class, made at first use, for any sizes: few builds.

    Classes are coarse: see `_coarse`. Which of the families' default
    Programs serves a class is drawn by its name, so that classes differ in family, tile, split and copies.
    """

    def __init__(self, arch: Arch):
        super().__init__(Contents())
        self.arch, self.made = arch, dict[str, list[Kernel]]()

    def shelves(self, workload: Workload) -> list[Shelf]:
        """A shelf with a kernel that takes `workload`, made now where none of its class does."""
        coarse = _coarse(workload)
        assert fits_class(coarse, workload)
        made = self.made.setdefault(coarse.class_key(), [])
        fitting = [kernel for kernel in made if predict([kernel], workload, self.arch) != [float("inf")]]
        if not fitting:
            fitting = [generate(self._pick_program(coarse, workload), coarse, self.arch)]
            made += fitting
        return [Shelf(coarse, fitting[:1])]

    def _pick_program(self, coarse: Workload, workload: Workload) -> Program:
        programs = [p for f in Space(coarse, self.arch).families for p in f.family.starters(coarse, self.arch)]
        kernels = [generate(p, coarse, self.arch) for p in programs if not dict(p.values).get("epilogue_fixed")]
        legal = [k for k, s in zip(kernels, predict(kernels, workload, self.arch), strict=True) if s != float("inf")]
        assert legal, f"no default Program is legal for {workload.key()}"
        ordered = sorted({kernel.program.to_json(): kernel.program for kernel in legal}.items())
        return ordered[zlib.crc32(coarse.class_key().encode()) % len(ordered)][1]


def _coarse(workload: Workload) -> Workload:
    """The class that serves a Workload here. A third of those aligned to 16 bytes, by their names, are served by
    themselves; a ninth of all products by what is aligned to elements; the others by kernels for operands of any
    strides, where there are such."""
    coarse = coarsen(workload)
    formatted = isinstance(operator(coarse.operator), Quantised) and operator(coarse.operator).format
    if coarse.operator == block_scaled.NAME or formatted:  # their kernels read aligned rows alone
        return coarse
    drawn = zlib.crc32(coarse.class_key().encode()) % 9
    if drawn < 3 and all(width == 16 for _, width in coarse.alignment):
        return coarse
    single = tuple((name, facts(workload.dtype[name]).itemsize) for name, _ in coarse.alignment)
    general = replace(coarse, layout=tuple((name, _any_strides(coarse, each)) for name, each in coarse.layout))
    products = coarse.operator == "matmul"
    return replace(coarse if products and drawn == 3 else general, alignment=single)


def _any_strides(workload: Workload, layout: str) -> str:
    """The layout of any strides that takes this one; most operators have none."""
    if workload.operator == "matmul":
        return "s" + layout[1:]
    rows = isinstance(operator(workload.operator), RowOperator) and layout == "k"
    return "s" if rows or workload.operator.startswith("attention") else layout


def first_of(found: Any) -> Any:
    """The result of a call, of several the first."""
    return found[0] if isinstance(found, tuple) else found


class Served:
    """The device and library of some tests: `call` runs a function and checks who served it."""

    emulated = True

    def __init__(self, arch: str):
        self.device, self.library = FakeDevice(arch, emulate, emulated=True), OnePerClass(lookup(arch))
        self.runtime = Runtime(self.device, self.library)
        #: families by digest of default Programs, which serve operands that the class's kernel cannot read
        self.starters: dict[str, str] = {}

    def starter(self, program: Program, workload: Workload, arch: Arch) -> Kernel:
        """In place of the generator of default Programs: notes what it made."""
        kernel = generate(program, workload, arch)
        self.starters[kernel.code.digest] = program.family
        return kernel

    def call(self, function: Callable[..., Any], *arguments: Any, nothing: bool = False, **keywords: Any) -> Any:
        """The result; kernels were launched for it, unless there was `nothing` to compute.

        Results of calls that no kernel serves do not exist: the emulated device has no library to fall back to.
        """
        before = len(self.device.ran)
        found = function(*arguments, **keywords)
        count = len(self.device.ran) - before
        assert nothing or bool(count) == bool(first_of(found).size), f"{function}: {count} launches"
        return found

    def check(self) -> None:
        """Everything launched is a kernel generated for its class."""
        made = {kernel.code.digest: kernel.program.family for each in self.library.made.values() for kernel in each}
        made |= self.starters
        assert set(self.device.ran) <= set(made)


@contextmanager
def serving(patch: Any, arch: str = "sm_87") -> Iterator[Served]:
    """Within it, public functions take NumPy arrays and `Served` counts."""
    served = Served(arch)
    patch.setattr(current, "_emulator", lambda name: served.runtime)
    patch.setattr(tiers, "generate", served.starter)
    with gensor_kernels.emulated(arch):
        yield served
    served.check()
