"""Rosters of Programs: columns that are kept are the same for every size of their class."""

from dataclasses import replace

import numpy as np
import pytest

from gensor_kernels.dispatch.selection import library, predict
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.program_batch import Roster
from gensor_kernels.families.registry import FAMILIES, program_from_json
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload
from tests.doubles.kernels import ARCH, starters

from .lattices import random_legal
from .workloads import space


@pytest.mark.parametrize(
    ("name", "index"), [("simt", 0), ("mma", 0), ("mma", 9), ("simt", 2)], ids=["simt", "mma", "scaled", "epilogue"]
)
def test_a_roster_says_of_every_workload_what_a_fresh_one_says(name, index):
    lattice = space(f"contraction_{name}", index)
    programs = [lattice.program(point) for point in random_legal(lattice, 60)]
    kept = Roster(lattice.family, programs)
    for sizes in ({"m": 4096}, {"m": 17, "k": 128}, {"k": 1024, "n": 320}, {"m": 17, "k": 128}):
        for name in ("sm_89", "sm_80"):
            wanted = lattice.workload.with_sizes(**sizes)
            places, terms = kept.terms(wanted, lookup(name))
            alone, expected = Roster(lattice.family, programs).terms(wanted, lookup(name))
            assert np.array_equal(places, alone) and len(places)
            for field, column in vars(terms).items():
                assert np.array_equal(column, getattr(expected, field)), field


def test_a_program_made_before_its_class_had_streams_has_none():
    """Stored kernels of float64 do not name the coordinate."""
    family, arch, wanted = FAMILIES["contraction_mma"], lookup("sm_80"), workload(500, 300, 700, dtype="float64")
    new = family.starters(wanted, arch)[0]
    old = Program(new.family, tuple(pair for pair in new.values if pair[0] != "stream"))
    assert new["stream"] == 0 and old != new and old == program_from_json(old.to_json())
    lattice = FamilySpace(family, wanted, arch)
    assert np.array_equal(lattice.point(old), lattice.point(new))
    places, terms = Roster(family, [old, new]).terms(wanted, arch)
    assert places.tolist() == [0, 1] and terms is not None and len(set(terms.blocks)) == 1
    for strange in (old.values[1:], (*new.values, ("warps", 4))):
        with pytest.raises(ValueError, match="not a contraction_mma program"):
            lattice.point(Program(new.family, strange))


@pytest.mark.parametrize("family", [name for name, each in FAMILIES.items() if each.alignment_bounds_widths])
def test_kernels_of_several_alignment_classes_are_predicted_together_as_alone(family):
    wanted, kernels = workload(512, 256, 1024, trans_b=True), []
    arch, widths = lookup("sm_80"), [(16, 16, 16), (4, 16, 8), (8, 4, 4), (2, 4, 16)]
    if family == "contraction_blocks":  # of block-scaled weights, whose rows and those of a start at multiples of 4
        wanted = space(family, 0).workload.with_sizes(m=512, n=256, k=1024)
        widths[-1] = (4, 8, 2)
    for each in widths:
        narrow = replace(wanted, alignment=(*zip("abc", each, strict=True), *wanted.alignment[3:]))
        kernels += [library.generate(each, narrow, arch) for each in FAMILIES[family].starters(narrow, arch)]
    alone = [predict.predict([each], wanted, arch)[0] for each in kernels]
    assert predict.predict(kernels, wanted, arch) == alone and len(set(alone)) > len(kernels) / 2
    assert len(predict._group(kernels, lambda each: [each.program]).groups) == 2


def test_a_library_keeps_what_it_predicts_together_and_not_for_ever():
    wanted = workload(500, 300, 700, trans_b=True)
    kernels = list(starters(wanted))
    held = library.Library(library.Contents({kernel.digest: kernel for kernel in kernels}))
    alone = predict.predict(kernels, wanted, ARCH)
    assert predict.predict(kernels, wanted, ARCH, held) == predict.predict(kernels, wanted, ARCH, held) == alone
    assert predict.predict(kernels[::-1], wanted, ARCH, held) == alone[::-1] and len(held.ways) == 2
    held.reload()
    assert not held.ways
    for place in range(predict.MOST_LISTS + 1):
        held.ways[(str(place),)] = []
    predict.predict(kernels, wanted, ARCH, held)
    assert len(held.ways) == 1
