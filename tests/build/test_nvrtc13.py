"""The families' sources also compile with NVRTC 13, where its wheel (nvidia-cuda-nvrtc) is installed as well."""

import ctypes
import re
from importlib import metadata
from pathlib import Path

import pytest

from gensor_kernels.build import compile_process
from gensor_kernels.families.registry import FAMILIES
from gensor_kernels.machine.arch import lookup
from gensor_tuner.build.pool import candidate
from gensor_tuner.shapes.reader import read_shapes

ROOT = Path(__file__).resolve().parents[2]


def library_path() -> str | None:
    try:
        files = metadata.files("nvidia-cuda-nvrtc") or []
    except metadata.PackageNotFoundError:
        return None
    found = (Path(str(file.locate())) for file in files if file.name.startswith("libnvrtc.so.13"))
    return next((str(path) for path in found if path.exists()), None)


pytestmark = pytest.mark.skipif(library_path() is None, reason="the wheel nvidia-cuda-nvrtc 13 is not installed")


def compile_with_13(text: str, target: str) -> tuple[int, str]:
    """(size of the cubin, log) by plain calls: the bindings of this process may belong to NVRTC 12."""
    library = ctypes.CDLL(library_path())
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None) == 0
    options = [option.encode() for option in (f"--gpu-architecture={target}", *compile_process.OPTIONS)]
    status = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    assert library.nvrtcGetProgramLogSize(program, ctypes.byref(size)) == 0
    log = ctypes.create_string_buffer(size.value)
    assert library.nvrtcGetProgramLog(program, log) == 0
    size.value = 0
    if status == 0:
        assert library.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return size.value, log.value.decode()


def programs(arch):
    """A Program of every family that serves some row of every_operator.csv, by the family's name."""
    found = {}
    for row in read_shapes(ROOT / "examples" / "every_operator.csv"):
        for name, family in FAMILIES.items():
            if name not in found and row.workload and family.serves(row.workload, arch) is None:
                found[name] = candidate(family, family.starters(row.workload, arch)[-1], row.workload)
    return found


@pytest.mark.parametrize("arch_name", ["sm_75", "sm_87", "sm_90", "sm_120"])
def test_sources_compile_without_spills(arch_name):
    arch = lookup(arch_name)
    found = programs(arch)
    assert len(found) >= 6 and (arch_name != "sm_90" or {"contraction_wgmma", "contraction_aligned"} <= found.keys())
    for name, each in found.items():
        size, log = compile_with_13(each.source(), arch.target)
        assert size > 1000, (name, log)
        assert not re.search("[1-9][0-9]* bytes spill", log), (name, log)
        assert "serializ" not in log, (name, log)  # of warpgroup products whose registers are touched on their way
