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
#: The file with the secret key of a server.
_FILE = "signing-key"
#: The public keys that this process accepts.
_accepted: set[str] = set()


class CaptureSigner:
    """The key pair of this user. Raises `StoreError` where there is none and none can be made."""

    def __init__(self) -> None:
        seed = keys.secret(_FILE, create=True)
        if len(seed) != 32:
            raise StoreError(
                f"there is no key to sign with: make ~/.local/state/fxminify/{_FILE} private to you, or remove it"
            )
        self._key: Ed25519PrivateKey = _library().Ed25519PrivateKey.from_private_bytes(seed)
        #: The public key, in hexadecimal digits.
        self.public = self._key.public_key().public_bytes_raw().hex()

    def sign(self, content: bytes) -> str:
        """The tag of ``content``."""
        return f"{_PREFIX}{self.public}:{self._key.sign(content).hex()}"


def accept(public: Iterable[str]) -> None:
    """From now on this process believes signatures that belong to these public keys.

    Raises `StoreError` for what is none, and where the library is missing that checks signatures.
    """
    for key in public:
        if not _PUBLIC.match(key):
            raise StoreError(f"{key[:80]!r} is no public key, 64 digits as in /api/v1/status of the server")
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


def _library() -> ModuleType:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise StoreError("signatures need another package: pip install 'fxminify[service]'") from None
    return ed25519
