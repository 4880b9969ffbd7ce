"""Float32 models computed in 16 bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gensor_kernels.graph.ir.graph import Graph, Node, Spec
from gensor_kernels.graph.ir.links import Links

FLOAT32 = np.dtype(np.float32)
#: Operators whose results exceed the range or the precision of 16 bits: computed in float32, with all that follows from
#: them alone.
WIDE = (
    *("Pow", "Exp", "Log", "CumSum", "LRN", "LpNormalization", "MeanVarianceNormalization", "ReduceL1"),
    *("ReduceLogSum", "ReduceLogSumExp", "ReduceProd", "ReduceSumSquare", "Range", "Tan", "Sinh", "Cosh"),
)
#: Operators of the weights of a model, which are in 16 bits wherever their inputs follow from the data.
PRODUCTS = ("Attention", "Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul")
#: Operators whose float32 results do not have the dtype of their floating-point inputs.
KEPT = ("DequantizeLinear",)
#: Constants this large stand for infinity, as in masks; smaller ones beyond the range are numbers.
BOUNDLESS = 1e9


def narrow_floats(graph: Graph, dtype: np.dtype[np.generic]) -> None:
    """Compute the float32 tensors of a graph in 16 bits, its constants cast once.

    Inputs and results keep their dtypes: a Cast follows an input, and precedes a result. Tensors that are computed from
    integers and constants alone (positions, masks) and by operators of WIDE stay float32 until they meet a tensor of 16
    bits. Constants and tensors of at least BOUNDLESS, which are masks, become the largest finite numbers; infinities
    stay. A node that reads another constant beyond the range is computed in float32. Batch norms and norms in parts,
    whose constants need float32, are folded before.
    """
    _Narrowing(graph, dtype).apply()


class _Narrowing:
    def __init__(self, graph: Graph, dtype: np.dtype[np.generic]):
        self.graph, self.dtype = graph, dtype
        self.most = float(_finfo(dtype).max)
        self.copies: dict[tuple[str, bool], str] = {}  # of tensors in the other dtype, by whether it is narrow
        self.narrow: set[str] = set()  # tensors of 16 bits
        self.data: set[str] = set()  # tensors that follow from float32 inputs or from weights
        self.casts: dict[str, list[Node]] = {}  # of a tensor into its copies

    def apply(self) -> None:
        """Go through the nodes in order."""
        graph = self.graph
        results = [name for name in dict.fromkeys(graph.outputs) if self._is_float(name)]
        self.data |= {name for name, spec in graph.inputs.items() if spec.dtype == FLOAT32}
        changed = [self._change(node) for node in graph.nodes]
        # A cast right after its tensor is computed before every kernel that could join a reader of it.
        graph.nodes = [cast for name in graph.inputs for cast in self.casts.get(name, ())]
        for node in changed:
            graph.nodes += [node, *(cast for name in node.outputs for cast in self.casts.get(name, ()))]
        links = Links(graph)
        for name in results:
            made = links.maker(name)
            if made is not None and name in self.narrow:
                inner = links.fresh(name + ".narrow", name)
                graph.specs[name] = graph.specs[inner]._replace(dtype=FLOAT32)
                links.rename(name, inner)
                outputs = tuple(inner if each == name else each for each in made.outputs)
                links.put(made, replace(made, outputs=outputs), self._cast(inner, name, FLOAT32))
        links.store()

    def _is_float(self, name: str) -> bool:
        found = self.graph.spec(name) if name else None
        return found is not None and found.dtype == FLOAT32

    def _change(self, node: Node) -> Node:
        """Return a node with its inputs in the dtype that it is computed in, and note what its results are."""
        reads = [each for each in node.reads() if self._is_float(each) or each in self.narrow]
        data = [each for each in reads if each in self.data]
        weights = [each for each in reads if each in self.graph.constants]
        from_data = bool(data) or (node.op == "Gather" and node.inputs[0] in weights and not self._is_position(node))
        is_narrow = from_data and self._is_narrow(node, data, weights)
        if reads:
            node = node.reading({each: self._in(each, is_narrow) for each in dict.fromkeys(reads)})
        if is_narrow and node.op == "Cast" and self._is_float(node.outputs[0]):
            node = replace(node, attributes={**node.attributes, "to": _number(self.dtype)})
        for name in node.outputs:
            if name and from_data:
                self.data.add(name)
            if name and is_narrow and self._is_float(name):
                self.narrow.add(name)
                spec = self.graph.specs[name]
                self.graph.specs[name] = Spec(self.dtype, spec.shape)
        return node

    def _is_position(self, node: Node) -> bool:
        """Return whether a Gather picks from a vector, a table of numbers and not of weights."""
        return len(self.graph.shape(node.inputs[0]) or ()) < 2

    def _is_narrow(self, node: Node, data: list[str], weights: list[str]) -> bool:
        if node.op in KEPT or not any(self._is_float(each) for each in node.outputs if each):
            # Comparisons and casts to other types read their inputs as they are.
            return bool(set(data) & self.narrow)
        if node.op in WIDE or any(self._exceeds(self.graph.constants[each]) for each in weights):
            return False
        if node.op in PRODUCTS or node.op == "Gather" or not data:
            return True
        return any(each in self.narrow or each in self.graph.inputs for each in data)

    def _exceeds(self, constant: np.ndarray) -> bool:
        """Return whether numbers that are no masks are beyond the range."""
        return self.graph.derived.fact(("exceeds", self.dtype.name), constant, lambda: self._has_larger(constant))

    def _has_larger(self, constant: np.ndarray) -> bool:
        if self._fits(constant):
            return False
        size = np.abs(constant[np.isfinite(constant)])
        return bool(((size > self.most) & (size < BOUNDLESS)).any())

    def _fits(self, constant: np.ndarray) -> bool:
        """Return whether all elements are finite and within the range."""
        return not constant.size or bool(constant.max() <= self.most and constant.min() >= -self.most)

    def _in(self, name: str, is_narrow: bool) -> str:
        """Return the name of a tensor in 16 bits, or in float32."""
        if (name in self.narrow) == is_narrow:
            return name
        if (name, is_narrow) not in self.copies:
            self.copies[name, is_narrow] = self._copy(name, is_narrow)
        return self.copies[name, is_narrow]

    def _copy(self, name: str, is_narrow: bool) -> str:
        graph = self.graph
        copy = f"{name}.{self.dtype.name if is_narrow else 'float32'}"
        if name in graph.constants:
            wide = graph.constants[name]
            how = "cast", self.dtype.name
            found = graph.add(copy, graph.derived.array(how, [wide], lambda: self._saturate(wide)))
            self.narrow.add(found)
            return found
        spec = graph.spec(name)
        assert spec is not None
        dtype = self.dtype if is_narrow else FLOAT32
        graph.specs[copy] = Spec(dtype, spec.shape)
        self.casts.setdefault(name, []).append(self._cast(name, copy, dtype))
        if is_narrow:
            self.narrow.add(copy)
        if name in self.data:
            self.data.add(copy)
        return copy

    def _cast(self, name: str, result: str, dtype: np.dtype[np.generic]) -> Node:
        # Masks are computed from integers; what a caller gives is cast as it is.
        saturates = dtype != FLOAT32 and name not in self.graph.inputs
        return Node("Cast", (name,), (result,), {"to": _number(dtype), "finite": int(saturates)}, result)

    def _saturate(self, constant: np.ndarray) -> np.ndarray:
        if self._fits(constant):
            return constant.astype(self.dtype)
        finite = np.clip(constant, -self.most, self.most)
        return np.where(np.isfinite(constant), finite, constant).astype(self.dtype)


def _number(dtype: np.dtype[np.generic]) -> int:
    """Return the standard's number of a dtype."""
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(dtype))


def _finfo(dtype: np.dtype[np.generic]) -> np.finfo[np.floating]:
    import ml_dtypes

    return ml_dtypes.finfo(dtype)
