"""Figures of the paper, drawn from fits of one seed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from dagp import plot
from dagp.experiments.multimodal import MULTIMODAL
from dagp.experiments.noise import NOISE
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


def _save(figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, lambda file: figure.savefig(file, format="png", dpi=100))
    plt.close(figure)
    return path


FIGURES: dict[str, Callable[[Path, int, bool], list[Path]]] = {
    "noise": noise,
    "multimodal": multimodal,
}
