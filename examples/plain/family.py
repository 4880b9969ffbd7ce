"""plain: one output of a product per thread, for small products of any strides (contraction_plain.cu)."""

import numpy as np

from gensor_kernels.families.contraction.cases import contraction_cases, impossible_edges
from gensor_kernels.families.contraction.problem import extents
from gensor_kernels.families.core.family import PRODUCTS, Coordinate, Family, Launch
from gensor_kernels.families.core.macros import macro_token
from gensor_kernels.families.core.params import tiling
from gensor_kernels.families.core.program_batch import complete
from gensor_kernels.machine.roofline import Terms, residency

STARTERS = [{"block_m": m, "block_n": n} for m, n in ((8, 32), (32, 8), (16, 16), (4, 32))]


class Plain(Family):
    """Products of matrices, an output per thread."""

    name, abi, source = "contraction_plain", 1, "contraction_plain.cu"
    names = ("level", "block_m", "block_n")
    needs = (PRODUCTS,)

    def refusal(self, workload, arch):
        """Serve products of float32 and float64 matrices."""
        e = extents(workload)
        if not e.is_plain or e.gate or workload.accumulator not in ("float32", "float64"):
            return f"{workload.operator} is no plain product of real matrices"
        return "an operand is stored narrower than it is multiplied" if e.is_widened else None

    def coordinates(self, workload, arch):
        """Return the block tile."""
        return (
            Coordinate("level", (0, 1, 2), 0, "cache", "memory level the construction has reached"),
            Coordinate("block_m", (1, 2, 4, 8, 16, 32), 0, "tile", "rows of C per block"),
            Coordinate("block_n", (1, 2, 4, 8, 16, 32), 0, "tile", "columns of C per block"),
        )

    def legal(self, columns, workload, arch):
        """Apply the static_assert of contraction_plain.cu."""
        threads = columns["block_m"] * columns["block_n"]
        return (threads % 32 == 0) & (threads <= arch.threads_per_block)

    def registers(self, columns, workload, arch):
        """Estimate a thread's registers."""
        return np.full(len(columns["block_m"]), 40, np.float32)

    def terms(self, columns, workload, arch, facts=None):
        """Return the terms of the roofline; an iteration is one k.  The estimate of registers stands (no ``facts``)."""
        e, m, n = extents(workload), columns["block_m"] * 1.0, columns["block_n"] * 1.0
        like, warps, registers = np.ones(len(m)), m * n / 32, self.registers(columns, workload, arch)
        values = {
            "blocks": e.batch * np.ceil(e.m / m) * np.ceil(e.n / n), "warps": warps, "iterations": e.k * like,
            "residents": np.maximum(residency(warps, registers, 0 * like, arch), 1), "registers": registers,
            "math": like * 128 / arch.rate("fma_f64" if e.bytes_acc == 8 else "fma_f32"), "multiplies": like,
            "issue": 16 * like, "wavefronts": warps * (m + n / 32), "chain": arch.l2_latency * like,
            "l2_bytes": m * e.bytes_a + n * e.bytes_b, "dram_bytes": (e.whole_a + e.whole_b) * e.batch * like,
            "in_flight": like, "exposed": 0.1 * like, "prologue": 200 * like, "epilogue": 200 * like,
            "epilogue_busy": warps * 10, "epilogue_bytes": e.batch * e.m * e.n * e.bytes_c * like,
            "after": 0 * like, "shared_bytes": 0 * like,
        }  # fmt: skip
        return Terms(**{name: value.astype(np.float32) for name, value in values.items()})

    def starters(self, workload, arch):
        """Return legal default completions of some block tiles."""
        return complete(self, STARTERS, workload, arch, registers=255)

    # ---- one Program

    def constants(self, program, workload):
        """Return the macro bindings of contraction_plain.cu."""
        e = extents(workload)
        types = {"IN_TYPE": e.multiplied, "OUT_TYPE": e.dtype["c"], "ACC_TYPE": workload.accumulator}
        tile = {"BLOCK_M": program["block_m"], "BLOCK_N": program["block_n"], "C_UNIT": int(e.unit["c"] != "s")}
        return {name: macro_token(dtype) for name, dtype in types.items()} | tile | {"EPILOGUE_CODES": 0}

    def launches(self, program, workload):
        """Return the one launch."""
        e, m, n = extents(workload), program["block_m"], program["block_n"]
        return (Launch(self.name, grid=e.batch * -(-e.m // m) * -(-e.n // n), block=m * n, shared_bytes=0),)

    def tile(self, program):
        """Return what arguments and verification cases need to know."""
        return {"m": program["block_m"], "n": program["block_n"], "k": 1, "stages": 1, "split": 1, "raster": 1}

    def tiling(self, program, geometry):
        """Return the tiles of C."""
        return tiling(self.tile(program), geometry)

    def cases(self, program, workload, epilogue):
        """Return the problems that contractions are verified on."""
        return contraction_cases(workload, self.tile(program), epilogue)

    def branches(self, program, workload):
        """Return the coverage names that a verification must have counted."""
        return frozenset({"full_tile", "edge_m", "edge_n"}) - impossible_edges(workload, self.tile(program))


PLAIN = Plain()
