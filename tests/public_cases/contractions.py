"""einsum and operators of the user's own, drawn: against NumPy's einsum in float64, activations against ONNX."""

from typing import Any

import numpy as np

import gensor_kernels as gk
from gensor_kernels.operators.types.epilogue import Step

from .drawing import FLOATS, Draw
from .references import ACTIVATIONS, product_agrees, prologue
from .serving import Served

DTYPES = (*FLOATS, "int8", "complex64", "complex128")


class Letters:
    """Letters of two operands and of the result, in groups, and their extents."""

    def __init__(self, draw: Draw, alone: bool):
        letters = [str(each) for each in draw.rng.permutation(list("abcdefghij"))]
        counts = {"batch": [0, 0, 1, 2], "m": [0, 1, 1, 2], "n": [0, 1, 1, 2], "k": [0, 1, 1, 2, 2]}
        counts |= {"a": [0, 0, 0, 1], "b": [0, 0, 0, 1]} if alone else {"a": [0], "b": [0]}
        self.groups = {name: [letters.pop() for _ in range(draw.pick(few))] for name, few in counts.items()}
        g = self.groups
        self.first = self._shuffle(draw, g["batch"] + g["m"] + g["k"] + g["a"])
        self.second = self._shuffle(draw, g["batch"] + g["n"] + g["k"] + g["b"])
        self.output = self._shuffle(draw, g["batch"] + g["m"] + g["n"])
        self.size = {each: draw.pick([1, 2, 3, 4, 5, 9]) for each in "abcdefghij"}
        if draw.often(0.08):
            self.size[draw.pick([*self.first, *self.second, "a"])] = 0
        draw.traits |= {name for name, held in self._traits().items() if held}

    def _shuffle(self, draw: Draw, letters: list[str]) -> list[str]:
        return [str(each) for each in draw.rng.permutation(letters)] if letters else []

    def _traits(self) -> dict[str, Any]:
        g = self.groups
        return {"batch": g["batch"], "summed letter": g["a"] + g["b"], "two k": len(g["k"]) > 1, "no k": not g["k"]}

    def shape(self, letters: list[str]) -> list[int]:
        return [self.size[each] for each in letters]

    @property
    def terms(self) -> int:
        """Products in each sum."""
        return int(np.prod(self.shape([*self.groups["k"], *self.groups["a"], *self.groups["b"]])))


def chain(draw: Draw, served: Served) -> None:
    """Three and four operands, which are contracted two at a time."""
    dtype, size = draw.pick(["float32", "float64", "complex64"]), {each: draw.pick([1, 2, 3, 5]) for each in "abcdef"}
    draw.special = ""
    if draw.often(0.05):
        size[draw.pick("abc")] = 0
    text = draw.pick(
        ["ab,bc,cd->ad", "ab,bc,cd,de->ae", "ab,ab,ab->b", "abc,bd,cd->a", "ab,cd,ef->", "a,a,b", "ab,b,b->a"]
    )
    parts = text.partition("->")[0].split(",")
    arrays = [draw.array([size[each] for each in part], dtype) for part in parts]
    found = served.call(
        gk.einsum, text, *arrays, optimize=draw.pick([False, True, "greedy", "optimal"]), nothing=0 in size.values()
    )
    wide_ones = [each.astype(np.complex128 if dtype == "complex64" else np.float64) for each in arrays]
    values, total = np.einsum(text, *wide_ones), np.einsum(text, *map(np.abs, wide_ones))
    assert found.dtype == dtype and found.shape == values.shape
    terms = 16 * int(np.prod(list(size.values()))) + 64
    assert (np.abs(found - values) <= terms * np.finfo(dtype).eps * total).all(), (found, values)


def einsum(draw: Draw, served: Served) -> None:
    if draw.extreme and draw.often(0.12):
        return chain(draw, served)
    dtype, names = draw.pick(DTYPES), Letters(draw, alone=True)
    if "summed letter" in draw.traits and draw.special == "inf":
        draw.special = ""  # inf b1 + inf b2 is not inf (b1 + b2)
    first, shape, second = names.first, names.shape(names.first), names.shape(names.second)
    if first and draw.often(0.12):
        first, shape = [*first, first[0]], [*shape, shape[0]]
        draw.traits.add("diagonal")
    if second and second[0] != 0 and draw.often(0.1):
        second[0] = 1  # broadcast against the other operand's, which is summed alone where it is summed
        if draw.special == "inf":
            draw.special = ""
    a, b = draw.array(shape, dtype), draw.array(second, dtype)
    parts = ["".join(each) for each in (first, names.second, names.output)]
    text = f"{parts[0]},{parts[1]}->{parts[2]}"
    batch = "".join(names.groups["batch"])
    if batch and "diagonal" not in draw.traits and all(part.startswith(batch) for part in parts):
        text = text.replace(batch, "...")
        draw.traits.add("ellipsis")
    keywords: dict[str, Any] = {}
    if dtype.startswith("complex") and draw.often(0.5):
        keywords["conjugate"] = draw.pick([(0,), (1,), (0, 1)])
        draw.traits.add("conjugate")
    alone = names.groups["a"] or names.groups["b"] or second != names.shape(names.second)
    if dtype == "int8" and not alone and draw.often(0.5):
        keywords["dtype"] = np.int32  # sums of one operand alone would be int32, and kernels do not multiply these
    before: list[Step] = []
    if first and not keywords:
        keywords["prologue"], before = prologue(draw, dtype, shape[-1], share=0.12, curves=False)
    given: tuple[Any, ...] = (text, a, b)
    if draw.extreme:
        keywords["optimize"] = draw.pick([False, True, "greedy", "optimal", ("greedy", 100)])
        if draw.often(0.3):
            lists = [[ord(each) - 97 for each in part] for part in (first, names.second, names.output)]
            given = (a, lists[0], b, lists[1], lists[2])
        if draw.refuses(0.06, "subscripts that do not fit"):
            added = text + "ZZ", text.replace("->", "x->"), text.replace(",", ",,"), text + "->"
            wrong = [*added, "->", "1,2->", text[1:] + "Q"]
            given = (draw.pick(wrong), a, b)
    found = served.call(gk.einsum, *given, nothing=names.terms == 0, **keywords)
    conjugate = keywords.get("conjugate", ())
    product_agrees(found, lambda x, y: np.einsum(text, x, y), a, b, names.terms, conjugate=conjugate, prologue=before)


def define(draw: Draw, served: Served) -> None:
    dtype, names = draw.pick((*FLOATS, "complex64")), Letters(draw, alone=False)
    a, b = (draw.array(names.shape(each), dtype) for each in (names.first, names.second))
    epilogue: list[Any] = []
    steps: list[Step] = []
    operands = []
    for _ in range(draw.pick([0, 1, 2, 3]) if dtype in FLOATS else 0):
        name = draw.pick(["scale", "bias", "add", "mul", "mask", *ACTIVATIONS])
        draw.traits.add(name if name not in ACTIVATIONS else "activation")
        if name == "scale":
            epilogue.append((name, 0.5))
            steps.append(Step(name, None, 0.5))
        elif name in ACTIVATIONS:
            epilogue.append(name)
            steps.append(Step(name))
        else:
            own = [each for each in draw.rng.permutation(names.output) if draw.often(0.6)] if names.output else []
            x = draw.array(names.shape(own), dtype, special=False)
            x = np.asarray(x > 0) if name == "mask" else x
            epilogue.append((name, " ".join(own), -2.0) if name == "mask" else (name, " ".join(own)))
            spread = np.einsum(f"{''.join(own)}->{''.join(e for e in names.output if e in own)}", x)
            places = tuple(slice(None) if each in own else None for each in names.output)
            steps.append(Step(name, spread[places], -2.0 if name == "mask" else 0.0))
            operands.append(x)
    expression = f"{' '.join(names.first)}, {' '.join(names.second)} -> {' '.join(names.output)}"
    found = served.call(gk.define(expression, epilogue=epilogue), a, b, *operands, nothing=names.terms == 0)
    text = expression.replace(" ", "")
    product_agrees(found, lambda x, y: np.einsum(text, x, y), a, b, names.terms, steps=steps)


CASES = {"einsum": einsum, "define": define}
