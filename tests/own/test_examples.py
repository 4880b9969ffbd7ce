"""The example kernels, from their knobs to a launch, for an Orin and an H100."""

import numpy as np
import pytest

import gensor_kernels
from gensor_kernels import own
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.tolerance.own import own_bound
from gensor_kernels.own.configuration import draw
from gensor_kernels.own.expressions import evaluate
from gensor_tuner.own.verify import expect
from tests.own.faults import CASES, EXAMPLES, KERNELS

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("needs_emulator")]
SIZES = {"h": 1024, "w": 1024, "m": 256, "n": 2048, "k": 256}


@pytest.mark.parametrize("part", ["orin-nano-8gb", "h100-sxm"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_an_example_is_tuned_stored_and_launched(name: str, part: str, tmp_path):
    kernel, (_, at, reference) = KERNELS[name], CASES[name]
    sizes = {size: 128 if name == "stencil" else SIZES[size] for size in at}
    best = kernel.tune(part, sizes, KERNELS[reference], check_at=at, keep=2, budget=12)
    best.save(tmp_path / "own.db")
    best.to_t4(tmp_path / "own.json")
    loaded = own.load(tmp_path / "own.db")
    described = kernel.description
    arguments, constants = draw(described, {**best.knobs, **at}, seed=5)
    right = expect(described, KERNELS[reference], arguments, constants, at)
    values = [
        np.frombuffer(value, what.dtype)[0] if isinstance(value, bytes) else value
        for what, value in zip(described.arguments, arguments, strict=True)
    ]
    loaded.constants(**constants)
    with gensor_kernels.emulated(lookup(part).name):
        loaded(*values, **at)
    terms = int(evaluate(described.terms, {**best.knobs, **at}))
    assert (np.abs(values[0] - right[0]) <= own_bound(right[0], values[0].dtype.name, terms)).all()


def test_the_t1_file_is_tuned():
    kernel = own.from_t1(EXAMPLES / "convolution.json")
    at = dict.fromkeys(kernel.sizes, 40)
    best = kernel.tune("orin-nano-8gb", kernel.sizes, KERNELS["convolved_t1"], check_at=at, keep=1, budget=8)
    assert best.found[0].verdict.outcome == "ok"
