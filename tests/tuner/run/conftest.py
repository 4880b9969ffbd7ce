"""A small database that tests of portfolios share."""

import pytest

from gensor_database.store import Store
from gensor_kernels.machine.arch import lookup
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.tune import Run
from gensor_tuner.shapes.reader import read_shapes


@pytest.fixture(scope="session")
def tuned(tmp_path_factory):
    """Return the path of a database with two classes of reductions for any size, and their workloads."""
    folder = tmp_path_factory.mktemp("portfolios")
    file = folder / "s.csv"
    file.write_text("op,dtype,shape,axes,any_size\nreduce_sum,fp32,3x40,1,1\nreduce_max,fp16,3x40,1,1\n")
    with Store.open(folder / "kernels.db") as store:
        results = [result for _, result in Run(lookup("sm_87"), store, Options(top=6)).rows(read_shapes(file))]
    return folder / "kernels.db", [result.workload for result in results]
