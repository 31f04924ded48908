"""Every bound on what is accepted from a peer, in one place."""

from __future__ import annotations

MAX_MESSAGE_BYTES = 128 * 1024
"""Default size of one MQTT payload; larger messages travel in parts. 128 KiB suits the strictest clouds."""

MIN_MESSAGE_BYTES = 4 * 1024
"""Smallest ``max_message_bytes`` that can be configured; an envelope must fit."""

MAX_DECODED_BYTES = 64 * 1024 * 1024
"""Largest message after joining parts and decompression."""

MAX_PARTS = 4096
"""Most parts a message may have."""

MAX_ITEMS = 1_000_000
"""Most values in one message, all lists and maps together (an array counts as a few)."""

MAX_DEPTH = 32
"""Deepest nesting of lists and maps."""

MAX_ARRAY_DIMS = 6
"""Most dimensions of an array."""

MAX_FEATURES = 4096
"""Most input features of a run."""

MAX_CATEGORIES = 4096
"""Most categories of a column of text."""

ID_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""What fleet, agent, run and model ids look like."""

MAX_SEAL_BYTES = 2048
"""Longest ``signature`` field of an envelope: a signature and the certificate of who made it."""

MAX_CRL_BYTES = 4 * 1024 * 1024
"""Longest revocation list that is read: some 60,000 certificates."""

MAX_CSR_BYTES = 8192
"""Longest request for a certificate (CSR) that is read."""
