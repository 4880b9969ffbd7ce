"""Shared by every test: where built files go, the hypothesis profiles, the gpu marker, --update-golden."""

import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from gensor_database import trust

from .campaign_size import FULL, SEED, sample

ROOT = Path(__file__).resolve().parents[1]
#: Settings of the tests themselves; those of the user would change what is tested.
KEPT = ("GENSOR_TEST_CACHE", "GENSOR_CAMPAIGN", "GENSOR_CAMPAIGN_SEED")

# The properties run on a shared machine, so no deadline; `acceptance` is the long run of CONTRIBUTING.md.
settings.register_profile("default", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("acceptance", settings.get_profile("default"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden instead of comparing with it")


def pytest_report_header(config):
    return f"campaigns: GENSOR_CAMPAIGN_SEED={SEED}"


def pytest_configure(config):
    # Host builds and verdicts are keyed by everything they depend on, so runs and workers may share them; the
    # user's own cache and database stay untouched.
    cache = Path(os.environ.get("GENSOR_TEST_CACHE", ROOT / ".pytest_cache" / "gensor"))
    if trust.folder_objection(cache, "GENSOR_TEST_CACHE"):  # a clone that others can write to, or of another user's
        cache = Path(tempfile.gettempdir(), f"gensor-kernels-tests-{os.geteuid()}" if os.name == "posix" else "gensor")
    cache.mkdir(parents=True, exist_ok=True)
    os.chmod(cache, 0o700)
    for name in [name for name in os.environ if name.startswith("GENSOR_") and name not in KEPT]:
        del os.environ[name]
    # CuPy's TF32 switch asks a device for its compute capability; tests that are about it set it themselves.
    os.environ.pop("CUPY_TF32", None)
    os.environ["GENSOR_CACHE_DIR"] = str(cache)
    os.environ["GENSOR_DB"] = str(cache / "no-such-folder" / "user.db")
    os.environ["GENSOR_PLANS"] = "0"  # tests are about planning
    # A call that comes often would be tuned in the background, into the database that all tests see.
    os.environ["GENSOR_BACKGROUND"] = "0"
    os.environ.setdefault("CUPY_CACHE_DIR", str(cache / "cupy"))
    # What a shell starts in the background ignores Ctrl-C, and so would the programs that tests interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _drawn_torch_tests(config, items):
    """A handful of the tests that need PyTorch, unless the command names them: all take minutes."""
    if FULL or any("torch" in os.path.relpath(each.partition("::")[0], ROOT) for each in config.args):
        return items
    slow = [item for item in items if "torch" in str(item.path.relative_to(ROOT))]
    kept = {*sample(slow, 6)}
    dropped = [item for item in slow if item not in kept]
    config.hook.pytest_deselected(items=dropped)
    return [item for item in items if item not in {*dropped}]


def pytest_collection_modifyitems(config, items):
    items[:] = _drawn_torch_tests(config, items)
    if not FULL:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("nightly")])
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    for item in items:
        if item.get_closest_marker("fleet"):
            item.add_marker(pytest.mark.allow_hosts(["127.0.0.1"]))
    gpu = [item for item in items if item.get_closest_marker("gpu")]  # a folder of that name is a keyword, too
    if not gpu:
        return
    reason = why_no_gpu()
    if reason:
        for item in gpu:
            item.add_marker(pytest.mark.skip(reason=reason))


def why_no_gpu() -> str | None:
    """Why tests of the gpu marker cannot run; CuPy 13's `is_available` raises where there is no driver."""
    from gensor_kernels.devices import cuda
    from gensor_kernels.errors import ToolMissingError

    try:
        cuda.current_device()
    except ToolMissingError as error:
        return str(error)
    return None


@pytest.fixture(autouse=True)
def _environment_restored():
    """No test leaves environment variables to the next one of its worker: what CuPy reads at first use, say."""
    before = dict(os.environ)
    yield
    # pytest's own variable names the running phase and is gone at teardown.
    for name in os.environ.keys() - before.keys() - {"PYTEST_CURRENT_TEST"}:
        del os.environ[name]
    os.environ.update({name: value for name, value in before.items() if name != "PYTEST_CURRENT_TEST"})


@pytest.fixture(autouse=True)
def _nothing_said_yet(monkeypatch):
    """Warnings that are said once per process are said once per test."""
    from gensor_database import errors
    from gensor_kernels import config

    monkeypatch.setattr(config, "_warned", set())
    monkeypatch.setattr(errors, "_reported", set())


@pytest.fixture
def needs_emulator():
    """Skip a test where the emulator cannot be built: without g++, or not on Linux."""
    from gensor_kernels.devices.emulator.build import compiler
    from gensor_kernels.errors import ToolMissingError

    try:
        compiler()
    except ToolMissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def gensor_tune(monkeypatch, capsys, tmp_path):
    """gensor_tune("show", "--db", "{}/x.db") -> (exit code, stdout, stderr); {} in an argument is the test's folder."""
    cli = pytest.importorskip("gensor_tuner.cli.app")

    def run(*arguments):
        line = [str(each).replace("{}", str(tmp_path)) for each in arguments]
        monkeypatch.setattr(sys, "argv", ["gensor-tune", *line])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def no_databases(monkeypatch, tmp_path):
    """Hide all databases but those that the test makes; the path of the user's own."""
    import gensor_kernels
    from tests.doubles.stored import isolate

    yield isolate(monkeypatch, tmp_path)
    gensor_kernels.refresh()


@pytest.fixture
def orin(monkeypatch):
    """A machine with an Orin Nano under the real CudaDevice (doubles/strict), without races: its times are no GPU's.

    `orin.calls` are its launches.
    """
    pytest.importorskip("cupy")
    from tests.doubles.strict.machine import without_races

    with without_races(monkeypatch, "orin-nano-8gb") as machine:
        yield machine
