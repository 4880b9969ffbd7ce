"""Fit of a machine.residual.Residual to measured times: LightGBM's boosted trees, shrunk from all parts to one part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gensor_kernels.errors import ToolMissingError
from gensor_kernels.install import command
from gensor_kernels.machine.residual import SPLITS, UNSEEN, Forest, Part, Residual

#: Models whose mean is the prediction and whose spread is the doubt; each sees this share of the rows.
BAGS, SHARE = 4, 0.7
#: Settings of a bag's trees over all parts, and of one part's additional trees.
SHARED = {"rounds": 20, "learning_rate": 0.3, "min_data_in_leaf": 100}
OWN = {"rounds": 8, "learning_rate": 0.2, "min_data_in_leaf": 12}
#: Number of measurements at which an offset counts as much as its prior, 0.
OFFSET_PRIOR = 8.0
#: Standard deviation of a part's weight of the shared trees around UNSEEN.
WEIGHT_DEVIATION = 0.3
#: Doubt about an unmeasured part, if no two parts show it; also the prior for a part with few measurements.
UNSEEN_NOISE = 0.25
#: The fewest measurements for trees.
FEWEST = 2 * OWN["min_data_in_leaf"]
#: Number of leaves to fill from few measurements: leaves of shared trees are smaller then.
LEAVES = 20


@dataclass(frozen=True)
class Measured:
    """One operator and dtype on one part: features ``x`` (features, n), ``y`` = ln(measured / predicted) (n,).

    ``capability`` and ``sms`` describe the part, so that others of its capability can borrow from it.
    """

    part: str
    dtype: str
    operator: str
    x: np.ndarray
    y: np.ndarray
    capability: str = ""
    sms: int = 0


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError as error:
        raise ToolMissingError(f"learning residuals needs LightGBM: {command('learn')}") from error
    return lightgbm


def _nested(node: Any) -> Any:
    """Convert a tree for machine.residual.Forest; thresholds round down, so float32 features stay on their side."""
    if "leaf_value" in node:
        return round(float(node["leaf_value"]), 6)
    threshold = np.float32(node["threshold"])
    if threshold > node["threshold"]:
        threshold = np.nextafter(threshold, np.float32(-np.inf))
    return [node["split_feature"], float(threshold), _nested(node["left_child"]), _nested(node["right_child"])]


def _boost(x: np.ndarray, y: np.ndarray, weights: np.ndarray, settings: dict[str, Any], seed: int) -> list[Any]:
    """Return boosted trees over (features, n) as nested lists."""
    library = _lightgbm()
    settings = dict(settings)
    rounds = settings.pop("rounds")
    fixed = {"objective": "regression", "num_leaves": SPLITS + 1, "max_bin": 31, "lambda_l2": 1.0, "seed": seed}
    quiet = {"num_threads": 1, "deterministic": True, "force_row_wise": True, "verbosity": -1}
    data = library.Dataset(x.T.astype(np.float64), y, weight=weights, params={"verbosity": -1})
    model = library.train({**fixed, **quiet, **settings, "boost_from_average": False}, data, num_boost_round=rounds)
    return [_nested(tree["tree_structure"]) for tree in model.dump_model()["tree_info"]]


def _offsets(groups: Sequence[Measured], left: list[np.ndarray]) -> dict[str, float]:
    """Return the mean remainder of one part's groups by level, shrunk towards the level above; reduces ``left``."""
    offsets: dict[str, float] = {}
    keys = ([""] * len(groups), [g.dtype for g in groups], [f"{g.dtype}/{g.operator}" for g in groups])
    for level in keys:
        for key in dict.fromkeys(level):
            mine = [i for i, each in enumerate(level) if each == key]
            values = np.concatenate([left[i] for i in mine])
            offsets[key] = round(float(values.sum() / (len(values) + OFFSET_PRIOR)), 6)
            for i in mine:
                left[i] = left[i] - offsets[key]
    return offsets


def _own(
    x: np.ndarray, left: np.ndarray, masks: list[np.ndarray], shared: list[Any], seed: int
) -> tuple[float, float, tuple[Any, ...]]:
    """Return weight, noise and trees of one part; ``left`` is the remainder behind its offsets."""
    bags = Forest.of(shared)(x).astype(np.float64)
    mean = bags.mean(axis=0)
    noise = max(float(np.var(left - mean)), 1e-6)
    prior = noise / WEIGHT_DEVIATION**2
    weight = float((mean @ left + prior * UNSEEN) / (mean @ mean + prior))
    if len(left) < FEWEST:
        rest = left - weight * mean
        return weight, float(np.sqrt((rest @ rest + UNSEEN_NOISE**2) / (len(rest) + 1))), ()
    trees, unseen = [], []
    for number, (bag, mask) in enumerate(zip(bags, masks, strict=True)):
        rest = left - weight * bag
        own = _boost(x[:, mask], rest[mask], np.ones(int(mask.sum())), OWN, seed + number)
        trees.append(own)
        unseen.append((rest - Forest.of([own])(x)[0])[~mask])
    return weight, float(np.std(np.concatenate(unseen))), tuple(trees)


def _shared(x: np.ndarray, y: np.ndarray, masks: list[np.ndarray], seed: int) -> list[Any]:
    """Return the bags of trees over all parts; with few measurements only offsets are learnt."""
    if len(y) < FEWEST:
        return [[0.0]] * BAGS
    least = min(max(len(y) // LEAVES, OWN["min_data_in_leaf"]), SHARED["min_data_in_leaf"])
    settings = {**SHARED, "min_data_in_leaf": least}
    return [_boost(x[:, mask], y[mask], np.ones(int(mask.sum())), settings, seed + i) for i, mask in enumerate(masks)]


def _carried(groups: dict[str, tuple[np.ndarray, np.ndarray]], seed: int) -> tuple[float, float]:
    """Return (weight, noise) of the shared trees on a part without measurements.

    Each part in turn is held out, with trees of the other parts; the part on which they help least decides. Too few
    measurements, or one part alone, tell nothing.
    """
    told = []
    for held, (x, y) in groups.items():
        others = [values for part, values in groups.items() if part != held]
        if len(y) < FEWEST or sum(len(z) for _, z in others) < FEWEST:
            continue
        other_x = np.concatenate([each for each, _ in others], axis=1)
        other_y = np.concatenate([each for _, each in others])
        trees = _shared(other_x, other_y, [np.ones(len(other_y), dtype=bool)], seed)
        mean = Forest.of(trees)(x).mean(axis=0).astype(np.float64)
        prior = max(float(np.var(y - mean)), 1e-6) / WEIGHT_DEVIATION**2
        weight = min(max(float(mean @ y / (mean @ mean + prior)), 0.0), 1.0)
        told.append((weight, float(np.sqrt(np.mean((y - weight * mean) ** 2)))))
    if not told:
        return UNSEEN, UNSEEN_NOISE
    return round(min(weight for weight, _ in told), 6), round(max(noise for _, noise in told), 6)


def fit(samples: Sequence[Measured], names: Sequence[str], seed: int = 0) -> Residual:
    """Fit a Residual to measurements whose features are ``names``.

    Parameters
    ----------
    samples : sequence of Measured
        Measurements, by part, dtype and operator.
    names : sequence of str
        Names of the features.
    seed : int
        Seed of the bags; deterministic on one type of machine.

    Returns
    -------
    Residual

    Raises
    ------
    ToolMissingError
        Without LightGBM.
    ValueError
        Without measurements.
    """
    groups = [s for s in samples if len(s.y)]
    if not groups:
        raise ValueError("there is nothing to learn from")
    parts = list(dict.fromkeys(g.part for g in groups))
    rng = np.random.default_rng(seed)
    by_part: dict[str, tuple[np.ndarray, np.ndarray, dict[str, float]]] = {}
    for part in parts:
        mine = [g for g in groups if g.part == part]
        left = [g.y.astype(np.float64) for g in mine]
        offsets = _offsets(mine, left)
        by_part[part] = np.concatenate([g.x for g in mine], axis=1), np.concatenate(left), offsets
    masks = {part: [rng.random(len(by_part[part][1])) < SHARE for _ in range(BAGS)] for part in parts}
    x = np.concatenate([by_part[p][0] for p in parts], axis=1)
    y = np.concatenate([by_part[p][1] for p in parts])
    shared = _shared(x, y, [np.concatenate([masks[p][bag] for p in parts]) for bag in range(BAGS)], seed)
    known = {}
    for part in parts:
        own_x, own_left, offsets = by_part[part]
        weight, noise, trees = _own(own_x, own_left, masks[part], shared, seed + BAGS)
        about = next(g for g in groups if g.part == part)
        known[part] = Part(round(weight, 6), round(noise, 6), offsets, trees, about.capability, about.sms)
    weight, noise = _carried({part: by_part[part][:2] for part in parts}, seed)
    return Residual(names, shared, known, noise, weight)
