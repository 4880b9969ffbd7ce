"""Launches executed from the bytes that reached the driver, in several forms; planted bugs; stored kernels."""

import pickle
import random
from dataclasses import replace

import pytest

from tests.campaign_size import SEED
from tests.mutator.programs import configurations

from .planted import BUGS, FORM, HISTORICAL
from .runtime import run_child

pytest.importorskip("cupy")
pytest.importorskip("cuda.bindings", reason="NVRTC compiles the Programs")
from .forms import form

#: One launch, three of which two are dependent and read by tensor maps, clusters that walk, maps of pixels, stores by
#: maps, blocks that wait for one another, and boxes of three dimensions.
FORMS = (
    "simt: scalar",
    FORM,
    "wgmma: pair along n, walking",
    "wgmma: pixels",
    "wgmma: stored by copies",
    "wgmma: stream",
    "attention_wgmma: two warpgroups",
)
REFUSED = "a stored cubin that the driver refuses"
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_120")


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    known = {f"{each.group}: {each.name}": each for each in configurations()}
    drawn = random.Random(SEED).sample(sorted(known.keys() - set(FORMS)), 2)
    print(f"GENSOR_CAMPAIGN_SEED={SEED}")
    path = tmp_path_factory.mktemp("forms") / "forms.pickle"
    forms = [form(known[name]) for name in (*FORMS, *drawn)]
    path.write_bytes(pickle.dumps([*forms, replace(forms[0], name=REFUSED, cubin=b"no cubin")]))
    return run_child("executed", str(path), FORM)


def test_what_reached_the_driver_computes_what_numpy_does(executed):
    assert [(each["name"], each["outcome"], each["detail"]) for each in executed["forms"]] == [
        (each["name"], "ok", "") for each in executed["forms"]
    ]
    assert all(each["cases"] > 3 for each in executed["forms"])
    called = {name for each in executed["forms"] for name in each["calls"]}
    assert called >= {"cuLaunchKernel", "cuLaunchKernelEx", "cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col"}


def test_a_kernel_whose_stored_cubin_is_refused_is_compiled_and_loaded(executed):
    (found,) = (each for each in executed["forms"] if each["name"] == REFUSED)
    assert found["outcome"] == "ok" and found["calls"]["cuModuleLoadData"] == 2


def test_bugs_of_the_host_path_are_caught(executed):
    """`CPointer(address)` is the address in CuPy 14; in CuPy 13 it was once passed, and is caught."""
    fine = {name for name, outcome in executed["planted"][FORM].items() if outcome.startswith("ok")}
    assert set(executed["planted"][FORM]) == set(BUGS)
    assert fine == (set() if executed["cupy"].startswith("13.") else {HISTORICAL})


def test_stored_kernels_load_and_take_the_parameters_that_are_passed():
    arch = random.Random(SEED).choice(ARCHS)
    found = run_child("swept", arch)[arch]
    assert found["kernels"] > 300 and found["launches"] > found["kernels"]
    assert found["wrong"] == []
