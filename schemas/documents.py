"""Documents: JSON with one way to write each value, so that a digest of the text identifies the value."""

from __future__ import annotations

import hashlib
from typing import Any

import rfc8785

from schemas.errors import DocumentError


def canonical_json(value: Any) -> bytes:
    """Return `value`, made of JSON values, as canonical JSON (RFC 8785), UTF-8.

    Keys are sorted, there is no white space, and each number has its shortest form that reads back as the same float64;
    any JSON library of any language that follows the RFC writes the same bytes.

    Raises
    ------
    DocumentError
        `value` holds what canonical JSON cannot: NaN, infinities, integers beyond 2^53, keys that are not text, or
        types that are not JSON's.

    Examples
    --------
    >>> canonical_json({"b": 1.0, "a": [True, None]})
    b'{"a":[true,null],"b":1}'
    """
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, RecursionError, UnicodeError) as fault:
        raise DocumentError(f"not a JSON document: {fault}") from fault


def document_digest(document: Any) -> str:
    """Return the SHA-256 (hex) of the canonical JSON of `document`."""
    return hashlib.sha256(canonical_json(document)).hexdigest()
