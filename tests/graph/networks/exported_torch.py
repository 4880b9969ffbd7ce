"""Networks of torch, torchvision and transformers as ONNX graphs without weights.

`python -m tests.graph.networks.exported_torch [NAME ...]` writes `exported/NAME.onnx.gz`; it needs torch,
torchvision and transformers, and downloads nothing. `exported_graphs` reads the files, and draws weights.

Parameters are NaN while a module is exported. Whatever the exporter makes of them, a folded batch norm or a transposed
matrix, is also NaN: these initializers are weights and lose their data. All others (masks, positions, angles) stay.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn

from .exported_graphs import FOLDER

#: Newest version of ONNX's operators that the package reads; torch's exporter offers it.
OPSET = 24
#: Newest version of the exporter that records TorchScript.
TRACED_OPSET = 20


class Export(NamedTuple):
    """A module, example inputs by name, the sizes that are symbolic, and names of results.

    `dynamic` has for each input the names of its symbolic axes.
    """

    module: nn.Module
    inputs: dict[str, torch.Tensor]
    dynamic: dict[str, dict[int, str]]
    outputs: tuple[str, ...]
    traced: bool = False


class Wrapper(nn.Module):
    """A model of transformers with tensors as arguments and results."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model


class Logits(Wrapper):
    """The tensors of a transformer's result, in place of its dictionary."""

    def __init__(self, model: nn.Module, *fields: str):
        super().__init__(model)
        self.fields = fields

    def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.model(*values)
        return tuple(getattr(found, each) for each in self.fields)


def _fill(pairs: Sequence[torch.Tensor]) -> Any:
    """Return a cache with keys and values that alternate, layer by layer."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    cache = DynamicCache()
    for key, value in zip(pairs[::2], pairs[1::2], strict=True):
        layer = DynamicLayer()
        # lazy_initialization would make tensors on the device, which may be absent.
        layer.keys, layer.values, layer.device, layer.is_initialized = key, value, key.device, True
        cache.layers.append(layer)
    return cache


def _flat(cache: Any) -> tuple[torch.Tensor, ...]:
    return tuple(each for layer in cache.layers for each in (layer.keys, layer.values))


class Prompt(Wrapper):
    """A language model from tokens to logits, and the keys and values of every layer."""

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.model(tokens, use_cache=True)
        return found.logits, *_flat(found.cache)


class Step(Wrapper):
    """A language model from a token, and the keys and values of all tokens before, to the same of one more."""

    def forward(self, tokens: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cache = _fill(past)
        found = self.model(tokens, cache=cache, use_cache=True)
        return found.logits, *_flat(cache)


class DecoderStep(Wrapper):
    """T5's decoder for one token: caches of the decoder's tokens, then of the encoder's."""

    def forward(self, tokens: torch.Tensor, encoded: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        from transformers.cache_utils import EncoderDecoderCache
        from transformers.modeling_outputs import BaseModelOutput

        half = len(past) // 2
        cache = EncoderDecoderCache(_fill(past[:half]), _fill(past[half:]))
        given = BaseModelOutput(last_hidden_state=encoded)
        found = self.model(encoder_outputs=given, decoder_input_ids=tokens, cache=cache, use_cache=True)
        return found.logits, *_flat(cache.self_attention_cache)


def _narrow_resnet() -> nn.Module:
    """Return ResNet-50 with an eighth of its channels and two blocks in each of its four stages."""
    from torchvision.models.resnet import Bottleneck, ResNet

    class Eighth(ResNet):
        def _make_layer(self, block: Any, planes: int, *args: Any, **keywords: Any) -> Any:
            return super()._make_layer(block, planes // 8, *args, **keywords)

    made = Eighth(Bottleneck, [2, 2, 2, 2])
    made.fc = nn.Linear(256, 64)
    return made


class _Convolution(nn.Sequential):
    def __init__(self, given: int, made: int, taps: int = 1, stride: int = 1):
        convolution = nn.Conv2d(given, made, taps, stride, taps // 2, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(made), nn.SiLU())


class _Stage(nn.Module):
    """Half of the channels pass `count` residual blocks, the other half passes by (cross-stage partial)."""

    def __init__(self, given: int, made: int, count: int):
        super().__init__()
        half = made // 2
        self.first, self.second = _Convolution(given, half), _Convolution(given, half)
        self.blocks = nn.ModuleList(
            nn.Sequential(_Convolution(half, half), _Convolution(half, half, 3)) for _ in range(count)
        )
        self.last = _Convolution(made, made)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        for block in self.blocks:
            y = y + block(y)
        return self.last(torch.cat([y, self.second(x)], dim=1))


class Detector(nn.Module):
    """A detector in the manner of YOLO: a backbone, a pyramid up and down, and three heads of decoded boxes."""

    def __init__(self, width: int = 32, depth: int = 1, classes: int = 80):
        super().__init__()
        w = [width * 2**place for place in range(5)]
        self.stem = _Convolution(3, w[0], 3, 2)
        self.down = nn.ModuleList(_Convolution(w[place], w[place + 1], 3, 2) for place in range(4))
        self.stages = nn.ModuleList(_Stage(w[place + 1], w[place + 1], depth) for place in range(4))
        self.pool, self.pooled = nn.MaxPool2d(5, 1, 2), _Convolution(4 * w[4], w[4])
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.narrow = nn.ModuleList([_Convolution(w[4], w[3]), _Convolution(w[3], w[2])])
        self.rise = nn.ModuleList([_Stage(2 * w[3], w[3], depth), _Stage(2 * w[2], w[2], depth)])
        self.sink = nn.ModuleList([_Convolution(w[2], w[2], 3, 2), _Convolution(w[3], w[3], 3, 2)])
        self.fall = nn.ModuleList([_Stage(w[2] + w[3], w[3], depth), _Stage(w[3] + w[4], w[4], depth)])
        self.heads = nn.ModuleList(nn.Conv2d(each, 5 + classes, 1) for each in w[2:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        found = []
        for down, stage in zip(self.down, self.stages, strict=True):
            x = stage(down(x))
            found.append(x)
        pooled = [x]
        for _ in range(3):
            pooled.append(self.pool(pooled[-1]))
        p5 = self.pooled(torch.cat(pooled, dim=1))
        n4 = self.narrow[0](p5)
        p4 = self.rise[0](torch.cat([self.up(n4), found[2]], dim=1))
        n3 = self.narrow[1](p4)
        p3 = self.rise[1](torch.cat([self.up(n3), found[1]], dim=1))
        p4 = self.fall[0](torch.cat([self.sink[0](p3), p4], dim=1))
        p5 = self.fall[1](torch.cat([self.sink[1](p4), p5], dim=1))
        cells = [head(p).flatten(2) for head, p in zip(self.heads, (p3, p4, p5), strict=True)]
        y = torch.cat(cells, dim=2).transpose(1, 2).sigmoid()
        extent = y[..., 2:4] * 2
        return torch.cat([y[..., :2] * 2 - 0.5, extent * extent, y[..., 4:]], dim=-1)


def _image(module: nn.Module, size: int, traced: bool = False) -> Export:
    return Export(module, {"x": torch.zeros(2, 3, size, size)}, {"x": {0: "batch"}}, ("y",), traced)


def _tokens(batch: int, count: int) -> torch.Tensor:
    return torch.zeros(batch, count, dtype=torch.int64)


def _resnet50(small: bool) -> Export:
    import torchvision

    return _image(_narrow_resnet() if small else torchvision.models.resnet50(weights=None), 64 if small else 224)


def _mobilenet_v2(small: bool) -> Export:
    from torchvision.models import MobileNetV2

    if not small:
        return _image(MobileNetV2(), 224)
    rows = [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 2, 2]]
    made = MobileNetV2(num_classes=64, inverted_residual_setting=rows)
    made.features[-1] = type(made.features[-1])(32, 64, kernel_size=1, activation_layer=nn.ReLU6)
    made.classifier[1] = nn.Linear(64, 64)
    return _image(made, 32)


def _vit(small: bool) -> Export:
    from torchvision.models import VisionTransformer

    if not small:
        return _image(VisionTransformer(224, 16, 12, 12, 768, 3072), 224)
    return _image(VisionTransformer(32, 8, 2, 4, 64, 128, num_classes=64), 32)


def _yolo(small: bool) -> Export:
    return _image(Detector(8, 1, 11) if small else Detector(), 64 if small else 640)


def _bert(small: bool) -> Export:
    from transformers import BertConfig, BertModel

    narrow = dict(vocab_size=128, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
    model = BertModel(BertConfig(**(narrow | {"max_position_embeddings": 64} if small else {})))
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = {each: _tokens(2, 16) for each in names}
    inputs["attention_mask"] += 1
    axes = {0: "batch", 1: "tokens"}
    module = Logits(model, "last_hidden_state", "pooler_output")
    return Export(module, inputs, {each: axes for each in names}, ("hidden", "pooled"))


def _language(model: nn.Module, step: bool, layers: int, heads: int, size: int) -> Export:
    names = [f"{each}_{layer}" for layer in range(layers) for each in ("key", "value")]
    results = ("logits", *(f"new_{each}" for each in names))
    if not step:
        return Export(Prompt(model), {"tokens": _tokens(2, 16)}, {"tokens": {0: "batch", 1: "tokens"}}, results)
    past = {each: torch.zeros(2, heads, 15, size) for each in names}
    dynamic = {"tokens": {0: "batch"}, **{each: {0: "batch", 2: "past"} for each in names}}
    return Export(Step(model), {"tokens": _tokens(2, 1), **past}, dynamic, results)


def _gpt2(small: bool, step: bool = False) -> Export:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(**(dict(vocab_size=128, n_positions=64, n_embd=64, n_layer=2, n_head=4) if small else {}))
    return _language(GPT2LMHeadModel(config), step, config.n_layer, config.n_head, config.n_embd // config.n_head)


def _llama(small: bool, step: bool = False) -> Export:
    """Return a Llama of two layers with grouped queries; the large one has the widths of Llama 3.2 1B."""
    from transformers import LlamaConfig, LlamaForCausalLM

    narrow = dict(vocab_size=128, hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2)
    wide = dict(
        **dict(vocab_size=8192, hidden_size=2048, intermediate_size=8192, num_attention_heads=32),
        **dict(num_key_value_heads=8, rope_theta=500000.0),
    )
    config = LlamaConfig(num_hidden_layers=2, max_position_embeddings=2048, **(narrow if small else wide))
    size = config.hidden_size // config.num_attention_heads
    return _language(LlamaForCausalLM(config), step, 2, config.num_key_value_heads, size)


def _t5_model(small: bool, attention: str = "sdpa") -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    narrow = dict(vocab_size=128, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4)
    # The defaults are T5-small's.
    return T5ForConditionalGeneration(T5Config(attn_implementation=attention, **(narrow if small else {})))


def _t5_encoder(small: bool) -> Export:
    inputs = {"input_ids": _tokens(2, 16), "attention_mask": _tokens(2, 16) + 1}
    axes = {0: "batch", 1: "tokens"}
    # torch's exporter fails on the encoder's fused attention of symbolic length: it views what it has transposed.
    module = Logits(_t5_model(small, "eager").encoder, "last_hidden_state")
    return Export(module, inputs, {each: axes for each in inputs}, ("encoded",))


def _t5_step(small: bool) -> Export:
    model = _t5_model(small)
    config = model.config
    names = [f"{each}_{layer}" for layer in range(config.num_layers) for each in ("key", "value")]
    own = {each: torch.zeros(2, config.num_heads, 15, config.d_kv) for each in names}
    cross = {f"encoded_{each}": torch.zeros(2, config.num_heads, 16, config.d_kv) for each in names}
    inputs = {"tokens": _tokens(2, 1), "encoded": torch.zeros(2, 16, config.d_model), **own, **cross}
    dynamic = {"tokens": {0: "batch"}, "encoded": {0: "batch", 1: "source"}}
    dynamic |= {each: {0: "batch", 2: "past"} for each in own} | {each: {0: "batch", 2: "source"} for each in cross}
    return Export(DecoderStep(model), inputs, dynamic, ("logits", *(f"new_{each}" for each in names)))


EXPORTS: dict[str, Callable[[bool], Export]] = {
    "resnet50": _resnet50,
    "mobilenet_v2": _mobilenet_v2,
    "vit_b_16": _vit,
    "bert_base": _bert,
    "gpt2": _gpt2,
    "gpt2_step": lambda small: _gpt2(small, True),
    "llama": _llama,
    "llama_step": lambda small: _llama(small, True),
    "t5_encoder": _t5_encoder,
    "t5_step": _t5_step,
    "yolo": _yolo,
    "bert_base_traced": lambda small: _bert(small)._replace(traced=True),
    "resnet50_traced": lambda small: _resnet50(small)._replace(traced=True),
}


def export_model(export: Export) -> onnx.ModelProto:
    module = export.module.eval()
    running = [each for name, each in module.named_buffers() if name.endswith(("running_mean", "running_var"))]
    with torch.no_grad():
        for each in (*module.parameters(), *running):
            each.fill_(float("nan"))
    names, values = list(export.inputs), tuple(export.inputs.values())
    keywords: dict[str, Any] = {"input_names": names, "output_names": list(export.outputs)}
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        if export.traced:
            stream = io.BytesIO()
            more = {"dynamic_axes": export.dynamic, "opset_version": TRACED_OPSET, "do_constant_folding": True}
            torch.onnx.export(module, values, stream, dynamo=False, **more, **keywords)
            return onnx.load_from_string(stream.getvalue())
        shapes = _dimensions(module, export.dynamic)
        program = torch.onnx.export(
            module, values, dynamo=True, opset_version=OPSET, dynamic_shapes=shapes, verbose=False, **keywords
        )
        return program.model_proto


def _dimensions(module: nn.Module, dynamic: Mapping[str, Mapping[int, str]]) -> Any:
    """Return symbolic sizes as torch.export wants them: by parameter; what `*values` take is a tuple."""
    sizes: dict[str, Any] = {}
    shapes = [
        {axis: sizes.setdefault(name, torch.export.Dim(name, min=1, max=4096)) for axis, name in axes.items()}
        for axes in dynamic.values()
    ]
    code = module.forward.__func__.__code__  # type: ignore[union-attr]
    count = code.co_argcount - 1
    return (*shapes[:count], tuple(shapes[count:])) if len(shapes) > count else tuple(shapes)


def strip(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model without data of its weights, inferred shapes, and notes of the exporter."""
    graph = model.graph
    for tensor in graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind == "f" and np.isnan(array).any():
            tensor.CopyFrom(onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=list(tensor.dims)))
    for node in graph.node:
        for each in node.attribute:
            if each.HasField("t") and numpy_helper.to_array(each.t).dtype.kind == "f":
                assert not np.isnan(numpy_helper.to_array(each.t)).any(), f"{node.name} has a weight in an attribute"
        del node.metadata_props[:]
        node.ClearField("doc_string")
    for value in (*graph.input, *graph.output, *graph.initializer):
        value.ClearField("doc_string")
        del value.metadata_props[:]
    del graph.value_info[:], graph.metadata_props[:], model.metadata_props[:]
    return model


def main(names: Sequence[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in names or [each + size for each in EXPORTS for size in ("", "_small")]:
        small = name.endswith("_small")
        model = strip(export_model(EXPORTS[name.removesuffix("_small")](small)))
        data = gzip.compress(model.SerializeToString(deterministic=True), mtime=0)
        (FOLDER / f"{name}.onnx.gz").write_bytes(data)
        print(f"{name}: {len(model.graph.node)} nodes, {len(data) / 1024:.1f} KiB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
