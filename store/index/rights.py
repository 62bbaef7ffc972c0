"""Proofs of the rights that rows of an index grant: HMACs with the secret key of the user who serves it.

A person who can write to an index can write any row. So a row alone grants nothing: it needs a proof of its
content, which needs the key (`fxminify.store.index.signing` says where the key is). On another machine, in a copy
or with another key, it grants nothing. Servers that share an index share the key.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from ..errors import StoreError
from . import keys, signing
from .documents import dumps


def prove(*parts: object) -> str:
    """Return the proof of a row with this content. Raises `StoreError` where there is no key and none can be made."""
    key = keys.secret(signing.FILE, create=True)
    if not key:
        raise StoreError(signing.NO_KEY)
    return _proof(key, parts)


def are_proved(claims: Sequence[tuple[object, Sequence[object]]]) -> list[bool]:
    """Say of each proof, as found in an index, and the content of its row whether this user's key made it."""
    key, ended = keys.secret(signing.FILE, create=False), keys.ended()
    return [
        bool(key)
        and isinstance(proof, str)
        and proof not in ended
        and hmac.compare_digest(_proof(key, parts).encode(), _bytes(proof))
        for proof, parts in claims
    ]


def end(proof: str | None) -> None:
    """End a right for good on this machine, also if its row is put back. Raises `StoreError`."""
    if proof is None:
        return
    try:
        keys.end([proof])
    except OSError as error:
        raise StoreError(f"nothing was revoked: the list of ended rights beside the key: {error.strerror}") from error


def _proof(key: bytes, parts: Sequence[object]) -> str:
    own = hmac.new(key, b"rights of an index of fxminify", hashlib.sha256).digest()
    return hmac.new(own, dumps([str(part) for part in parts]).encode(), hashlib.sha256).hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")
