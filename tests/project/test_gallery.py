"""The notebooks of docs/gallery run from top to bottom, warn of nothing and draw."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign_size import sample

pytest.importorskip("matplotlib")

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "gallery").glob("*.py"))
#: Runs a notebook and counts the figures that it shows.
RUN = """
import runpy, sys
import matplotlib
matplotlib.use("Agg")
from matplotlib import pyplot
shown = []
pyplot.show = lambda: shown.extend(pyplot.get_fignums())
runpy.run_path(sys.argv[1])
print("figures:", len(set(shown)))
"""


@pytest.mark.parametrize("notebook", sample(NOTEBOOKS, 2), ids=lambda path: path.stem)
def test_a_notebook_runs(notebook, tmp_path):
    environment = {**os.environ, "GENSOR_CACHE_DIR": str(tmp_path), "MPLCONFIGDIR": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-c", RUN, str(notebook)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.rsplit("figures: ", 1)[1]) >= 1
