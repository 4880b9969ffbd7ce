"""Drawn calls of products, convolutions, poolings, resizings and attention."""

from __future__ import annotations

import numpy as np

from .draw import Draw, draws


@draws("MatMul MatMulInteger")
def _matmul(d: Draw) -> None:
    m, n, k = (d.within(1, 6) for _ in range(3))
    lead = d.shape(0, 2)
    a, b = (*d.part(lead), m, k), (*d.part(lead), k, n)
    if d.operator == "MatMul":
        dtype = d.dtype()
        d.inputs = [d.array(each, dtype) for each in d.pick((a, b), (a, b), ((k,), b), (a, (k,)), ((k,), (k,)))]
        return
    d.inputs = [d.array(each, d.pick("uint8", "int8")) for each in (a, b)]
    for place, each in enumerate(d.inputs[:2], 2):
        if d.maybe(0.7):
            d.inputs += [None] * (place + 1 - len(d.inputs))
            d.inputs[place] = np.abs(d.array(d.pick((), (1,)), each.dtype.name)) * d.within(0, 1)


@draws("Gemm")
def _gemm(d: Draw) -> None:
    m, n, k = (d.within(1, 6) for _ in range(3))
    dtype, across, along = d.dtype(), d.within(0, 1), d.within(0, 1)
    d.inputs = [d.array((k, m) if across else (m, k), dtype), d.array((n, k) if along else (k, n), dtype)]
    d.attributes = {name: value for name, value in (("transA", across), ("transB", along)) if value or d.maybe()}
    d.attributes |= {
        name: d.number() if "int" not in dtype else float(d.within(-2, 2)) for name in ("alpha", "beta") if d.maybe()
    }
    if d.version < 11 or d.maybe(0.8):
        shape = d.pick((m, n), (n,), (1, n), (m, 1), (1,), (), (1, 1)) if d.version >= 7 else d.pick((m, n), (n,))
        d.inputs.append(d.array(shape, dtype))
        d.attributes["broadcast"] = int(shape != (m, n))


EQUATIONS = (
    *("ij,jk->ik", "bij,bjk->bik", "i,i->", "ij->ji", "ij->i", "ij,ij->i", " ij, kj -> ik", "ii->i", "ij,jk"),
    *("...ij,...jk->...ik", "bhid,bhjd->bhij", "ij,j,jk->ik"),
)


@draws("Einsum")
def _einsum(d: Draw) -> None:
    equation = d.pick(*EQUATIONS)
    sizes, dtype = {each: d.within(1, 4) for each in "ijkbhd"}, d.dtype(0, "float32", "float64", "int32", "float16")
    d.attributes["equation"] = equation
    for term in equation.partition("->")[0].replace(" ", "").split(","):
        d.inputs.append(d.array([2] * ("..." in term) + [sizes[each] for each in term.replace(".", "")], dtype))


@draws("Conv ConvTranspose MaxPool AveragePool")
def _window(d: Draw) -> None:
    spatial, dtype = d.pick(1, 2, 2, 2), d.dtype(0, "float32", "float16", "float64")
    taps = [d.within(1, 3) for _ in range(spatial)]
    strides = [d.within(1, 3) for _ in range(spatial)] if d.maybe() else None
    dilates = d.maybe(0.4) and (d.operator[:4] == "Conv" or d.version >= (10 if d.operator[0] == "M" else 19))
    dilations = [d.within(1, 2) for _ in range(spatial)] if dilates else None
    reach = [(tap - 1) * step + 1 for tap, step in zip(taps, dilations or [1] * spatial, strict=True)]
    image = [each + d.within(0, 5) for each in reach]
    mode = d.pick("NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    for name, value in (("strides", strides), ("dilations", dilations)):
        if value:
            d.attributes[name] = value
    if mode == "NOTSET" and d.maybe(0.7):
        most = [each - 1 if d.operator[-4:] == "Pool" else 2 for each in taps]
        d.attributes["pads"] = [d.within(0, each) for each in most * 2]
    elif mode != "NOTSET":
        d.attributes["auto_pad"] = mode
    channels, group, n = d.within(1, 3), d.within(1, 2), d.within(1, 2)
    if d.operator[-4:] == "Pool":
        d.attributes["kernel_shape"] = taps
        d.flags("ceil_mode", "count_include_pad", "storage_order")
        d.inputs = [d.array((n, channels, *image), dtype)]
        return
    filters = d.within(1, 3)
    shape = (filters * group, channels, *taps) if d.operator == "Conv" else (channels * group, filters, *taps)
    d.inputs = [d.array((n, channels * group, *image), dtype), d.array(shape, dtype)]
    if d.maybe():
        d.inputs.append(d.array((filters * group,), dtype))
    d.default("group", group, 1)
    d.option("kernel_shape", taps)
    if d.operator == "ConvTranspose" and d.maybe(0.4) and mode == "NOTSET":
        d.attributes["output_padding"] = [d.within(0, each - 1) for each in strides or [1] * spatial]
    elif d.operator == "ConvTranspose" and d.maybe(0.2):
        full = [s * (e - 1) + r for s, e, r in zip(strides or [1] * spatial, image, reach, strict=True)]
        d.attributes["output_shape"] = [max(each - d.within(0, 2), 1) for each in full]


@draws("Resize Upsample")
def _resize(d: Draw) -> None:
    shape, dtype = d.shape(4, 4), d.dtype(0, "float32", "float16", "uint8", "int32")
    mode = d.pick("nearest", "linear")
    dtype = "float32" if mode == "linear" and dtype[0] not in "f" else dtype
    up = d.operator == "Upsample"
    factors = (1.0, 2.0, 1.5, 3.0, 1.3, 2.6, *(() if up else (0.5, 0.6, 0.8, 0.35)))
    scales = [1.0, 1.0, d.pick(*factors), d.pick(*factors)]
    d.inputs = [d.array(shape, dtype)]
    d.attributes = {"mode": "bilinear" if up and d.version < 7 and mode == "linear" else mode}
    if up or d.version < 11:
        d.attributes |= {"height_scale": scales[2], "width_scale": scales[3]}
        if up and d.version < 7:
            return
        d.moved("scales", scales, 1, "float32")
        return
    coordinates = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
    coordinates += ["tf_half_pixel_for_nn"] if d.version < 13 else ["half_pixel_symmetric"] if d.version >= 19 else []
    d.option("coordinate_transformation_mode", d.pick(*coordinates), 0.8)
    d.option("nearest_mode", d.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    axes = d.random.sample((2, 3), d.within(1, 2)) if d.version >= 18 and d.maybe() else None
    chosen = [scales[each] for each in axes or range(4)]
    if axes:
        d.attributes["axes"] = axes
    empty = np.zeros(0, "float32")
    if d.maybe():
        d.inputs += [empty if d.version < 13 else None, np.asarray(chosen, "float32")]
        d.known |= {1, 2}
    else:
        extents = [shape[each] for each in axes or range(4)]
        sizes = [max(int(n * s + d.pick(0, 0.5)), 1) if s != 1 else n for n, s in zip(extents, chosen, strict=True)]
        d.inputs += [*[empty if d.version < 13 else None] * 2, np.asarray(sizes, "int64")]
        d.known |= {1, 2, 3}


@draws("Attention")
def _attention(d: Draw) -> None:
    batch, kv_heads, group, queries, keys, size = (d.within(1, 3) for _ in range(6))
    keys, size, dtype = keys + 2, 2 * size, d.dtype(0, "float32", "float16")
    heads, values = kv_heads * group, size if d.maybe() else d.within(1, 5)
    merged, past = d.maybe(0.4), d.within(1, 3) if d.maybe(0.3) else 0
    shapes = [(batch, heads, queries, size), (batch, kv_heads, keys, size), (batch, kv_heads, keys, values)]
    d.inputs = [d.array(each, dtype, 1.0) for each in shapes]
    if merged:
        d.inputs = [each.transpose(0, 2, 1, 3).reshape(batch, each.shape[2], -1) for each in d.inputs]
        d.attributes |= {"q_num_heads": heads, "kv_num_heads": kv_heads}
    if d.maybe():
        shape = (*d.part((batch, heads)), queries, keys + past)
        d.inputs.append(d.array(shape, d.pick("bool", dtype)))
    if past:
        d.inputs += [None] * (4 - len(d.inputs))
        d.inputs += [d.array((batch, kv_heads, past, each), dtype, 1.0) for each in (size, values)]
        d.outputs = 3
    d.option("is_causal", d.within(0, 1))
    d.option("scale", d.pick(0.0, 0.5, -0.3, 1.0), 0.6)
    d.option("softcap", d.pick(0.0, 0.7, 3.0), 0.4)
    if not past and d.version >= 24 and d.maybe(0.3):
        d.inputs += [None] * (6 - len(d.inputs))
        d.inputs.append(d.numbers.integers(1, keys + 1, (batch,)))
    if d.maybe(0.2):
        d.outputs = 4 if past else 1
        d.attributes["qk_matmul_output_mode"] = d.within(0, 3)


@draws("RotaryEmbedding")
def _rotary(d: Draw) -> None:
    batch, heads, length, size = d.within(1, 3), d.within(1, 3), d.within(1, 4), 2 * d.within(1, 4)
    rotated = d.pick(0, 2 * d.within(1, size // 2))
    merged, places, dtype = d.maybe(), d.maybe(), d.dtype()
    x = d.array((batch, heads, length, size), dtype)
    half = (rotated or size) // 2
    lead = (7,) if places else (batch, length)
    x = x.transpose(0, 2, 1, 3).reshape(batch, length, -1) if merged else x
    d.inputs = [x, *(d.array((*lead, half), dtype) for _ in range(2))]
    if places:
        d.inputs.append(d.numbers.integers(0, 7, (batch, length)))
    d.flags("interleaved")
    d.default("rotary_embedding_dim", rotated, 0)
    if merged or rotated:
        d.attributes["num_heads"] = heads


@draws("TensorScatter")
def _tensor_scatter(d: Draw) -> None:
    batch, heads, capacity, size = (d.within(1, 4) for _ in range(4))
    new, dtype = d.within(1, capacity), d.dtype()
    shape = d.pick((batch, heads, capacity, size), (batch, capacity, size))
    axis = len(shape) - 2
    update = (*shape[:axis], new, size)
    d.inputs = [d.array(shape, dtype), d.array(update, dtype)]
    circular = d.maybe()
    if d.maybe(0.8):
        d.inputs.append(d.numbers.integers(0, capacity if circular else capacity - new + 1, (batch,)))
    d.default("mode", "circular" if circular else "linear", "linear")
    d.option("axis", d.pick(axis, -2))
