"""Solvers in a fixed order: right, and the same bits for a system alone and among others."""

from __future__ import annotations

import numpy as np
import pytest

from glassfleet.numerics.symmetric import dot, invert, product, solve, solve_each, subtract_products


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
    found, value = solve_each(systems, right)
    for number in range(5):
        one = slice(number, number + 1)
        alone, gain = solve_each(np.ascontiguousarray(systems[:, :, one]), np.ascontiguousarray(right[:, one]))
        assert (alone == found[:, one]).all()
        assert gain[0] == value[number] == pytest.approx(right[:, number] @ found[:, number])
        assert found[:, number] == pytest.approx(np.linalg.solve(systems[:, :, number], right[:, number]))


def test_products_and_downdates_are_those_of_linear_algebra():
    rng = np.random.default_rng(3)
    H, b, left, right = system(40), rng.normal(size=40), rng.normal(size=(3, 40)), rng.normal(size=(3, 40))
    assert product(H, b) == pytest.approx(H @ b)
    assert product(H, left.T) == pytest.approx(H @ left.T)
    assert dot(b, b) == pytest.approx(b @ b)
    changed = H.copy()
    subtract_products(changed, list(left), list(right))
    assert changed == pytest.approx(H - left.T @ right)
