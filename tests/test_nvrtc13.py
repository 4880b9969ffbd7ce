"""The families' sources also compile with NVRTC 13, where its wheel (nvidia-cuda-nvrtc) is installed beside 12.9."""

from __future__ import annotations

import ctypes
from importlib import metadata
from pathlib import Path

import pytest

from gensor_kernels.build import nvrtc, source
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.matmul import workload
from gensor_kernels.programs.families import FAMILIES


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
    options = [option.encode() for option in (f"--gpu-architecture={target}", *nvrtc.OPTIONS)]
    status = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    assert library.nvrtcGetProgramLogSize(program, ctypes.byref(size)) == 0
    log = ctypes.create_string_buffer(size.value)
    assert library.nvrtcGetProgramLog(program, log) == 0
    size.value = 0
    if status == 0:
        assert library.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return size.value, log.value.decode()


@pytest.mark.parametrize("arch_name", ["sm_75", "sm_87", "sm_120"])
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_sources_compile(arch_name, dtype):
    arch, work = lookup(arch_name), workload(256, 256, 256, dtype=dtype)
    serving = [family for family in FAMILIES.values() if family.serves(work, arch) is None]
    assert serving
    for family in serving:
        program = family.starters(work, arch)[-1]
        text = source.bind(source.flatten(family.source), family.constants(program, work))
        size, log = compile_with_13(text, arch.target)
        assert size > 1000, (family.name, log)
