"""Markdown tables of the results of `dagp bench --suite full` and `against.py`, for RESULTS.md.

python benchmarks/speed_tables.py results/speed.json results/against.json
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Job = dict[str, Any]


def shown(figure: Job, digits: int = 3) -> str:
    """Median and quartiles as text."""
    if "median" not in figure:
        return f"– ({figure.get('skipped', 'not measured')})"
    low, high = figure["quartiles"]
    return f"{figure['median']:.{digits}g} ({low:.{digits}g}–{high:.{digits}g})"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def speed(found: Job) -> Iterator[str]:
    about = found["machine"]
    yield f"{about['cores']} cores, {about['processor']}; load {about['load_at_start']:.1f}.\n"
    rows = []
    if "import" in found:
        rows.append(["import, s", shown(found["import"])])
    for name, figure in found.get("first_fit", {}).items():
        rows.append([f"fit of the demo, {name.replace('_', ' ')}, s", shown(figure)])
    for name, figure in found.get("fits", {}).items():
        rows.append([f"fit of {name}, cold, s", str(figure.get("cold", figure.get("skipped")))])
        if "again" in figure:
            rows.append([f"fit of {name}, again, s", shown(figure["again"])])
        if "product_ms" in figure:
            rows.append(["a 600 × 600 product beside it, ms", shown(figure["product_ms"])])
    if "predict" in found:
        rows.append(["predict 100 000 points, s", shown(found["predict"])])
        rows.append(["points a second", f"{found['predict']['points_per_s']:,}"])
    yield table(["", "median (quartiles)"], rows)
    if "steps" in found:
        yield from steps(found["steps"])
    if "recovery" in found:
        yield recovered(found["recovery"])
    names = ("rows", "batch", "inducing", "before_MiB", "data_MiB", "fit_MiB", "predict_MiB")
    rows = [[str(row.get(name, "–")) for name in names] for row in found.get("memory", [])]
    yield table(["N", "batch", "M", "before", "data", "fit adds, MiB", "with predictions"], rows)


def steps(found: Job) -> Iterator[str]:
    names = ("rows", "processes", "inducing", "layers", "batch")
    rows = [
        [*(str(row[name] or "all") for name in names), shown(row), str(row.get("of_reference", ""))]
        for row in found["rows"]
    ]
    yield table(["N", "K", "M", "L", "batch", "ms a step", "of the reference"], rows)
    rows = []
    for line in found["exponents"]:
        error = "" if line["standard_error"] is None else f" ± {line['standard_error']}"
        at = ", ".join(f"{name} {value or 'all'}" for name, value in line["at"].items())
        sizes = ", ".join(map(str, line["sizes"]))
        rows.append([line["in"], f"{line['exponent']}{error}", sizes, at])
    yield table(["grows with", "exponent", "over", "at"], rows)


def recovered(found: Job) -> str:
    rows = [
        [name, shown(row["cold"]), shown(row["warm_cache"]), f"{row['recovered']}/{row['of']}"]
        for name, row in found.items()
        if isinstance(row, dict)
    ]
    return table(["experiment", "cold, s", "warm cache, s", "recovered"], rows)


def against(found: Job) -> Iterator[str]:
    for part, rows in found.items():
        about = rows["machine"]
        yield f"**{part}**: load {about['load_at_start']:.1f} at start.\n"
        yield from _steps_against(rows) if part == "steps" else _recovery_against(rows)


def _steps_against(found: Job) -> Iterator[str]:
    kinds = [kind for kind in found if "ms" in found[kind]]
    names = list(found[kinds[0]]["ms"])
    yield table(
        ["ms a step", *kinds],
        [[name, *(shown(found[kind]["ms"][name]) for kind in kinds)] for name in names],
    )
    yield table(
        ["times ours", *kinds],
        [[n, *(shown(found[kind]["ratio"][n]) for kind in kinds)] for n in names if n != "dagp"],
    )


def _recovery_against(found: Job) -> Iterator[str]:
    rows = []
    for name, row in found["summary"].items():
        ratios = [
            shown(row[key]) if key in row else ""
            for key in ("first_sight_over_ours_cold", "blind_over_ours_cold")
        ]
        blind = f"{row['blind_recovered']}/{row['of']}" if "blind_recovered" in row else ""
        right = f"{row['recovered']}/{row['of']}"
        cost = row["seconds_per_recovery"]
        rows.append(
            [
                name,
                shown(row["seconds"]),
                right,
                f"{cost:.3g}" if cost else "–",
                *ratios,
                blind,
                str(row.get("cut_off", "")),
            ]
        )
    head = [
        "",
        "s",
        "seen",
        "s per recovery",
        "first sight over ours",
        "blind over ours",
        "blind right",
        "cut off",
    ]
    yield table(head, rows)


def main() -> None:
    for name in sys.argv[1:]:
        found = json.loads(Path(name).read_text())
        print(*(speed(found) if "suite" in found else against(found)), sep="\n")


if __name__ == "__main__":
    main()
