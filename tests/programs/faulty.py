"""What verification says of a Program whose source has one text in place of another."""

from gensor_kernels.operators.types.workload import Workload
from gensor_tuner.build.pool import Candidate
from gensor_tuner.verify.verify import Verdict, verify
from tests.mutator.engine.configuration import Changed


def verdict_without(before: str, after: str, each: Candidate, workload: Workload) -> Verdict:
    """The verdict on a Program with `after` for `before`, which occurs once in the family's source."""

    def edit(text: str) -> str:
        assert text.count(before) == 1, before
        return text.replace(before, after)

    return verify(Changed(each.program, each.family, each.constants, edit), workload, use_cache=False)
