"""One zygote for all lives of a session, and the database their merges read."""

import pytest

from gensor_database import opening
from tests.campaign_size import sample

from .lives.checks import JOURNALS
from .lives.lives import Stage, Zygote


@pytest.fixture(scope="session")
def zygote(tmp_path_factory):
    made = Zygote(tmp_path_factory.mktemp("zygote"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def stage(zygote, tmp_path_factory):
    return Stage(zygote, tmp_path_factory.mktemp("stage"))


@pytest.fixture(params=sample(JOURNALS, 1))
def journal(request, monkeypatch):
    """One journal mode in a push, both nightly; databases that this process opens have it as well."""
    monkeypatch.setattr(opening, "is_remote", lambda path: request.param == "delete")
    return request.param
