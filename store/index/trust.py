"""Tags of origin: they prove that this user made a capture, so that it runs without a question.

Running a capture imports its backend and may execute source in the capture. So `minify run` asks before it runs a
capture of another user. Every document of a case that this user's fxminify stored has an origin tag, an HMAC made
with this user's key over the whole document and the capture it belongs to. A stored script has a tag over its text,
its case and the capture. Data made from another user's case has no tag. The key is in
``$XDG_STATE_HOME/fxminify/key`` and is made on first use. A key that other users may read or write, or that belongs
to another user, proves nothing (`fxminify.store.index.keys`).
"""

from __future__ import annotations

import hashlib
import hmac

from . import keys, signing

#: The prefix of signed scripts, which no signed case has.
_SCRIPT = b"script\0"
#: The file with the key of this user.
_FILE = "key"


def origin_tag(document: str, capture: str) -> str:
    """The tag for the case with the digest ``document``, of the capture with that identity.

    It is empty if no key can be stored; then `minify run` asks.
    """
    return _tag(_case(document, capture))


def is_ours(document: str, capture: str, tag: object) -> bool:
    """Whether ``tag``, as found in a file, proves that this user's fxminify stored that case for that capture, or a
    server whose key this process accepts (`fxminify.store.index.signing`)."""
    content = _case(document, capture)
    return signing.proves(tag, content) if signing.signer(tag) else _proves(tag, content)


def signed_tag(signer: signing.CaptureSigner, document: str, capture: str) -> str:
    """The tag of a server for a case that it took from somebody who may have it run."""
    return signer.sign(_case(document, capture))


def script_tag(text: str, document: str | None, capture: str) -> str:
    """The tag for a script of a case that this user made: of its text, of the digest ``document`` of its case, and of
    the capture with that identity."""
    return _tag(_script(text, document, capture))


def is_our_script(text: str, tag: object, document: str | None, capture: str) -> bool:
    """Whether ``tag``, as found in a file, proves that this user's fxminify rendered ``text``, of that case, for that
    capture."""
    return _proves(tag, _script(text, document, capture))


def maker(*, create: bool = False) -> str:
    """Return a name for this user that reveals nothing of the key. It is empty without a key. It proves nothing."""
    key = keys.secret(_FILE, create=create)
    return hmac.new(key, b"maker", hashlib.sha256).hexdigest()[:16] if key else ""


def _script(text: str, document: str | None, capture: str) -> bytes:
    return _SCRIPT + f"{document or ''}\0{capture}\0{text}".encode(errors="replace")


def _tag(content: bytes) -> str:
    key = keys.secret(_FILE, create=True)
    return hmac.new(key, content, hashlib.sha256).hexdigest() if key else ""


def _proves(tag: object, content: bytes) -> bool:
    key = keys.secret(_FILE, create=False)
    if not key or not isinstance(tag, str) or not tag:
        return False
    made = hmac.new(key, content, hashlib.sha256).hexdigest()
    return hmac.compare_digest(made.encode(), tag.encode(errors="replace"))


def _case(document: str, capture: str) -> bytes:
    return f"case\0{document}\0{capture}".encode()
