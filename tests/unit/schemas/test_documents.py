"""Canonical JSON: one way to write each value."""

from __future__ import annotations

import math

import pytest

from schemas.documents import canonical_json, document_digest
from schemas.errors import DocumentError


def test_equal_documents_have_equal_bytes():
    assert canonical_json({"b": 1.0, "a": [0.1, -0.0, 1e21]}) == b'{"a":[0.1,0,1e+21],"b":1}'
    assert document_digest({"a": 1, "b": 2}) == document_digest({"b": 2.0, "a": 1.0})


@pytest.mark.parametrize("value", [math.nan, math.inf, 2**53 + 1, {1: 2}, object(), "\ud800"])
def test_what_canonical_json_cannot_hold_is_a_document_error(value):
    with pytest.raises(DocumentError):
        canonical_json({"x": value})
