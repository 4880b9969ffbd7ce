"""A row with `any_size`: its class gets verified kernels for sizes that no row names, and no record of them."""

from gensor_database.record import Record
from gensor_database.store import Store
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.registry import program_from_json
from gensor_kernels.families.space import Space
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators import operator
from gensor_tuner.run.class_run import Options
from gensor_tuner.run.portfolios import PORTFOLIO
from gensor_tuner.run.tune import Run
from gensor_tuner.shapes.reader import read_shapes


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


def test_other_values_are_bad_rows(tmp_path):
    for spelling in ("2", "yes"):
        (tmp_path / "s.csv").write_text(f"op,m,n,k,any_size\nmatmul,64,64,64,{spelling}\n")
        (row,) = read_shapes(tmp_path / "s.csv")
        assert "s.csv:2: column 'any_size'" in row.error


def test_other_sizes_get_further_kernels(tuned, tmp_path):
    path, (workload, _) = tuned
    arch, place = lookup("sm_87"), ("sm_87", lookup("sm_87").part, workload.class_key())
    with Store.open(path, readonly=True) as store:
        kernels, (record,) = store.portfolio(*place), store.rows(Record, key=workload.key())
        program = store.kernel(record.kernel_digest).kernel.program
    assert 2 <= len(kernels) <= PORTFOLIO and all(each.usable for each in kernels)
    (tmp_path / "s.csv").write_text("op,dtype,shape,axes,any_size\nreduce_sum,fp32,3x40,1,0\n")
    with Store.open(tmp_path / "alone.db") as store:
        ((_, result),) = Run(arch, store, Options(top=6)).rows(read_shapes(tmp_path / "s.csv"))
        alone = store.portfolio(*place)
    assert result.status == "ok" and Program(result.family, tuple(result.program.items())).to_json() == program
    assert regret(kernels, workload) < 1.05 < regret(alone, workload)
