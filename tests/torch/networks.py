"""Small networks of torchvision and transformers with random weights, by name."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

#: Sizes of the transformers' models.
SIZES = {"vocab_size": 100, "use_cache": False}


def resnet() -> tuple[Any, tuple[Any, ...], Any]:
    """ResNet-50's bottlenecks, one block per stage."""
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed")
    network = models.ResNet(models.resnet.Bottleneck, [1, 1, 1, 1], num_classes=10, width_per_group=16)
    return network, (torch.randn(3, 3, 32, 32),), {0: "batch"}


def mobilenet() -> tuple[Any, tuple[Any, ...], Any]:
    """MobileNetV2 with three stages."""
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed")
    stages = [[1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 1, 2]]
    return (
        models.MobileNetV2(num_classes=10, inverted_residual_setting=stages),
        (torch.randn(3, 3, 32, 32),),
        {0: "batch"},
    )


def text() -> Any:
    """Token ids of three sequences."""
    return torch.randint(0, 100, (3, 16))


def bert() -> tuple[Any, tuple[Any, ...], Any]:
    """BERT with two layers, and a mask of padding."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=100
    )
    mask = torch.ones(3, 16, dtype=torch.int64)
    mask[1, 10:] = 0
    return transformers.BertModel(config), (text(), mask), {0: "batch", 1: "length"}


def gpt2() -> tuple[Any, tuple[Any, ...], Any]:
    """GPT-2 with two layers."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.GPT2Config(
        n_embd=32, n_layer=2, n_head=2, n_positions=64, bos_token_id=0, eos_token_id=0, **SIZES
    )
    return transformers.GPT2LMHeadModel(config), (text(),), {0: "batch", 1: "length"}


def llama() -> tuple[Any, tuple[Any, ...], Any]:
    """Llama with two layers, rotary embeddings and grouped queries."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.LlamaConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        **SIZES,
    )
    return transformers.LlamaForCausalLM(config), (text(),), {0: "batch", 1: "length"}


NETWORKS = {each.__name__: each for each in (resnet, mobilenet, bert, gpt2, llama)}


def made(name: str) -> tuple[Any, tuple[Any, ...], Any]:
    """Return a network in evaluation mode, its inputs, and the open axes of each input."""
    torch.manual_seed(0)
    network, inputs, axes = NETWORKS[name]()
    for each in network.modules():  # statistics as after training
        if isinstance(each, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(each.running_var, 0.5, 1.5)
            torch.nn.init.normal_(each.running_mean)
    return network.eval(), inputs, axes


def tensors(results: Any) -> list[Any]:
    """Return the tensors of a network's results, in order."""
    if isinstance(results, torch.Tensor):
        return [results]
    return [each for each in (results.to_tuple() if hasattr(results, "to_tuple") else results) if each is not None]
