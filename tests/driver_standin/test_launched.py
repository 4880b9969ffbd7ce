"""What CuPy's launches pass to the driver: the arguments of cuLaunchKernel and cuLaunchKernelEx, and refusals."""

import pytest

from .planted import ARGUMENTS, HISTORICAL

#: by CuPy; the package itself looks up cuLaunchKernelEx, cuTensorMapEncodeTiled and -Im2col, and cuDriverGetVersion
NEEDED = {
    *("cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction", "cuFuncSetAttribute", "cuLaunchKernel"),
    *("cuGetErrorName", "cuGetErrorString"),
}


@pytest.fixture(scope="module")
def launched(child):
    return child("launched", GENSOR_TUNE="predicted", GENSOR_DETERMINISTIC="1")


def test_cupy_looks_up_each_function_by_its_name(launched):
    assert set(launched["looked_up"]["found"]) == NEEDED
    assert not any("ProcAddress" in name or "_ptsz" in name for name in launched["looked_up"]["missing"])


def test_launches_pass_the_bytes_of_params(launched):
    several = launched["several"]
    assert several["found"] == several["wanted"]
    assert several["calls"] == ["cuLaunchKernel", *["cuLaunchKernelEx"] * 2] * 2


def test_tensor_maps_follow_params(launched):
    mapped = launched["mapped"]
    assert mapped["found"] == mapped["wanted"] and mapped["found"][1] > 48 * 1024
    assert mapped["passed"] == mapped["params"]


def test_an_argument_at_another_address_is_seen(launched):
    """CuPy 13 passes the address of a Python integer by the class whose instance holds the integer in CuPy 14."""
    arrived = {name for name, found in launched["planted"].items() if found}
    assert launched["planted"].keys() == ARGUMENTS.keys()
    assert arrived == (set() if launched["cupy"].startswith("13.") else {HISTORICAL})


def test_launches_are_on_the_current_stream(launched):
    assert launched["streams"] == [each for stream in (0, 0, 2, 0x5000, 0) for each in (stream, stream)]


def test_all_launches_of_a_call_are_on_one_stream_where_threads_have_default_streams(child):
    """There CuPy launches on stream 2 where the current stream is 0, and so do launches with attributes."""
    found = child("launched", "streams", CUPY_CUDA_PER_THREAD_DEFAULT_STREAM="1")["streams"]
    assert found == [each for stream in (2, 2, 2, 0x5000, 2) for each in (stream, stream)]


def test_each_thread_passes_its_own_params(launched):
    assert launched["threads"] == [[number, turn] for number in range(8) for turn in range(20)]


def test_what_a_launch_takes_is_made_once_for_each_buffer(launched):
    assert launched["warm"] == {"first": 1, "all": 1, "launches": 20}


def test_a_refused_launch_raises_what_dispatch_expects(launched):
    """A dependent launch that is refused goes to CuPy, which raises the error."""
    name = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
    assert [[text.partition(":")[0], *rest] for text, *rest in launched["refused"]] == [
        [name, True, ["cuLaunchKernel"]],
        [name, True, ["cuLaunchKernelEx", "cuLaunchKernel"]],
    ]


def test_refused_code_is_a_build_error_with_the_drivers_reason(launched):
    assert {name: text.split(":")[1].strip() for name, text in launched["refusals"].items()} == {
        "no image": "CUDA_ERROR_INVALID_PTX",
        "another part": "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "another entry": "CUDA_ERROR_NOT_FOUND",
        "too much shared memory": "CUDA_ERROR_INVALID_VALUE",
    }


def test_a_public_call_passes_its_arrays_every_time(launched):
    expected = "".join(pointer.to_bytes(8, "little").hex() for pointer in launched["public"]["pointers"])
    assert launched["public"]["passed"] == [expected] * 3


def test_the_device_is_known_by_cupys_names(launched):
    said = launched["state"]
    assert said["part"] == "h200" and said["integrated"] is False and said["capturing"] == [False, True]
    assert said["attributes"] == {
        **{"ClockRate": 1_980_000, "MultiProcessorCount": 132, "L2CacheSize": 60 << 20, "Integrated": 0},
        **{"MemoryClockRate": 3_201_000, "GlobalMemoryBusWidth": 6144},
    }


def test_cupys_own_switch_for_tf32_is_read_and_set(launched):
    assert launched["state"]["tf32"] == [False, True, False]
