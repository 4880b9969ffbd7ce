"""onnx's own node tests, on the emulator."""

import pytest

import gensor_kernels
from gensor_kernels.errors import GensorError
from gensor_kernels.graph.execution.model import Model
from gensor_kernels.graph.readers.onnx_file import Source

from .onnx_nodes import agree, array, cases, excused

pytestmark = pytest.mark.filterwarnings("ignore")
PARTS = 12


def computed(case):
    """Run a case; None where the model is refused."""
    model = Model(Source(case.model), case.name)
    for inputs, outputs in case.data_sets:
        found = model(*map(array, inputs))
        for each, wanted in zip(found if isinstance(found, tuple) else (found,), outputs, strict=True):
            agree(each, array(wanted), case)


@pytest.mark.parametrize("part", range(PARTS))
def test_served_operators_are_right(part):
    wrong = []
    with gensor_kernels.emulated("sm_87"):
        for case in cases()[part::PARTS]:
            if excused(case) is None:
                try:
                    computed(case)
                except (AssertionError, GensorError, TypeError, ValueError) as error:
                    wrong.append(f"{case.name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("part", range(4))
def test_other_operators_are_refused_with_a_sentence(part):
    """Nothing that is not served is computed wrongly: it is refused, or right after all."""
    wrong = []
    with gensor_kernels.emulated("sm_87"):
        for case in [case for case in cases() if excused(case) is not None][part::4]:
            try:
                computed(case)
            except GensorError as error:
                if len(str(error)) < 20 or "\n" in str(error):
                    wrong.append(f"{case.name}: {error}")
            except (AssertionError, TypeError, ValueError) as error:
                wrong.append(f"{case.name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
    assert not wrong, "\n".join(wrong)


def test_most_cases_are_served():
    served = [case for case in cases() if excused(case) is None]
    assert len(served) > 0.6 * len(cases())
