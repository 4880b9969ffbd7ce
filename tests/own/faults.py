"""Faults planted in the example kernels, and what verification has to report of each."""

import runpy
from dataclasses import dataclass
from pathlib import Path

from gensor_kernels.own.configuration import Configuration

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "own"
KERNELS = runpy.run_path(str(EXAMPLES / "kernels.py"))

#: A configuration, sizes at which blocks have edges, and the reference, by kernel.
CASES = {
    "convolution": (
        {"block_size_x": 16, "block_size_y": 4, "tile_size_x": 2, "tile_size_y": 1, "use_padding": 1, "read_only": 0},
        {"h": 10, "w": 40},
        "convolved",
    ),
    "transpose": ({"tile": 16, "rows": 4, "pad": 1}, {"h": 20, "w": 40}, "transposed"),
    "histogram": ({"threads": 64, "words": 4, "copies": 2}, {"n": 700}, "counted"),
    "nbody": ({"threads": 64, "bodies": 2, "unroll": 4}, {"n": 200}, "accelerations"),
    "gemm": (
        {
            **{"MWG": 32, "NWG": 16, "KWG": 16, "KWI": 2, "MDIMC": 8, "NDIMC": 8, "MDIMA": 16, "NDIMB": 8},
            **{"VWM": 2, "VWN": 1, "STRM": 1, "STRN": 0, "SA": 1, "SB": 1},
        },
        {"m": 128, "n": 128, "k": 32},
        "multiplied",
    ),
    "stencil": ({"block_size_x": 16, "block_size_y": 4, "planes": 4, "staged": 1}, {"n": 18}, "flowed"),
}
RACE, UNWRITTEN, BEYOND, WRONG = "race: ", "uninitialised: ", "out_of_bounds: ", "array 0: element "
SYNC = "    __syncthreads();\n"


@dataclass(frozen=True)
class Fault:
    """Text of a kernel's source that is replaced, the `nth` place of it, and how the report begins."""

    kernel: str
    before: str
    after: str
    report: str
    nth: int = 0

    @property
    def source(self) -> str:
        """The source with the fault."""
        parts = KERNELS[self.kernel].source.split(self.before)
        return self.before.join(parts[: self.nth + 1]) + self.after + self.before.join(parts[self.nth + 1 :])


def configuration(kernel: str, source: str | None = None, target: str = "sm_87") -> Configuration:
    """Return the configuration of CASES, of an example or of another source."""
    knobs, _, _ = CASES[kernel]
    made = KERNELS[kernel]
    return Configuration(made.description, source or made.source, tuple(knobs.items()), target)


FAULTS = (
    Fault("convolution", SYNC, "", UNWRITTEN),
    Fault("convolution", "y < HEIGHT + BORDER; y +=", "y < HEIGHT + BORDER - 1; y +=", UNWRITTEN),
    Fault("convolution", "left + x < pitch", "left + x < pitch + 1", BEYOND),
    Fault("convolution", "row < height && column < width", "column < width", BEYOND),
    Fault("convolution", "(size_t)row * width + column", "(size_t)row * (width + 1) + column", BEYOND),
    Fault("convolution", "threadIdx.x + x * block_size_x + i]", "threadIdx.x + x * block_size_x + i + 1]", UNWRITTEN),
    Fault("convolution", "(size_t)(top + y) * pitch", "(size_t)(top + y) * width", WRONG),
    Fault("transpose", SYNC, "", UNWRITTEN),
    Fault("transpose", "x < width && y + step < height", "y + step < height", BEYOND),
    Fault("transpose", "x < height && y + step < width", "y + step < width", UNWRITTEN),
    Fault("transpose", "(size_t)(y + step) * height + x] =", "(size_t)(y + step) * width + x] =", BEYOND),
    Fault("transpose", "[tile][tile + pad]", "[tile][tile - 1]", RACE),
    Fault("transpose", "numbers[threadIdx.x][threadIdx.y + step];", "numbers[threadIdx.x][threadIdx.y];", WRONG),
    Fault("transpose", "step < tile; step += rows", "step < tile - rows; step += rows", UNWRITTEN),
    Fault("histogram", "(&own[0][0])[i] = 0;", ";", UNWRITTEN),
    Fault("histogram", "i < copies * 256; i += threads", "i < copies * 255; i += threads", UNWRITTEN),
    Fault("histogram", SYNC, "", UNWRITTEN),
    Fault("histogram", SYNC, "", RACE, nth=1),
    Fault("histogram", "atomicAdd(&mine[four >> shift & 255], 1u)", "mine[four >> shift & 255] += 1u", RACE),
    Fault("histogram", "at < count", "at <= count", BEYOND),
    Fault("histogram", "atomicAdd(&counts[v], sum)", "counts[v] += sum", RACE),
    Fault("histogram", "four >> shift & 255", "four >> shift & 511", BEYOND),
    Fault("nbody", "        __syncthreads();\n", "", UNWRITTEN),
    Fault("nbody", "        __syncthreads();\n", "", RACE, nth=1),
    Fault("nbody", "= i < n ? positions[i] : make", "= i < n + 1 ? positions[i] : make", BEYOND, nth=1),
    Fault("nbody", "if (first + b * threads < n)", "if (first + b * threads <= n)", BEYOND),
    Fault(
        "nbody", "own[b] = i < n ? positions[i]", "own[b] = i < n ? *(float4 *)((float *)positions + i)", "misaligned: "
    ),
    Fault("gemm", "            __syncthreads();\n", ";", UNWRITTEN),
    Fault("gemm", "            __syncthreads();\n", ";", RACE, nth=1),
    Fault("gemm", "row < KWG / DOWN", "row < KWG / DOWN - 1", UNWRITTEN),
    Fault("gemm", "a + (size_t)first * m + i, m)", "a + (size_t)first * m + i + 4, m)", BEYOND),
    Fault("gemm", "(size_t)row * m + i", "(size_t)row * (m - 32) + i", RACE),
    Fault("gemm", "left[x / VWM].at[x % VWM]", "left[x / VWM].at[0]", WRONG),
    Fault("stencil", "        __syncthreads();\n", "", RACE),
    Fault("stencil", "        __syncthreads();\n", "", UNWRITTEN, nth=1),
    Fault("stencil", "if (threadIdx.x == 0)", "if (threadIdx.x == 99)", UNWRITTEN),
    Fault("stencil", "z >= 0 && z < n && yy", "z >= 0 && yy", BEYOND),
    Fault("stencil", "const bool inside = x < n && y < n;", "const bool inside = x < n;", RACE),
    Fault(
        "stencil",
        "        __syncthreads();\n",
        "        if (inside)\n            __syncthreads();\n",
        "divergent: ",
        nth=1,
    ),
)
