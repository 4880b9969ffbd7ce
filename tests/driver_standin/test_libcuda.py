"""What the stand-in refuses, and what it writes down: each rule with a call that breaks it, and one that does not."""

import ctypes
import json
import struct

import pytest

from gensor_kernels.machine.arch import lookup

from . import library
from .stored import stored

OK, INVALID_VALUE, INVALID_IMAGE, NO_BINARY, INVALID_HANDLE, NOT_FOUND = 0, 1, 200, 209, 400, 500
OUT_OF_RESOURCES, NOT_SUPPORTED, INVALID_CLUSTER = 701, 801, 912


class Driver:
    """The stand-in in this process; a call returns its CUresult, and `last` is the line that it wrote."""

    def __init__(self, path, calls):
        self.path, self.library = calls, ctypes.CDLL(str(path))

    def __getattr__(self, name):
        return getattr(self.library, name)

    @property
    def last(self):
        return json.loads(self.path.read_text().splitlines()[-1])

    def module(self, cubin):
        made = ctypes.c_void_p()
        return self.cuModuleLoadData(ctypes.byref(made), cubin), made

    def function(self, module, name):
        made = ctypes.c_void_p()
        return self.cuModuleGetFunction(ctypes.byref(made), module, name.encode()), made

    def launch(self, function, given, grid=(8, 1, 1), block=(128, 1, 1), shared=0, extra=None):
        pointers = given if given is None else (ctypes.c_void_p * len(given))(*given)
        return self.cuLaunchKernel(function, *grid, *block, shared, None, pointers, extra)


@pytest.fixture
def driver(standin, tmp_path, monkeypatch):
    monkeypatch.setenv("STANDIN_CALLS", str(tmp_path / "calls"))
    for name in ("STANDIN_TARGET", "STANDIN_SHARED", "STANDIN_VERSION"):
        monkeypatch.setenv(name, "")
    library.become(lookup("h200"))
    return Driver(standin, tmp_path / "calls")


@pytest.fixture(scope="module")
def clustered():
    """A kernel in clusters of two blocks, of more than 256 threads, that reads by two tensor maps."""
    first = ((each, each.launches[0]) for each in stored("sm_90"))
    return next(each for each, launch in first if launch.cluster == 2 and launch.block > 256 and len(launch.maps) == 2)


@pytest.fixture
def loaded(driver, clustered):
    """(module, function, its Launch, the addresses of parameters that have its size)."""
    _, module = driver.module(clustered.code.cubin)
    launch = clustered.launches[0]
    _, function = driver.function(module, launch.entry)
    body = ctypes.create_string_buffer(bytes(range(256)) * 8)
    yield module, function, launch, [ctypes.addressof(body)]
    driver.cuModuleUnload(module)


def test_it_is_no_driver_for_the_runtime(driver):
    """It lacks what the runtime asks every driver for."""
    for name in ("cuInit", "cuGetProcAddress", "cuGetProcAddress_v2", "cuGetExportTable", "cuDeviceGet", "cuCtxCreate"):
        assert not hasattr(driver.library, name)


def test_images(driver, clustered):
    cubin = clustered.code.cubin
    assert driver.module(cubin)[0] == OK and driver.last["target"] == 90
    assert driver.module(b"\0" * 64)[0] == INVALID_IMAGE
    assert driver.module(cubin[:18] + struct.pack("<H", 62) + cubin[20:])[0] == INVALID_IMAGE  # x86-64
    assert driver.cuModuleLoadData(None, cubin) == INVALID_VALUE
    for arch, part, result in (
        ("sm_80", "sm_80", OK), ("sm_80", "sm_87", OK), ("sm_87", "sm_80", NO_BINARY), ("sm_80", "sm_90", NO_BINARY),
        ("sm_90", "sm_80", NO_BINARY), ("sm_100", "sm_100", OK), ("sm_90", "sm_100", NO_BINARY),
    ):  # fmt: skip
        library.become(lookup(part))
        assert driver.module(next(stored(arch)).code.cubin)[0] == result, (arch, part)


def test_handles(driver, loaded):
    module, function, launch, given = loaded
    assert driver.function(module, "missing")[0] == NOT_FOUND
    assert driver.function(function, launch.entry)[0] == INVALID_HANDLE
    assert driver.function(module, launch.entry)[1].value == function.value
    assert driver.launch(module, given) == INVALID_HANDLE
    assert driver.cuFuncSetAttribute(None, 8, 1024) == INVALID_HANDLE
    assert driver.cuModuleUnload(function) == INVALID_HANDLE
    _, other = driver.module(next(stored("sm_90")).code.cubin)
    assert driver.cuModuleUnload(other) == OK and driver.cuModuleUnload(other) == INVALID_HANDLE
    assert driver.cuModuleUnload(module) == OK
    assert driver.launch(function, given) == INVALID_HANDLE  # it went with its module


def test_launches(driver, loaded):
    _, function, launch, given = loaded
    block = (launch.block, 1, 1)
    assert driver.launch(function, given, block=block) == OK
    passed, size = bytes.fromhex(driver.last["passed"]), driver.last["sizes"]
    assert passed == (bytes(range(256)) * 8)[: size[0]] and driver.last["at"] == given
    assert driver.launch(function, given, grid=(7, 1, 1), block=block) == INVALID_CLUSTER
    for grid, threads in (((0, 1, 1), block), ((2, 1 << 16, 1), block), ((2, 1, 1), (0, 1, 1))):
        assert driver.launch(function, given, grid, threads) == INVALID_VALUE
    assert driver.launch(function, given, block=(launch.block + 32, 1, 1)) == INVALID_VALUE  # its launch bounds
    assert driver.launch(function, None, block=block) == INVALID_VALUE
    assert driver.launch(function, [None], block=block) == INVALID_VALUE
    assert driver.launch(function, given, block=block, extra=(ctypes.c_void_p * 1)()) == INVALID_VALUE


def test_registers(driver, loaded, clustered):
    """A cubin that says 255 registers for each of 1024 threads."""
    _, _, launch, given = loaded
    cubin = bytearray(clustered.code.cubin)
    at = cubin.index(b"\x04\x2f\x08\x00")
    while at >= 0:  # of every entry
        struct.pack_into("<I", cubin, at + 8, 255)
        at = cubin.find(b"\x04\x2f\x08\x00", at + 12)
    _, module = driver.module(bytes(cubin))
    _, function = driver.function(module, launch.entry)
    expected = OK if launch.block * 256 <= 1 << 16 else OUT_OF_RESOURCES
    assert driver.launch(function, given, block=(launch.block, 1, 1)) == expected == OUT_OF_RESOURCES
    assert driver.cuModuleUnload(module) == OK


def test_shared_memory(driver, loaded):
    _, function, launch, given = loaded
    wanted, most = (48 << 10) + 1, lookup("h200").smem_per_block
    assert driver.launch(function, given, block=(launch.block, 1, 1), shared=wanted - 1) == OK
    assert driver.launch(function, given, block=(launch.block, 1, 1), shared=wanted) == INVALID_VALUE
    assert driver.cuFuncSetAttribute(function, 8, most + 1) == INVALID_VALUE
    assert driver.cuFuncSetAttribute(function, 7, wanted) == NOT_SUPPORTED
    assert driver.cuFuncSetAttribute(function, 8, wanted) == OK
    assert driver.launch(function, given, block=(launch.block, 1, 1), shared=wanted) == OK
    assert driver.launch(function, given, block=(launch.block, 1, 1), shared=wanted + 1) == INVALID_VALUE


def test_launches_with_attributes(driver, loaded):
    _, function, launch, given = loaded
    pointers = (ctypes.c_void_p * 1)(*given)

    def launched(*attribute, count=1, grid=8):
        raw = struct.pack("<i4xi60x", *attribute)
        attributes = ctypes.create_string_buffer(raw)
        place = ctypes.addressof(attributes) if attribute[0] else None
        words = struct.pack("<7I4xQQI4x", grid, 1, 1, launch.block, 1, 1, 0, 0x77, place or 0, count)
        return driver.cuLaunchKernelEx(words, function, pointers, None)

    assert launched(6, 1) == OK
    assert (driver.last["attributes"], driver.last["stream"], driver.last["grid"]) == ([6, 1], 0x77, [8, 1, 1])
    assert launched(6, 1, count=0) == OK and driver.last["attributes"] == []
    assert launched(5, 1) == launched(6, 2) == NOT_SUPPORTED
    assert launched(0, 1) == INVALID_VALUE  # one attribute, at no address
    assert launched(6, 1, grid=7) == INVALID_CLUSTER
    library.become(lookup("sm_87"))
    assert launched(6, 1) == NOT_SUPPORTED


TILED = {
    "place": 64, "type": 1, "rank": 3, "address": 4096, "extents": (64, 8, 2), "strides": (128, 1024),
    "box": (64, 8, 1), "steps": (1, 1, 1), "modes": (0, 3, 3, 0),
}  # fmt: skip
PIXELS = {
    "place": 64, "type": 1, "rank": 4, "address": 4096, "extents": (64, 8, 8, 2), "strides": (128, 1024, 8192),
    "lower": (-1, -128), "upper": (127, -1), "channels": 64, "pixels": 128, "steps": (1, 2, 2, 1),
    "modes": (0, 3, 3, 0),
}  # fmt: skip


def encoded(driver, **asked):
    """The CUresult of encoding a map; box, channels and pixels say which encoder."""
    buffer = ctypes.create_string_buffer(256)
    place = -(-ctypes.addressof(buffer) // 64) * 64 + asked["place"] % 64
    longs = [(ctypes.c_uint64 * len(asked[name]))(*asked[name]) for name in ("extents", "strides")]
    words = {name: (ctypes.c_uint32 * len(asked[name]))(*asked[name]) for name in ("box", "steps") if name in asked}
    head = (ctypes.c_void_p(place), asked["type"], asked["rank"], ctypes.c_void_p(asked["address"]), *longs)
    if "box" in asked:
        result = driver.cuTensorMapEncodeTiled(*head, words["box"], words["steps"], *asked["modes"])
    else:
        corners = [(ctypes.c_int * len(asked[name]))(*asked[name]) for name in ("lower", "upper")]
        sizes = asked["channels"], asked["pixels"]
        result = driver.cuTensorMapEncodeIm2col(*head, *corners, *sizes, words["steps"], *asked["modes"])
    if result == OK:
        assert driver.last["map"] == ctypes.string_at(place, 128).hex()
    return result


def test_tensor_maps(driver):
    assert encoded(driver, **TILED) == encoded(driver, **PIXELS) == OK
    assert encoded(driver, **{**TILED, "address": 0}) == OK
    library.become(lookup("sm_87"))
    assert encoded(driver, **TILED) == NOT_SUPPORTED


@pytest.mark.parametrize(
    "broken",
    [
        {"place": 32}, {"type": 13}, {"rank": 6}, {"rank": 0}, {"address": 4104}, {"extents": (64, 0, 2)},
        {"extents": (64, 2**32 + 1, 2)}, {"strides": (136, 1024)}, {"strides": (0, 1024)}, {"strides": (128, 2**40)},
        {"steps": (1, 9, 1)}, {"steps": (1, 0, 1)}, {"box": (64, 257, 1)}, {"box": (64, 0, 1)}, {"box": (4, 8, 1)},
        {"box": (72, 8, 1)}, {"modes": (1, 3, 3, 0)}, {"modes": (0, 4, 3, 0)}, {"modes": (0, 3, 4, 0)},
        {"modes": (0, 3, 3, 2)},
    ],
    ids=str,
)  # fmt: skip
def test_rules_of_tiled_maps(driver, broken):
    assert encoded(driver, **{**TILED, **broken}) == INVALID_VALUE


@pytest.mark.parametrize(
    "broken",
    [
        {"rank": 2}, {"lower": (-129, 0)}, {"lower": (128, 0)}, {"upper": (0, 128)}, {"upper": (0, -129)},
        {"channels": 0}, {"channels": 257}, {"channels": 72}, {"channels": 4}, {"pixels": 0}, {"pixels": 1025},
        {"steps": (1, 2, 9, 1)},
    ],
    ids=str,
)  # fmt: skip
def test_rules_of_maps_of_pixels(driver, broken):
    assert encoded(driver, **{**PIXELS, **broken}) == INVALID_VALUE


def test_results_that_a_test_asks_for(driver, loaded, clustered):
    _, function, launch, given = loaded
    driver.standin_refuse(b"launch", OUT_OF_RESOURCES)
    driver.standin_refuse(b"cuModuleLoadData", INVALID_IMAGE)
    assert driver.launch(function, given, block=(launch.block, 1, 1)) == OUT_OF_RESOURCES
    assert driver.module(clustered.code.cubin)[0] == INVALID_IMAGE
    driver.standin_refuse(b"launch", OK)
    driver.standin_refuse(b"cuModuleLoadData", OK)
    assert driver.launch(function, given, block=(launch.block, 1, 1)) == OK
    name = ctypes.c_char_p()
    assert driver.cuGetErrorName(OUT_OF_RESOURCES, ctypes.byref(name)) == OK
    assert name.value == b"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
    assert driver.cuGetErrorName(12345, ctypes.byref(name)) == INVALID_VALUE
