"""Figures of the paper, drawn from fits of one seed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from dagp import plot
from dagp.experiments.multimodal import MULTIMODAL
from dagp.experiments.noise import NOISE
from dagp.experiments.wetchicken import FEW, WETCHICKEN, drifting
from dagp.files.atomic import replace


def noise(folder: Path, seed: int, quick: bool) -> list[Path]:
    """Data, posterior and assignment at 40 and 60 % outliers."""
    paths = []
    for kind in ("noisy", "clean"):
        figure, axes = plt.subplots(3, 2, figsize=(10, 9), sharex=True, layout="constrained")
        for column, percent in zip(axes.T, (40, 60), strict=True):
            data = NOISE.data(f"{kind} {percent}", seed, quick)
            model = NOISE.competitors["DAGP"](data, seed, quick)
            plot.data(data.X, data.y, ax=column[0])
            plot.posterior(model, data.X, data.y, ax=column[1])
            plot.assignment(model, data.X, data.y, ax=column[2])
            column[0].set_title(f"{percent} % outliers")
        paths.append(_save(figure, folder / f"noise_{kind}.png"))
    return paths


def multimodal(folder: Path, seed: int, quick: bool) -> list[Path]:
    """Joint posterior, assignments and gate weights."""
    paths = []
    for variant in MULTIMODAL.variants:
        data = MULTIMODAL.data(variant, seed, quick)
        model = MULTIMODAL.competitors["DAGP"](data, seed, quick)
        figure = plot.overview(model, data.X, data.y)[0].figure
        paths.append(_save(figure, folder / f"multimodal_{variant}.png"))
    return paths


def wetchicken(folder: Path, seed: int, quick: bool) -> list[Path]:
    """Mean, standard deviation and drop probability without a paddle, beside the truth; a fan of
    trajectories under the policy, and its hazard."""
    variant = WETCHICKEN.quick_variants[0] if quick else "N 1000"
    data = WETCHICKEN.data(variant, seed, quick)
    decision = WETCHICKEN.competitors["DAGP constant drops"](data, seed, quick)
    x, y = np.meshgrid(*[np.linspace(0, 5, 51)] * 2)
    states, still = np.stack([x.ravel(), y.ravel()], axis=1), np.zeros((x.size, 2))
    found = drifting(decision, np.hstack([states, still]))
    truth = (
        *data.simulator.drifting(states, still),
        data.simulator.drop_probability(states, still),
    )
    recovered = _recovered(x, y, truth, found, folder / "wetchicken_recovered.png")
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    model, policy = decision.model, decision.policy
    paths = model.rollout(policy, [2.5, 2.5], 20, n_samples=500, random_state=seed)
    plot.fan(paths, 0, name="x", ax=left)
    left.set_title("under the policy", fontsize="medium", loc="left")
    plot.hazard(model, decision.drops[0], policy=policy, ax=right)
    right.set(xlabel="x", ylabel="y")
    right.set_title("probability of a drop under the policy", fontsize="medium", loc="left")
    return [recovered, _save(figure, folder / "wetchicken_policy.png")]


def _recovered(x: Any, y: Any, truth: Any, found: Any, path: Path) -> Path:
    """Maps of what the model says, below those of the truth, with the same colours."""
    layout = {"sharex": True, "sharey": True, "layout": "constrained"}
    figure, axes = plt.subplots(2, 3, figsize=(12, 7), **layout)
    titles = ("mean of the next x, no drop", "its standard deviation", "probability of a drop")
    # Of canoes that do not drop there is nothing to say where all of them drop.
    certain = truth[2] >= FEW
    for column, title, true, own in zip(axes.T, titles, truth, found, strict=True):
        hidden = certain if title != titles[2] else np.zeros_like(certain)
        shown = [np.ma.masked_array(values, hidden) for values in (true, own)]
        colours = {"vmin": 0, "vmax": float(max(values.max() for values in shown))}
        drawn = [
            ax.pcolormesh(x, y, values.reshape(x.shape), rasterized=True, **colours)
            for ax, values in zip(column, shown, strict=True)
        ]
        for ax, name in zip(column, ("truth", "model"), strict=True):
            ax.set_facecolor("lightgrey")
            ax.set_title(f"{title}: {name}", fontsize="medium")
        figure.colorbar(drawn[0], ax=column)
    for ax in axes[1]:
        ax.set_xlabel("x")
    for ax in axes[:, 0]:
        ax.set_ylabel("y")
    figure.supxlabel(f"no paddling; grey: a drop has a probability above {FEW}", fontsize="small")
    return _save(figure, path)


def _save(figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, lambda file: figure.savefig(file, format="png", dpi=100))
    plt.close(figure)
    return path


FIGURES: dict[str, Callable[[Path, int, bool], list[Path]]] = {
    "noise": noise,
    "multimodal": multimodal,
    "wetchicken": wetchicken,
}
