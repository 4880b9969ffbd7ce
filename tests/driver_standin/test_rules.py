"""Rules of the driver library for arguments that CuPy and the package never pass: each broken once, and kept once."""

import ctypes
import struct
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from tests.doubles.strict import elf
from tests.doubles.strict.library import library
from tests.doubles.strict.results import Status
from tests.doubles.strict.system import System

OK, INVALID_VALUE, INVALID_IMAGE, NO_BINARY, INVALID_PTX, INVALID_HANDLE, NOT_FOUND = 0, 1, 200, 209, 218, 400, 500
OUT_OF_RESOURCES, INVALID_CLUSTER = 701, 912
IMAGE = elf.written((9, 0), {"kernel": elf.Entry(parameters=(64, 4), cluster=2, most_threads=256)})


class Driver:
    """The library, each of whose functions returns its status."""

    def __init__(self, part="h200"):
        self.system = System([part])
        self.functions = library(self.system)

    def __getattr__(self, name):
        return getattr(self.functions, name)

    def module(self, image):
        made = ctypes.c_void_p()
        return self.cuModuleLoadData(ctypes.addressof(made), image and ctypes.cast(image, ctypes.c_void_p)), made.value

    def function(self, module, name):
        made, text = ctypes.c_void_p(), ctypes.create_string_buffer(name.encode())
        return self.cuModuleGetFunction(ctypes.addressof(made), module, ctypes.addressof(text)), made.value

    def launch(self, function, given, grid=(8, 1, 1), block=(128, 1, 1), shared=0, extra=None):
        pointers = given if given is None else (ctypes.c_void_p * len(given))(*given)
        return self.cuLaunchKernel(function, *grid, *block, shared, None, pointers, extra)


@pytest.fixture
def loaded():
    """A driver, a module, its kernel, and the addresses of that kernel's parameters."""
    driver, body = Driver(), ctypes.create_string_buffer(bytes(range(128)))
    _, module = driver.module(IMAGE)
    _, function = driver.function(module, "kernel")
    places = [ctypes.addressof(body), ctypes.addressof(body) + 64]
    return SimpleNamespace(driver=driver, module=module, function=function, places=places, body=body)


AMPERE = elf.written((8, 6), {"kernel": elf.Entry(parameters=(64, 4))})


@pytest.mark.parametrize(
    ("part", "image", "result"),
    [
        ("rtx-3090", AMPERE, OK),
        ("rtx-3090", AMPERE[:-1], INVALID_IMAGE),
        ("rtx-3090", AMPERE[:100], INVALID_IMAGE),
        ("rtx-3090", AMPERE[:18] + struct.pack("<H", 62) + AMPERE[20:], INVALID_IMAGE),  # x86-64
        ("rtx-3090", b"\x7fELF", INVALID_IMAGE),
        ("rtx-3090", b"#include <x>", INVALID_PTX),
        ("rtx-3090", elf.written((8, 0), {}), OK),
        ("rtx-3090", elf.written((7, 5), {}), NO_BINARY),
        ("rtx-3090", elf.written((8, 7), {}), NO_BINARY),  # Tegra: in neither direction
        ("rtx-3090", elf.written((8, 9), {}), NO_BINARY),
        ("orin-nano-8gb", elf.written((8, 0), {}), NO_BINARY),
        ("h200", elf.written((9, 0), {}, specific=True), OK),
        ("b200", elf.written((9, 0), {}, specific=True), NO_BINARY),
        ("b200", elf.written((10, 0), {}, specific=True), OK),
    ],
)
def test_images(part, image, result):
    context = System([part]).context()
    with nullcontext() if result == OK else pytest.raises(Status) as caught:
        assert context.load(image).loaded
    assert result == OK or caught.value.number == result


def test_handles(loaded):
    driver, module, function = loaded.driver, loaded.module, loaded.function
    assert driver.function(module, "missing")[0] == NOT_FOUND
    assert driver.function(function, "kernel")[0] == INVALID_HANDLE
    assert driver.function(module, "kernel") == (OK, function)
    assert driver.launch(module, loaded.places) == INVALID_HANDLE
    assert driver.cuFuncSetAttribute(None, 8, 1024) == INVALID_HANDLE
    assert driver.cuFuncSetAttribute(function, 7, 1024) == INVALID_VALUE
    assert driver.cuModuleUnload(function) == INVALID_HANDLE
    assert driver.cuModuleUnload(module) == OK and driver.cuModuleUnload(module) == INVALID_HANDLE
    assert driver.launch(function, loaded.places) == INVALID_HANDLE  # it went with its module


MOST_SHARED = 227 << 10


@pytest.mark.parametrize(
    ("entry", "changed", "result"),
    [
        ({}, {}, OK),
        ({}, {"grid": (0, 1, 1)}, INVALID_VALUE),
        ({}, {"grid": (2, 1 << 16, 1)}, INVALID_VALUE),
        ({}, {"grid": (1 << 31, 1, 1)}, INVALID_VALUE),
        ({}, {"block": (0, 1, 1)}, INVALID_VALUE),
        ({}, {"block": (1, 1, 65)}, INVALID_VALUE),
        ({}, {"block": (1024, 1, 1)}, OK),
        ({}, {"block": (1025, 1, 1)}, INVALID_VALUE),
        ({}, {"given": None}, INVALID_VALUE),
        ({}, {"given": [None, None]}, INVALID_VALUE),
        ({}, {"extra": 4096}, INVALID_VALUE),  # parameters are given in one way, not in two
        ({}, {"shared": 48 << 10}, OK),
        ({}, {"shared": (48 << 10) + 1}, INVALID_VALUE),
        ({"shared_bytes": 16}, {"shared": 48 << 10}, INVALID_VALUE),  # static memory counts too
        ({}, {"allowed": MOST_SHARED, "shared": MOST_SHARED}, OK),
        ({}, {"allowed": MOST_SHARED + 1}, INVALID_VALUE),
        ({"shared_bytes": 16}, {"allowed": MOST_SHARED}, INVALID_VALUE),
        ({"registers": 64}, {"block": (1024, 1, 1)}, OK),
        ({"registers": 65}, {"block": (1024, 1, 1)}, OUT_OF_RESOURCES),
        ({"registers": 255}, {"block": (256, 1, 1)}, OK),
        ({"registers": 255}, {"block": (288, 1, 1)}, OUT_OF_RESOURCES),
        ({"most_threads": 128}, {"block": (160, 1, 1)}, INVALID_VALUE),
        ({"threads": 128}, {"block": (96, 1, 1)}, INVALID_VALUE),
        ({"cluster": 2}, {}, OK),
        ({"cluster": 2}, {"grid": (7, 1, 1)}, INVALID_CLUSTER),
        ({"cluster": 16}, {"grid": (16, 1, 1)}, INVALID_CLUSTER),
    ],
    ids=str,
)
def test_launches(loaded, entry, changed, result):
    driver, allowed = loaded.driver, changed.get("allowed")
    _, module = driver.module(elf.written((9, 0), {"kernel": elf.Entry(parameters=(64, 4), **entry)}))
    _, function = driver.function(module, "kernel")
    launch = {name: value for name, value in changed.items() if name != "allowed"}
    found = OK if allowed is None else driver.cuFuncSetAttribute(function, 8, allowed)
    assert (found or driver.launch(function, **{"given": loaded.places, **launch})) == result
    passed = [each.parameters for each in driver.system.context().launches]
    assert passed == ([bytes(range(68))] if result == OK else [])
