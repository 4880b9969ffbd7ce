"""Mutants that no test can catch: survivors.toml has the reason why each behaves like the original."""

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PROOFS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["equivalent"]
#: Reasons by the mutant's name, with its group in front where the reason holds only there.
EQUIVALENT = {mutant: " ".join(each["reason"].split()) for each in _PROOFS for mutant in each["mutants"]}


def is_equivalent(group: str, mutant: str) -> bool:
    """Return whether there is a proof for a mutant, for all Programs or for this group."""
    return mutant in EQUIVALENT or f"{group}: {mutant}" in EQUIVALENT
