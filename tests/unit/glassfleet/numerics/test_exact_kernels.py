"""Digests of models do not depend on the processor: every OpenBLAS kernel and number of threads gives the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NEEDS = {
    "Prescott": set(),
    "Sandybridge": {"avx"},
    "Haswell": {"avx2", "fma"},
    "Zen": {"avx2", "fma"},
    "SkylakeX": {"avx2", "fma", "avx512f", "avx512vl"},
}
PROGRAM = """
import numpy as np
from glassfleet import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.local import federated
from schemas.documents import document_digest

def learn(name, rows, columns, **settings):
    rng = np.random.default_rng(5)
    X = rng.random((rows, columns))
    X[:, 3] = 0.3
    X[:, 4] = 1.0 - X[:, 5]
    y = np.clip(X[:, 0] * X[:, 1] + 0.5 * X[:, 2] ** 2 + 0.05 * rng.standard_normal(rows), 0, 1)
    names = tuple(f"x{i}" for i in range(columns))
    inputs = tuple(Variable(name=name, low=0, high=1) for name in names)
    domain = Domain(features=inputs, target=Variable(name="y", low=0, high=1))
    parts = {f"a{i}": Dataset(names, "y", X[i::3], y[i::3]) for i in range(3)}
    scheme = catalogue.load(name)
    outcome = federated(scheme, scheme.Parameters(**settings), domain, parts)
    print(name, settings, document_digest(outcome.model.to_document()), outcome.summary["sums_digest"])

learn("frt", 3000, 9)
learn("fmt", 3000, 9, max_rules=12, other_sets=())
learn("fmt", 3000, 9, max_rules=12, other_sets=(), max_slopes=3, partition="union")
learn("tsk", 1500, 7, antecedents="local", max_iterations=40)
learn("tsk", 1500, 7, antecedents="federated", max_iterations=40)
"""


def _supported() -> list[str]:
    """Leave out kernels whose instructions this processor lacks (they would crash, not differ)."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = set(next((line for line in lines if line.startswith("flags")), "").split())
    return [kernel for kernel, needs in NEEDS.items() if needs <= flags]


def test_models_have_one_digest_under_every_blas_kernel() -> None:
    kernels = _supported()
    if len(kernels) < 2:
        pytest.skip("this processor offers fewer than two of the kernels compared")
    printed = {}
    for number, kernel in enumerate(kernels):
        threads = str(1 + number % 2)
        environment = {**os.environ, "OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
        )
        assert len(done.stdout.splitlines()) == 5
        printed[kernel, threads] = done.stdout
    assert len(set(printed.values())) == 1, printed
