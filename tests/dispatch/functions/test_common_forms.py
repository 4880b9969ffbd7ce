"""Every public function has shipped kernels of its common forms, on every capability a database is shipped for."""

import inspect
from dataclasses import replace

import pytest

import gensor_kernels
from gensor_kernels import dispatch
from gensor_kernels.dispatch.selection import load, tiers
from gensor_kernels.machine.arch import lookup
from tests.campaign_size import sample
from tests.database.test_pretuned import SHIPPED
from tests.dispatch import common_forms

FIRST = "sm_90"
ARCHS = [path.stem for path in SHIPPED]


@pytest.fixture(autouse=True)
def only_packaged(monkeypatch, tmp_path):
    """No kernels but the packaged ones."""
    monkeypatch.setenv("GENSOR_DB", str(tmp_path / "none.db"))
    monkeypatch.delenv("GENSOR_SITE_DB", raising=False)


@pytest.fixture(scope="module")
def requests_of_forms():
    """Every form with its requests to the tiers and its explanation, where FIRST is emulated."""
    found, requests = {}, []
    with pytest.MonkeyPatch.context() as patch:
        choose = tiers.choose
        patch.setattr(tiers, "choose", lambda request, library: requests.append(request) or choose(request, library))
        with gensor_kernels.emulated(FIRST):
            for form in common_forms.forms():
                requests.clear()
                explained = form.ask()
                assert form.label not in found
                found[form.label] = form._replace(ask=None), explained, list(requests)
    return found


def test_every_public_function_has_forms(requests_of_forms):
    public = {name for name, each in inspect.getmembers(gensor_kernels) if getattr(dispatch, name, None) is each}
    computing = {name for name in public if inspect.isfunction(getattr(dispatch, name))} - common_forms.OTHERS
    assert computing == {form.function for form, *_ in requests_of_forms.values()}


def test_calls_are_served_by_shipped_kernels(requests_of_forms):
    shipped = load.read(lookup(FIRST)).kernels
    without = [
        f"{label}: tier {explained.tier}, {explained.reason}"
        for label, (form, explained, _) in requests_of_forms.items()
        if form.served_on(lookup(FIRST)) and not (explained.tier in (2, 3) and explained.kernel in shipped)
    ]
    assert not without, without


@pytest.mark.parametrize("name", sample(ARCHS, 2))
def test_every_capability_has_kernels_of_every_form(name, requests_of_forms):
    arch = lookup(name)
    library = load.library(arch)
    without = [
        label
        for label, (form, _, requests) in requests_of_forms.items()
        if form.served_on(arch) and not all(is_served(replace(each, arch=arch), library) for each in requests)
    ]
    assert not without, without


def is_served(request, library):
    """Whether the tiers find a stored kernel."""
    recorded = library.record(request.problem.workload)
    return (recorded is not None and request.allows(recorded)) or bool(tiers.candidates(request, library))
