"""What CuPy's launches pass to the driver, by the checks of launched.py."""

import pytest

from .runtime import run_child

pytest.importorskip("cupy")


def test_launches_pass_what_the_driver_expects():
    assert run_child("launched", GENSOR_TUNE="predicted", GENSOR_DETERMINISTIC="1")["failures"] == {}


def test_all_launches_of_a_call_are_on_one_stream_where_threads_have_default_streams():
    assert run_child("launched", "streams", CUPY_CUDA_PER_THREAD_DEFAULT_STREAM="1")["failures"] == {}
