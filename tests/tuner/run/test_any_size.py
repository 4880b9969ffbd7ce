"""A row with `any_size`: its class gets verified kernels for sizes that no row names, and no record of them."""

import pytest

from gensor_database.record import Record
from gensor_database.store import Store
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_kernels.programs.registry import program_from_json
from gensor_kernels.programs.space import Space
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.portfolios import PORTFOLIO
from gensor_tuner.run.tune import Run
from gensor_tuner.shapes.reader import read_shapes


def tuned(folder, any_size):
    """Return results, usable kernels in the portfolio, and all records of a file with one reduction."""
    file = folder / f"{any_size}.csv"
    file.write_text(f"op,dtype,shape,axes,any_size\nreduce_sum,fp32,3x40,1,{any_size}\n")
    arch = lookup("sm_87")
    with Store.open(folder / f"{any_size}.db") as store:
        results = [result for _, result in Run(arch, store, Options(top=6)).rows(read_shapes(file))]
        class_key = results[0].workload.class_key()
        return results, store.portfolio(arch.name, arch.part, class_key), list(store.rows(Record))


def regret(kernels, workload):
    """Return the worst predicted time of the best of `kernels` over the usual sizes, relative to starters' best."""
    worst, arch = 1.0, lookup("sm_87")
    for shape in operator(workload.operator).usual(workload):
        space = Space(shape, arch).family("rows")
        starters = [space.point(each) for each in space.family.starters(shape, arch)]
        ours = [space.point(program_from_json(each.kernel.program)) for each in kernels]
        best = min(float(space.potential(point[None])[0]) for point in ours if space.legal(point[None])[0])
        worst = max(worst, best / min(float(space.potential(point[None])[0]) for point in starters))
    return worst


@pytest.mark.parametrize("spelling", ["2", "yes"])
def test_other_values_are_bad_rows(tmp_path, spelling):
    (tmp_path / "s.csv").write_text(f"op,m,n,k,any_size\nmatmul,64,64,64,{spelling}\n")
    (row,) = read_shapes(tmp_path / "s.csv")
    assert "s.csv:2: column 'any_size'" in row.error


def test_other_sizes_get_kernels_of_their_own(tmp_path):
    (result,), alone, _ = tuned(tmp_path, 0)
    (same,), kernels, records = tuned(tmp_path, 1)
    assert result.status == same.status == "ok" and same.program == result.program
    assert 2 <= len(kernels) <= PORTFOLIO and all(each.usable for each in kernels)
    assert [record.key for record in records] == [same.workload.key()]
    assert regret(kernels, same.workload) < 1.05 < regret(alone, same.workload)
