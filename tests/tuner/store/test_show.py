"""gensor-tune show: the source of a kernel as a person reads it."""

import json

from gensor_database import PRETUNED, Binary, Kernel, Store
from gensor_kernels.families.core.source import bind
from gensor_kernels.families.registry import FAMILIES

SHIPPED = PRETUNED / "sm_87.db"


def test_the_source_of_a_kernel_follows_its_constants_and_a_foreign_capability_is_named(gensor_tune):
    with Store.open(SHIPPED, readonly=True) as store:
        kernel = min(store.rows(Kernel), key=lambda each: each.digest)
        binary = store.get(Binary, kernel.binary_digest)
    status, out, err = gensor_tune("show", "--db", SHIPPED, "--kernel", kernel.digest, "--source")
    assert status == 0 and not err
    _, others, _ = gensor_tune("show", "--db", SHIPPED, "--arch", "sm_90")
    assert "no record is of sm_90: the database has records of sm_8" in others
    head, _, _ = out.partition("#define")
    assert kernel.digest in head and kernel.family in head
    constants = json.loads(binary.constants)
    assert all(f"#define {name} {value}\n" in out for name, value in constants.items() if str(value)[0] != "-")
    assert f"// ---- {FAMILIES[kernel.family].source}" in out and "#line" not in out
    lines = out[len(head) :].expandtabs(4).splitlines()
    assert [line for line in lines if line] == bind(FAMILIES[kernel.family].code, constants).splitlines()


def test_a_source_that_cannot_be_shown_is_a_sentence(gensor_tune, tmp_path):
    for arguments, words in ((), "--source goes with --kernel DIGEST"), (("--kernel", ""), " kernels whose digest beg"):
        status, out, err = gensor_tune("show", "--db", SHIPPED, "--source", *arguments)
        assert status == 2 and words in err and not out
    gensor_tune("merge", SHIPPED, "-o", "{}/bare.db")
    with Store.open(tmp_path / "bare.db", readonly=True) as store:
        digest = next(iter(store.rows(Kernel))).digest
    status, out, err = gensor_tune("show", "--db", "{}/bare.db", "--kernel", digest, "--source")
    assert status == 2 and "gensor-tune refresh" in err and not out
