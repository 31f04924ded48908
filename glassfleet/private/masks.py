"""Masks that cancel in the sum over exactly one edition of a group, for exactly one task, and in nothing else.

Every two members u < v of an edition E share a key. For a task t they derive from it the same stream of random words;
u adds it to its vector, v subtracts it. In the sum over all members every stream is added once and subtracted once, so
that the sum modulo 2^64 is that of the vectors, to the bit. No key or mask is ever revealed to anybody: a member that
is lost is left out of the next edition, in which all masks are others.

    pair key      k_uv = HMAC(H("glassfleet-pair/1" || digest of the terms), X25519(sk_u, pk_v))
    stream        s_uv = ChaCha20(HMAC(k_uv, "glassfleet-mask/1" || d_E || H(t) || len || lower id || higher id)), words
    answer        y_u = x_u + sum over v > u of s_uv - sum over v < u of s_uv   mod 2^64
    sum           sum over u in E of y_u = sum of x_u mod 2^64, read as int64

HMAC is with SHA-256. A stream key is used for one stream, so the counter starts at 0 and the nonce is 0. Both ids are
in it: a member that announced another's key as its own would else make two streams equal, which cancel in the answer
of a third. The digest of the edition d_E covers the terms, all founders' keys and the members: who was told another
edition or another task adds noise, not a difference.

Here is what needs the cryptography; `glassfleet.private.layout` adds the answers. `docs/reference/vectors/masks.json`
holds test vectors for other languages.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from glassfleet.errors import PrivacyError
from glassfleet.private.groups import KEY_BYTES, Edition, Roster, Terms
from glassfleet.private.layout import Words

_PRIME = 2**255 - 19
_PROBE = X25519PrivateKey.from_private_bytes(b"\x01" * KEY_BYTES)
"""Any key: with a weak public key every private key gives zero."""

_ZEROS = bytes(1 << 16)


class RunKey:
    """A vehicle's secret for one run. It lives and dies with the rows that were frozen for the run.

    Parameters
    ----------
    secret : bytes
        32 random bytes, see :meth:`generate`.

    Attributes
    ----------
    public : bytes
        What is announced, 32 bytes.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._key = X25519PrivateKey.from_private_bytes(secret)
        self.public = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> RunKey:
        """Return a new key, from the system's randomness."""
        return cls(X25519PrivateKey.generate().private_bytes_raw())

    def to_bytes(self) -> bytes:
        """Return the 32 secret bytes, for a file that only the vehicle reads."""
        return self._secret

    def exchange(self, public: bytes) -> bytes:
        """Return the secret shared with the owner of `public`, 32 bytes; raises PrivacyError ``bad-member``."""
        if not _is_canonical(public):
            raise PrivacyError("bad-member", "not an X25519 key in its one form")
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError as fault:
            raise PrivacyError("bad-member", "a key of low order") from fault


def usable_key(public: bytes) -> bool:
    """Return whether members can share a secret with the owner of `public` (32 bytes).

    A coordinator checks it before it makes anybody a founder: one weak key would make a whole group refuse. The key's
    one form is asked for, and no key of low order (RFC 7748, section 6.1).
    """
    if len(public) != KEY_BYTES or not _is_canonical(public):
        return False
    try:
        _PROBE.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return False
    return True


def pair_keys(key: RunKey, agent: str, roster: Roster) -> dict[str, bytes]:
    """Return the key shared with every other founder, by id, 32 bytes each; once a run, 33 us each.

    Raises
    ------
    PrivacyError
        ``not-member``: `agent` is no founder with this key. ``bad-member``: a weak key; the detail says whose.
    """
    own = roster.by_id.get(agent)
    if own is None or own.key != key.public:
        raise PrivacyError("not-member", f"{agent} with this key is no founder of the group")
    keys = {}
    for each in roster.founders:
        if each.agent != agent:
            try:
                keys[each.agent] = _pair_key(roster.terms, key.exchange(each.key))
            except PrivacyError as fault:
                raise PrivacyError("bad-member", f"{each.agent}: {fault.detail}") from fault
    return keys


def mask(
    vector: NDArray[np.int64], agent: str, edition: Edition, pairs: Mapping[str, bytes], task_digest: str
) -> Words:
    """Return a member's masked vector: a function of its arguments, so that an answer can be made again.

    Parameters
    ----------
    vector : ndarray of int64, shape (L,)
        See :mod:`glassfleet.private.layout`.
    agent : str
        Whose, a member of `edition`.
    edition : Edition
    pairs : mapping of str to bytes
        From :func:`pair_keys`.
    task_digest : str
        SHA-256 of the task, hex.

    Returns
    -------
    ndarray of uint64, shape (L,)
        Uniformly random to whoever lacks one of the pair keys.
    """
    if agent not in edition.members:
        raise PrivacyError("not-member", f"{agent} is not in the edition")
    total = vector.astype(np.int64).view(np.uint64).copy()
    for other in edition.members:
        if other != agent:
            words = stream(stream_key(pairs[other], edition, task_digest, agent, other), total.size)
            if agent < other:
                total += words
            else:
                total -= words
    return total


def stream_key(pair: bytes, edition: Edition, task_digest: str, one: str, other: str) -> bytes:
    """Return the key (32 bytes) of the stream between two members, the same for both, for one task in one edition."""
    lower, higher = sorted((one.encode(), other.encode()))
    label = b"glassfleet-mask/1\x00" + edition.digest + bytes.fromhex(task_digest)
    return hmac.digest(pair, label + len(lower).to_bytes(2, "big") + lower + higher, "sha256")


def stream(key: bytes, size: int) -> Words:
    """Return `size` words of ChaCha20 under `key` (32 bytes) from counter 0, little-endian; for one use of a key."""
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    out = bytearray(8 * size)
    view = memoryview(out)
    for start in range(0, len(out), len(_ZEROS)):
        part = view[start : start + len(_ZEROS)]
        cipher.update_into(_ZEROS[: len(part)], part)
    return np.frombuffer(out, dtype="<u8").astype(np.uint64, copy=False)


def _pair_key(terms: Terms, shared: bytes) -> bytes:
    salt = hashlib.sha256(b"glassfleet-pair/1\x00" + terms.digest).digest()
    return hmac.digest(salt, shared, "sha256")


def _is_canonical(public: bytes) -> bool:
    return int.from_bytes(public, "little") < _PRIME
