"""Machine code that is written by hand, a line for each instruction."""

from gensor_kernels.build.instruction import Instruction


def code(*lines: str) -> list[Instruction]:
    """Read "LABEL: @P0 OPCODE operands | stall"; a branch names the label that it goes to."""
    read = [line.rpartition("|")[::2] if "|" in line else (line, "1") for line in lines]
    labels = {text.partition(":")[0]: at for at, (text, _) in enumerate(read) if ":" in text}
    made = []
    for text, stall in read:
        words = text.partition(":")[2].split() if ":" in text else text.split()
        predicate = words.pop(0)[1:] if words[0].startswith("@") else ""
        goal = labels.get(words[-1]) if words[0].startswith(("BRA", "CALL")) else None
        operands = " ".join(words[1:] if goal is None else [*words[1:-1], hex(goal * 16)])
        made.append(Instruction(predicate, words[0], operands, int(stall), goal))
    return made
