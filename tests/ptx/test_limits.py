"""Launches that a device refuses."""

import pytest

from gensor_kernels.devices.ptx.limits import refusal
from gensor_kernels.devices.ptx.translation.parse import parse
from gensor_kernels.families.core.family import Launch
from tests.ptx.execute import Kernel, Memory, PtxFault

BODY = "{ .reg .b32 %r<2>; mov.u32 %r0, %tid.x; ret; }"


def module(directives: str = "", target: str = "sm_87", version: str = "8.8", params: int = 8, shared: int = 0) -> str:
    """A module of one entry."""
    static = f".shared .align 16 .b8 held[{shared}];" if shared else ""
    return (
        f".version {version}\n.target {target}\n.address_size 64\n"
        f".visible .entry limited(.param .align 8 .b8 limited_param_0[{params}])\n{directives}\n"
        + BODY.replace("{", "{ " + static, 1)
    )


#: module, threads, dynamic shared memory, and the refusal
LAUNCHES = [
    (module(), 1024, 0, ""),
    (module(), 1056, 0, "1056 threads"),
    (module(".maxntid 64, 2, 1"), 128, 0, ""),
    (module(".maxntid 64, 2, 1"), 160, 0, "160 threads, whose .maxntid is 128"),
    (module(".reqntid 128"), 128, 0, ""),
    (module(".reqntid 128"), 96, 0, "96 threads, whose .reqntid is 128"),
    (module(".maxntid 1024 .minnctapersm 2"), 1024, 0, ""),
    (module(".maxnreg 64"), 1024, 0, ""),
    (module(".maxnreg 65"), 1024, 0, "73728 registers in a block"),
    (module(), 32, 163 * 1024, ""),
    (module(), 32, 163 * 1024 + 16, "166928 bytes of shared memory"),
    (module(shared=16), 32, 163 * 1024, "166928 bytes of shared memory"),
    (module(shared=48 * 1024 + 16), 32, 0, "49168 bytes of static shared memory"),
    (module(target="sm_75"), 32, 64 * 1024 + 16, "65552 bytes of shared memory"),
    (module(target="sm_86"), 32, 100 * 1024, "102400 bytes of shared memory"),
    (module(target="sm_90a"), 32, 227 * 1024, ""),
    (module(params=32764), 32, 0, ""),
    (module(params=32768), 32, 0, "32768 bytes of parameters"),
    (module(params=4100, version="8.0"), 32, 0, "4100 bytes of parameters"),
]


def test_limits_of_launches():
    for text, threads, shared, expected in LAUNCHES:
        read = parse(text)
        entry = read.entries[0]
        found = refusal(read, entry, threads, shared, entry.params_bytes)
        assert found == expected, (text, threads, shared)


@pytest.mark.usefixtures("needs_emulator")  # both are compiled by g++
def test_a_launch_beyond_the_limits_does_not_run():
    kernel = Kernel(module(".maxntid 32"))
    kernel.run([Launch("limited", 1, 32, 0)], bytes(8), Memory(), late=True, order="forward")
    with pytest.raises(PtxFault, match=r"^invalid: a launch of 64 threads, whose \.maxntid is 32 in limited$"):
        kernel.run([Launch("limited", 1, 64, 0)], bytes(8), Memory(), late=True, order="forward")
