"""The comparison of stored picks with fresh walks: what is drawn, and which ways to choose include others."""

import json

from benchmarks.unseen import MOST_FLOPS, WAYS, drawn, main, variants
from gensor_kernels.dispatch.selection.library import constants, generate
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload
from gensor_kernels.programs.registry import FAMILIES


def test_the_draw_depends_on_its_seed_alone():
    first = [each.key() for each in drawn(40, 3)]
    assert first == [each.key() for each in drawn(40, 3)] != [each.key() for each in drawn(40, 4)]
    assert all(each.flops() <= MOST_FLOPS for each in drawn(40, 3))


def test_variants_differ_in_arguments_of_the_launch_alone():
    arch, wanted = lookup("sm_87"), workload(64, 64, 4096, dtype="float16")
    family = FAMILIES["contraction_mma"]
    program = next(each for each in family.starters(wanted, arch) if each["split_k"] > 1)
    found = list(variants(generate(program, wanted, arch), wanted, arch))
    arguments = {each.name for each in family.coordinates(wanted, arch) if each.runtime}
    assert program in found and len({each["split_k"] for each in found}) > 3
    for each in found:
        assert constants(each, wanted) == constants(program, wanted)
        assert {name for name, value in each.values if value != program[name]} <= arguments


def test_more_to_choose_from_is_never_predicted_to_be_slower(tmp_path, capsys):
    assert main(["--arch", "sm_87", "--shapes", "4", "--json", str(tmp_path / "u.json")]) == 0
    found = json.loads((tmp_path / "u.json").read_text())["sm_87"]
    assert found["worst"] and all(
        line["portfolio"] >= line["stored"] >= line["changed"] >= 1 for line in found["worst"]
    )
    printed = capsys.readouterr().out
    assert all(way in printed for way in WAYS)
