"""contraction_weights_wgmma: Hopper's warpgroup products with B in registers (contraction_weights_wgmma.cu).

Legality and shared bytes mirror the header of the .cu file; a test compiles random legal Programs to keep it so.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np

from gensor_kernels.families.contraction import base as shared
from gensor_kernels.families.contraction import column
from gensor_kernels.families.contraction.base import (
    ContractionFamily,
    class_launches,
    common_constants,
    constants_of_stored,
)
from gensor_kernels.families.contraction.cost import assemble
from gensor_kernels.families.contraction.problem import Extents, extents
from gensor_kernels.families.contraction.wgmma import column as wgmma
from gensor_kernels.families.contraction.wgmma.cost import warpgroup_loop
from gensor_kernels.families.core.family import PRODUCTS, WARPGROUPS, Columns, Coordinate, Facts, Family, Launch
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.tensor_maps import ROW_BYTES, TensorMap, operand_extents, readable
from gensor_kernels.machine.arch import Arch
from gensor_kernels.machine.roofline import Terms
from gensor_kernels.operators.types.dtypes import element_bytes
from gensor_kernels.operators.types.geometry import Geometry
from gensor_kernels.operators.types.workload import Workload

from . import cost, rules

NAME = "contraction_weights_wgmma"
OUTPUTS = ("float16", "bfloat16", "float32")
#: Macros of common_constants that the kernel does not have: it reads rows of k, and stores through shared memory.
FIXED = ("A_LAYOUT", "B_LAYOUT", "EPILOGUE_STAGED")


class ContractionWeightsWgmma(ContractionFamily):
    """Matrix products of warpgroups with weights of 8 or 4 bits, or in TF32 with B contiguous along n."""

    name = NAME
    abi = 2
    source = f"{NAME}.cu"
    parts = staticmethod(cost.parts)
    rules = rules.RULES
    names = (*shared.GRID_NAMES, "stages", "consumers", *shared.EPILOGUE_NAMES)
    starter_blocks = ((128, 128), (64, 128), (16, 128), (256, 128), (64, 192), (32, 64), (128, 256), (16, 64))
    needs = (PRODUCTS, WARPGROUPS)
    streams = False
    shared = Family.shared
    #: the launch bound, part of the main loop, stays
    unbound = MappingProxyType({"epilogue_fixed": 0})

    def refusal(self, workload: Workload, arch: Arch) -> str | None:
        """Products with quantised weights, and plain ones in TF32, that tensor copies can read."""
        e = extents(workload)
        if e.in_blocks or e.is_formatted or not (e.scaled or _is_of_floats(e, workload)):
            return "the weights are neither integers nor multiplied in TF32, contiguous along n"
        outputs = OUTPUTS if e.scaled else OUTPUTS[-1:]
        if e.dtype["c"] not in outputs:
            return f"no warpgroup product with B in registers writes {e.dtype['c']}: ask for {', '.join(outputs)}"
        for operand in "ab":
            if e.unit[operand] == "s" or e.align[operand] < 16:
                return f"tensor copies read {operand} from addresses and rows that are multiples of 16 bytes only"
        return None

    def reads(self, workload: Workload, geometry: Geometry) -> bool:
        """Tensor copies go forward only."""
        e, sizes = extents(workload), operand_extents(geometry)
        weights = readable(geometry.b, sizes["b"], bool(e.scaled), 1 if e.scaled else e.bytes_a)
        return weights and readable(geometry.a, sizes["a"], False, e.bytes_a)

    def coordinates(self, workload: Workload, arch: Arch) -> tuple[Coordinate, ...]:
        """Block tile, ring, warpgroups that multiply, epilogue; a step of k is a row of a box of weights."""
        e = extents(workload)
        step = int(ROW_BYTES / e.bytes_b)
        route, *ends, bounds = shared.epilogue_coordinates(e)
        return (
            *shared.grid_coordinates(e, cost.BLOCKS_M, cost.BLOCKS_N, (step,)),
            Coordinate("stages", cost.STAGES, 1, "stages", "shared buffers"),
            Coordinate("consumers", cost.CONSUMERS, 2, "tile", "warpgroups that multiply"),
            route._replace(values=(1,)),  # sums are turned in shared memory
            *ends,
            bounds._replace(values=(1, 2, 3)),  # registers change hands only under a bound
        )

    def computed(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """Return the shared bytes and the warps of a block."""
        return {"SHARED_BYTES": self._memory(columns), "WARPS": columns[column.WARPS]}

    def defaults(self, columns: Columns, workload: Workload, arch: Arch) -> dict[str, np.ndarray]:
        """As many stages as fit; a warpgroup for every 64 columns, up to three."""
        m, n = columns["block_m"], columns["block_n"]
        like = np.ones_like(m)
        consumers = np.where(n == 256, 2, n // 64)
        one = {"stages": 1, "block_m": m, "block_n": n, "block_k": columns["block_k"]}
        room = arch.smem_per_block - cost.RING - cost.slab_bytes({"consumers": consumers})
        return {
            "stages": np.clip(room // cost.ring_bytes(one, extents(workload)), 2, 8),
            "consumers": consumers,
            "epilogue_staged": like,
            **shared.default_epilogue(like) | {"min_blocks": like},
        }

    @staticmethod
    def _memory(c: Columns) -> np.ndarray:
        """Return the dynamic shared bytes of a block."""
        memory: np.ndarray = cost.shared_bytes(c[column.RING], c[column.SLAB])
        return memory

    def registers(self, columns: Columns, workload: Workload, arch: Arch) -> np.ndarray:
        """Return the registers that the launch gives every thread."""
        return columns[wgmma.ENTRY]

    def terms(self, columns: Columns, workload: Workload, arch: Arch, facts: Facts | None = None) -> Terms:
        """Return the terms of the roofline."""
        c = columns
        loop = replace(
            warpgroup_loop(c, self._memory(c), c[column.STAGING_ROWS], c[column.K_STEPS], arch.heat("peak_f16")),
            request=c[wgmma.REQUEST],
            stalls=c[wgmma.ISSUING],
            share=c[wgmma.SHARE],
        )
        return assemble(c, extents(workload), arch, facts, lambda: loop)

    # ---- one Program

    def widest(self, program: Program, workload: Workload) -> Program:
        """Return the Program with the widest stores."""
        return program.replace(vector_c=extents(workload).align["c"])

    def branches(self, program: Program, workload: Workload) -> frozenset[str]:
        """Return the coverage names of contractions, and of refilled buffers."""
        return super().branches(program, workload) | {"refill"}

    def multiplies(self, program: Program, workload: Workload) -> tuple[frozenset[str], int]:
        """Products of 64 x block_m that a warp takes part in."""
        steps = program["block_k"] // cost.product_k(extents(workload))
        return frozenset({"HGMMA"}), int(cost.tiles(program.by_name) * steps)

    def constants(self, program: Program, workload: Workload) -> dict[str, int | str]:
        """Return the macro bindings of contraction_weights_wgmma.cu."""
        e = extents(workload)
        common = {name: value for name, value in common_constants(program, workload).items() if name not in FIXED}
        own: dict[str, int | str] = {"SCALED": e.scaled, "GROUP": e.group, "CONSUMERS": program["consumers"]}
        stored = constants_of_stored(e) if e.scaled else {"B_STORED": common["IN_TYPE"]}
        return common | stored | own

    def launches(self, program: Program, workload: Workload) -> tuple[Launch, ...]:
        """Return the product, whose operands are read by tensor copies, and for a split the reduction."""
        p, e = program.by_name, extents(workload)
        memory = int(cost.shared_bytes(cost.ring_bytes(p, e), cost.slab_bytes(p)))
        main, *rest = class_launches(program, workload, self.name, cost.threads(p), memory)
        a = TensorMap("a", False, e.bytes_a, p["block_m"], rounded=not e.scaled)
        if e.scaled:
            b = TensorMap("b", True, 1, p["block_n"], together=round(1 / element_bytes(e.dtype["b"])))
        else:
            b = replace(a, operand="b", rows=p["block_k"])
        return (replace(main, maps=(a, b)), *rest)


def _is_of_floats(e: Extents, workload: Workload) -> bool:
    """Return whether a product is plain, in TF32, and B contiguous along n, A along k."""
    special = e.window or e.gate or e.rows or e.norm or e.prologue
    return (
        workload.math == "tf32"
        and e.dtype["b"] == e.dtype["a"]
        and not special
        and ((e.unit["a"], e.unit["b"]) == ("k", "n"))
    )
