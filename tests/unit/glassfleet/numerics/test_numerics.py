"""Sums and solvers: exact, the same bits everywhere, and what may be left out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from glassfleet.numerics.sparse import forward
from glassfleet.numerics.statistics import gram_sums, sum_by_cell, to_grid
from glassfleet.numerics.symmetric import dot, invert, product, solve, solve_each, subtract_products


def test_sums_stay_exact_beyond_one_block():
    terms = to_grid(np.full(40_000, 1.0) - 2.0**-39, 40)
    total = sum_by_cell(np.zeros(40_000, dtype=np.intp), terms, 1, bits=40)
    assert int(total[0]) == 40_000 * ((1 << 40) - 2)


def test_gram_sums_stay_exact_beyond_one_carry():
    columns = to_grid(np.full((2, 20_000), 1.0) - 2.0**-29, 30)
    high, low = gram_sums(columns, bits=30)
    assert (int(high[0, 1]) << 30) + int(low[0, 1]) == 20_000 * ((1 << 30) - 2) ** 2


def system(n: int, seed: int = 0) -> np.ndarray:
    X = np.random.default_rng(seed).normal(size=(2 * n + 3, n))
    return X.T @ X


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 31, 33, 70])
def test_solution_and_inverse_are_right_whatever_the_blocks(n):
    H, right = system(n), np.random.default_rng(1).normal(size=(n, 3))
    assert solve(H, right) == pytest.approx(np.linalg.solve(H, right), rel=1e-8, abs=1e-10)
    assert invert(H) == pytest.approx(np.linalg.inv(H), rel=1e-8, abs=1e-10)
    assert (invert(H) == invert(H).T).all()


def test_column_that_others_explain_has_no_coefficient():
    H = np.array([[4.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 2.0]])
    assert solve(H, np.array([[4.0], [2.0], [6.0]]))[:, 0].tolist() == [1.0, 0.0, 3.0]


def test_system_has_the_same_bits_alone_and_among_others():
    systems = np.stack([system(7, seed) for seed in range(5)], axis=2)
    right = np.random.default_rng(2).normal(size=(7, 5))
    result, value = solve_each(systems, right)
    for number in range(5):
        one = slice(number, number + 1)
        alone, gain = solve_each(np.ascontiguousarray(systems[:, :, one]), np.ascontiguousarray(right[:, one]))
        assert (alone == result[:, one]).all()
        assert gain[0] == value[number] == pytest.approx(right[:, number] @ result[:, number])
        assert result[:, number] == pytest.approx(np.linalg.solve(systems[:, :, number], right[:, number]))


def test_products_and_downdates_are_those_of_linear_algebra():
    rng = np.random.default_rng(3)
    H, b, left, right = system(40), rng.normal(size=40), rng.normal(size=(3, 40)), rng.normal(size=(3, 40))
    assert product(H, b) == pytest.approx(H @ b)
    assert product(H, left.T) == pytest.approx(H @ left.T)
    assert dot(b, b) == pytest.approx(b @ b)
    changed = H.copy()
    subtract_products(changed, list(left), list(right))
    assert changed == pytest.approx(H - left.T @ right)


Array = NDArray[np.float64]


def moment_matrix(Z: Array, y: Array, ridge: float) -> Array:
    full = np.column_stack([np.ones(len(y)), Z, y])
    matrix = full.T @ full
    inner = np.arange(1, Z.shape[1] + 1)
    matrix[inner, inner] += ridge
    return matrix


def test_forward_selection_takes_the_columns_that_carry_most() -> None:
    rng = np.random.default_rng(1)
    Z = rng.random((500, 7))
    y = 0.3 + 0.8 * Z[:, 2] - 0.4 * Z[:, 5] + rng.normal(0, 0.01, 500)
    assert forward(moment_matrix(Z, y, 1e-6), 2) == [3, 6]


NEEDS = {
    "Prescott": set(),
    "Sandybridge": {"avx"},
    "Haswell": {"avx2", "fma"},
    "Zen": {"avx2", "fma"},
    "SkylakeX": {"avx2", "fma", "avx512f", "avx512vl"},
}
PROGRAM = """
import numpy as np
from glassfleet.contract import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.simulation import federated
from schemas.codec import document_digest

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

learn("frt", 1000, 9)
learn("tree", 1000, 9, max_rules=12)
learn("tree", 1000, 9, max_rules=12, max_slopes=3, compact=True)
learn("tsk", 600, 7, antecedents="local", max_iterations=40)
learn("tsk", 600, 7, antecedents="federated", max_iterations=40)
"""


def _supported() -> list[str]:
    """Leave out kernels whose instructions this processor lacks (they would crash, not differ)."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = set(next((line for line in lines if line.startswith("flags")), "").split())
    return [kernel for kernel, needs in NEEDS.items() if needs <= flags]


@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_models_have_one_digest_under_every_blas_kernel(every: int) -> None:
    kernels = _supported()[::-every]
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
