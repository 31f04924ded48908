"""The rows of the vehicles under test."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_data(folder: Path, vehicles: int, seed: int) -> dict[str, Path]:
    """Write small files of rows, one per vehicle, a fifth of them for tests; return them by agent id."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for number in range(vehicles):
        rng = np.random.default_rng([seed, number])
        rows = 250 + 40 * number
        X = rng.uniform(0.0, 10.0 + number, (rows, 4))
        y = X[:, 0] * 0.7 + np.where(X[:, 1] > 5, 4.0, 0.0) + np.sin(X[:, 2]) + rng.normal(0, 0.1, rows)
        name = f"vehicle-{number:02d}"
        files[name] = folder / f"{name}.csv"
        lines = ["speed,load,turn,noise,quality,split"]
        for place, (row, target) in enumerate(zip(X, y, strict=True)):
            values = ",".join(repr(float(value)) for value in (*row, target))
            lines.append(f"{values},{'test' if place % 5 == 0 else 'train'}")
        files[name].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return files
