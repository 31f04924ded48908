"""The model's digest does not depend on the processor: every OpenBLAS kernel gives the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = ("Prescott", "Sandybridge", "Haswell", "Zen", "SkylakeX")

PROGRAM = """
import numpy as np
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.local import federated
from glassfleet.schemes.frt import SCHEME, Parameters
from schemas.documents import document_digest
rng = np.random.default_rng(5)
X = rng.random((3000, 9))
X[:, 3] = 0.3
X[:, 4] = 1.0 - X[:, 5]
y = np.clip(X[:, 0] * X[:, 1] + 0.5 * X[:, 2] ** 2 + 0.05 * rng.standard_normal(3000), 0, 1)
names = tuple(f"x{i}" for i in range(9))
inputs = tuple(Variable(name=name, low=0, high=1) for name in names)
domain = Domain(features=inputs, target=Variable(name="y", low=0, high=1))
parts = {f"a{i}": Dataset(names, "y", X[i::3], y[i::3]) for i in range(3)}
outcome = federated(SCHEME, Parameters(), domain, parts)
print(document_digest(outcome.model.to_document()), outcome.summary["sums_digest"])
"""


def _supported() -> set[str]:
    """Leave out kernels whose instructions this processor lacks (they would crash, not differ)."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        flags = set(next((line for line in lines if line.startswith("flags")), "").split())
    except OSError:
        flags = set()
    avx2 = {"avx2", "fma"}
    needs = {"Sandybridge": {"avx"}, "Haswell": avx2, "Zen": avx2, "SkylakeX": avx2 | {"avx512f", "avx512vl"}}
    return {kernel for kernel in KERNELS if needs.get(kernel, set()) <= flags}


def test_model_has_one_digest_under_every_blas_kernel():
    kernels = _supported()
    if len(kernels) < 2:
        pytest.skip("this processor offers fewer than two of the kernels compared")
    digests = {}
    for kernel in sorted(kernels):
        for threads in ("1", "2"):
            environment = {**os.environ, "OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": threads}
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
            )
            digests[kernel, threads] = done.stdout.strip()
    assert len(set(digests.values())) == 1, digests
