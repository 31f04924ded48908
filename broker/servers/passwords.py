"""Passwords of the brokers that Glassfleet starts: made at random, stored as hashes, in files for the owner only."""

from __future__ import annotations

import base64
import hashlib
import secrets
from pathlib import Path

from schemas.errors import StorageError, os_faults_as
from schemas.private_files import replace_private

_ITERATIONS = 101
"""PBKDF2 rounds, as many as Mosquitto takes by itself. The passwords are 192 random bits, so no dictionary helps; and
the broker does nothing else meanwhile: with 20,000 rounds each vehicle that signed in took it tens of milliseconds."""


def new_password() -> str:
    """192 random bits as 32 characters that need no escaping in a URL."""
    return secrets.token_urlsafe(24)


def mosquitto_hash(password: str) -> str:
    """Hash for a Mosquitto password file: ``$7$iterations$salt$hash``, PBKDF2-HMAC-SHA512 (Mosquitto 2)."""
    salt = secrets.token_bytes(12)
    derived = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS, dklen=64)
    return f"$7${_ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(derived).decode()}"


def write_private(path: Path, text: str) -> None:
    """Put a file that only its owner can read in place, whole or not at all; raises StorageError."""
    with os_faults_as(StorageError, f"cannot write {path}", ". Choose another state directory"):
        replace_private(path, text.encode())
