"""Small entries in PTX that copy between tensors and shared memory, and the maps and launches they need."""

import ctypes
import struct
from collections.abc import Sequence

import numpy as np

from gensor_kernels.families.core.family import Launch
from tests.doubles.strict.tensor_maps import FUNCTIONS
from tests.ptx.execute import Kernel, Memory

HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 shared[];\n"
#: offset of the maps in the parameters, after the addresses of output and input; bytes of parameters
FIRST_MAP, PARAMS = 64, 192
#: shared memory: mbarriers at its start, then a box
BOX, SHARED = 1024, 8192
UINT8, UINT16, FLOAT32, TFLOAT32 = 0, 1, 7, 11

BEGIN = """
    .reg .pred %p<8>; .reg .b16 %rs<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>;
    ld.param.u64 %rd0, [{name}_param_0];
    ld.param.u64 %rd1, [{name}_param_0+8];
    mov.b64 %rd2, {name}_param_0; cvta.param.u64 %rd2, %rd2; add.s64 %rd3, %rd2, 64;
    mov.u32 %r0, %tid.x; setp.eq.s32 %p1, %r0, 0;
    mov.u32 %r1, shared; add.s32 %r2, %r1, 1024;
"""
INIT = "@%p1 mbarrier.init.shared::cta.b64 [%r1], 1;"
FENCE = "@%p1 fence.mbarrier_init.release.cluster; @%p1 fence.proxy.async.shared::cta;"
BAR = "bar.sync 0;"
CLUSTER = "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;"
EXPECT = "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {bytes};"
LOAD = (
    "@%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    " [%r2], [%rd3, {0, 0}], [%r1];"
)
WAIT = "again: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r1], 0; @!%p3 bra again;"
STORE = "@%p1 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd3, {0, 0}], [%r2];"
COMMIT = "@%p1 cp.async.bulk.commit_group;"
WAIT_STORE = "@%p1 cp.async.bulk.wait_group.read 0;"
#: each thread writes 64 bytes of its number into the box
FILL = "mad.lo.s32 %r4, %r0, 64, %r2; " + " ".join(
    f"st.shared.v4.u32 [%r4+{16 * n}], {{%r0, %r0, %r0, %r0}};" for n in range(4)
)
#: shared memory from the box on, to the output
DUMP = "mad.lo.s32 %r4, %r0, 64, %r2; mad.wide.s32 %rd5, %r0, 64, %rd0; " + " ".join(
    f"ld.shared.v4.u32 {{%r5, %r6, %r7, %r8}}, [%r4+{16 * n}];"
    f" st.global.v4.u32 [%rd5+{16 * n}], {{%r5, %r6, %r7, %r8}};"
    for n in range(4)
)


def entry(name: str, body: str, *, cluster: int = 1, threads: int = 32) -> str:
    """Return an entry; %r1 is an mbarrier, %r2 the box, %rd3 the map, and %p1 says that this is the first thread."""
    directive = f".explicitcluster\n.reqnctapercluster {cluster}, 1, 1" if cluster > 1 else ""
    return (
        f".visible .entry {name}(.param .align 64 .b8 {name}_param_0[{PARAMS}])\n.maxntid {threads}, 1, 1\n"
        f".minnctapersm 1\n{directive}\n{{\n{BEGIN.replace('{name}', name)}\n{body}\n ret;\n}}\n"
    )


def encoded(
    address: int,
    kind: int,
    extents: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    *,
    steps: Sequence[int] = (),
    corners: Sequence[Sequence[int]] = (),
    swizzle: int = 3,
    interleave: int = 0,
    fill: int = 0,
    misplaced: int = 0,
) -> tuple[int, bytes]:
    """Return the status and the map that the driver's encoder gives; with corners, the box is channels and pixels."""
    rank = len(extents)
    buffer = (ctypes.c_char * 256)()
    target = -(-ctypes.addressof(buffer) // 64) * 64 + misplaced
    head = (target, kind, rank, address, (ctypes.c_uint64 * 5)(*extents), (ctypes.c_uint64 * 4)(*strides))
    stepped = (ctypes.c_uint32 * 5)(*(steps or [1] * rank))
    tail = (stepped, interleave, swizzle, 3, fill)
    if corners:
        offsets = [(ctypes.c_int * 3)(*each) for each in corners]
        status = FUNCTIONS["cuTensorMapEncodeIm2col"](*head, *offsets, *box, *tail)
    else:
        status = FUNCTIONS["cuTensorMapEncodeTiled"](*head, (ctypes.c_uint32 * 5)(*box), *tail)
    return status, ctypes.string_at(target, 128)


class Toy:
    """An output, an input and a tensor in global memory."""

    def __init__(self, out: np.ndarray, source: np.ndarray, tensor: np.ndarray, *, writable: bool = False):
        self.memory = Memory()
        self.kept = (out, source, tensor)
        places = [(out, True), (source, False), (tensor, writable)]
        self.addresses = [self.memory.place(each.ctypes.data, each.nbytes, may) for each, may in places]

    @property
    def tensor(self) -> int:
        """The address of the tensor."""
        return self.addresses[2]

    def run(
        self,
        kernel: Kernel,
        name: str,
        map_bytes: bytes = b"",
        *,
        late: bool = False,
        order: str | int = "forward",
        blocks: int = 1,
        threads: int = 32,
        cluster: int = 1,
        dependent: bool = False,
    ) -> None:
        """Launch an entry."""
        params = struct.pack("<2Q", *self.addresses[:2]).ljust(FIRST_MAP, b"\0") + map_bytes.ljust(128, b"\0")
        launch = Launch(name, blocks, threads, SHARED, cluster=cluster, dependent=dependent)
        kernel.run([launch], params, self.memory, late=late, order=order)


def aligned(count: int, dtype: type) -> np.ndarray:
    """Return zeros at an address that is a multiple of 64."""
    size = np.dtype(dtype).itemsize
    raw = np.zeros(count * size + 64, np.uint8)
    first = -raw.ctypes.data % 64
    return raw[first : first + count * size].view(dtype)
