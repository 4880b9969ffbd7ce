"""Rosters of Programs: columns that are kept are the same for every size of their class."""

from dataclasses import replace

import numpy as np
import pytest

from gensor_kernels.dispatch.selection import library, predict
from gensor_kernels.families.core.lattice import COMPLETE
from gensor_kernels.families.core.program import Program
from gensor_kernels.families.core.program_batch import Roster
from gensor_kernels.families.registry import FAMILIES, program_from_json
from gensor_kernels.families.space import FamilySpace
from gensor_kernels.machine.arch import lookup
from gensor_kernels.operators.products.matmul import workload
from tests.doubles.kernels import ARCH, starters

from .lattices import random_legal
from .workloads import contract, space


def same(kept, fresh):
    (places, terms), (alone, expected) = kept, fresh
    assert np.array_equal(places, alone)
    for field, column in vars(terms).items() if terms is not None else ():
        assert np.array_equal(column, getattr(expected, field)), field
    return len(places)


@pytest.mark.parametrize(
    ("name", "index"), [("simt", 0), ("mma", 0), ("mma", 9), ("simt", 2)], ids=["simt", "mma", "scaled", "epilogue"]
)
def test_a_roster_says_of_every_workload_what_a_fresh_one_says(name, index):
    lattice = space(f"contraction_{name}", index)
    programs = [lattice.program(point) for point in random_legal(lattice, 60)]
    kept = Roster(lattice.family, programs)
    for sizes in ({"m": 4096}, {"m": 17, "k": 128}, {"k": 1024, "n": 320}, {"m": 17, "k": 128}):
        for name in ("sm_89", "sm_80"):
            wanted, arch = lattice.workload.with_sizes(**sizes), lookup(name)
            assert same(kept.terms(wanted, arch), Roster(lattice.family, programs).terms(wanted, arch))


@pytest.mark.parametrize("family", [name for name in FAMILIES if name.startswith("contraction_")])
def test_what_rosters_keep_for_a_class_does_not_depend_on_sizes(family):
    """With Programs that only some sizes forbid, and those that are legal for none."""
    rng, kinds, legal = np.random.default_rng(0), set(), 0
    for index, (_, wanted) in enumerate(contract(family).served):
        if (kind := (wanted.operator, bool(wanted.epilogue))) in kinds or len(kinds) == 3:
            continue
        kinds.add(kind)
        lattice = space(family, index)
        drawn = rng.integers(0, lattice.extents, (12, len(lattice.extents)))
        drawn[:, 0] = COMPLETE
        programs = [lattice.program(point) for point in (*random_legal(lattice, 12), *drawn)]
        kept = Roster(lattice.family, programs)
        for name in {"m", "n", "k", "h", "c", "k_out"} & wanted.size.keys():
            for factor in (8, 1):
                sized = wanted.with_sizes(**{name: factor * wanted.size[name]})
                if lattice.family.serves(sized, lattice.arch) is None:
                    fresh = Roster(lattice.family, programs).terms(sized, lattice.arch)
                    legal += same(kept.terms(sized, lattice.arch), fresh)
    assert legal


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
    together = predict._groups(kernels, None, lambda each: [each.program])
    assert len(set(map(id, together))) == 2


def test_a_library_keeps_what_it_predicts_together_whichever_of_them_is_asked_for():
    wanted, other = (workload(500, n, 700, trans_b=True) for n in (300, 52))
    kernels = list(starters(wanted))
    held = library.Library(library.Contents({kernel.digest: kernel for kernel in kernels}))
    alone, of_other = (predict.predict(kernels, each, ARCH) for each in (wanted, other))
    assert alone != of_other
    assert predict.predict(kernels[:1], wanted, ARCH, held) == alone[:1]
    kept = dict(held.groups)
    assert {kernel.digest for kernel in kernels if kernel.form == kernels[0].form} <= kept.keys()
    assert predict.predict(kernels, wanted, ARCH, held) == predict.predict(kernels, wanted, ARCH, held) == alone
    assert predict.predict(kernels[::-1], other, ARCH, held) == of_other[::-1]
    assert predict.predict(kernels, wanted, ARCH, held) == alone
    assert kept.items() <= held.groups.items()
    strange = replace(kernels[0], digest="strange")
    assert predict.predict([strange, kernels[1]], wanted, ARCH, held) == alone[:2]
    assert "strange" not in held.groups
    held.reload()
    assert not held.groups
