"""Signatures of a server on captures that it took from those who may have them run.

A server has a key pair (Ed25519). It signs the digest of a case together with the identity of its capture, which is
what `fxminify.store.index.trust` signs with a key that only one user has. A worker that was given the public key of
the server can check this and could not have signed itself. Other signatures prove nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING

from ..errors import StoreError
from . import keys

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

#: What a tag begins with that is such a signature: ``ed25519:<public key>:<signature>``, in hexadecimal digits.
_PREFIX = "ed25519:"
_TAG = re.compile(rf"{_PREFIX}([0-9a-f]{{64}}):([0-9a-f]{{128}})\Z")
_PUBLIC = re.compile(r"[0-9a-f]{64}\Z")
#: The file with the secret key of a server, and what to do where it cannot be had.
FILE = "signing-key"
NO_KEY = f"there is no key to sign with: make ~/.local/state/fxminify/{FILE} private to you, or remove it"
#: The public keys that this process accepts.
_accepted: set[str] = set()


class CaptureSigner:
    """The key pair of this user. Raises `StoreError` if it is missing and cannot be made."""

    def __init__(self) -> None:
        seed = keys.secret(FILE, create=True)
        if not seed:
            raise StoreError(NO_KEY)
        self._key: Ed25519PrivateKey = _library().Ed25519PrivateKey.from_private_bytes(seed)
        #: The public key, in hexadecimal digits.
        self.public = self._key.public_key().public_bytes_raw().hex()

    def sign(self, content: bytes) -> str:
        """The tag of ``content``."""
        return f"{_PREFIX}{self.public}:{self._key.sign(content).hex()}"


def accept(public: Iterable[str]) -> None:
    """Trust signatures of these public keys in this process from now on.

    Raises `StoreError` for an invalid key, and if the library that checks signatures is missing.
    """
    for key in public:
        if not _PUBLIC.match(key):
            raise StoreError(f"{key[:80]!r} is no public key, 64 digits as in /api/v1/status of the server")
        if _is_weak(bytes.fromhex(key)):
            raise StoreError(f"{key} is a weak key, whose signatures anybody can make: no server has it, do not use it")
        _library().Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        _accepted.add(key)


def signer(tag: object) -> str:
    """The public key that ``tag`` says it was signed with; empty if it is no signature. Nothing is checked."""
    found = _TAG.match(tag) if isinstance(tag, str) else None
    return found[1] if found else ""


def proves(tag: object, content: bytes) -> bool:
    """Whether ``tag``, as found in an index, is the signature on ``content`` of a key that this process accepts."""
    found = _TAG.match(tag) if isinstance(tag, str) else None
    if found is None or found[1] not in _accepted:
        return False
    from cryptography.exceptions import InvalidSignature

    try:
        _library().Ed25519PublicKey.from_public_bytes(bytes.fromhex(found[1])).verify(bytes.fromhex(found[2]), content)
    except InvalidSignature:
        return False
    return True


#: The prime and the constant of the curve edwards25519 (RFC 8032, 5.1).
_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P


def _is_weak(key: bytes) -> bool:
    """Say whether a public key is a point of small order, or no point in the one form that RFC 8032 gives it.

    With a point of small order a signature exists that belongs to many messages, and needs no secret. Eight times such
    a point is the neutral element, the only one with y = 1. x squared follows from y, so x itself is not needed.
    """
    y = int.from_bytes(key, "little") & ((1 << 255) - 1)
    if y >= _P:
        return True
    for _ in range(3):
        square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
        denominator = (1 - _D * square * y * y) % _P
        if denominator == 0:
            return True
        y = (y * y + square) * pow(denominator, -1, _P) % _P
    return y == 1


def _library() -> ModuleType:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise StoreError("signatures need another package: pip install 'fxminify[service]'") from None
    return ed25519
