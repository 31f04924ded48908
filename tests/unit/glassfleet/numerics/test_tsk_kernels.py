"""The digest of a model with pooled consequents does not depend on the processor's BLAS kernel."""

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
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.local import federated
from glassfleet.schemes.tsk import SCHEME, Parameters
from schemas.documents import document_digest
rng = np.random.default_rng(5)
X = rng.random((1500, 7))
X[:, 3] = 0.3
X[:, 4] = 1.0 - X[:, 5]
y = np.clip(X[:, 0] * X[:, 1] + 0.5 * X[:, 2] ** 2 + 0.05 * rng.standard_normal(1500), 0, 1)
names = tuple(f"x{i}" for i in range(7))
inputs = tuple(Variable(name=name, low=0, high=1) for name in names)
domain = Domain(features=inputs, target=Variable(name="y", low=0, high=1))
for antecedents in ("local", "federated"):
    parts = {f"a{i}": Dataset(names, "y", X[i::3], y[i::3]) for i in range(3)}
    outcome = federated(SCHEME, Parameters(antecedents=antecedents, max_iterations=40), domain, parts)
    print(document_digest(outcome.model.to_document()), outcome.summary["sums_digest"])
"""


def _kernels() -> list[str]:
    """Leave out kernels whose instructions this processor lacks (they would crash, not differ)."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = set(next((line for line in lines if line.startswith("flags")), "").split())
    return [kernel for kernel, needs in NEEDS.items() if needs <= flags]


def test_pooled_model_has_one_digest_under_every_blas_kernel() -> None:
    kernels = _kernels()
    if len(kernels) < 2:
        pytest.skip("this processor offers fewer than two of the kernels compared")
    digests = {}
    for kernel in kernels:
        environment = {**os.environ, "OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
        )
        digests[kernel] = done.stdout.strip()
    assert len(set(digests.values())) == 1, digests
