"""Which captures this user made: they run without a question, others do not.

Running a capture imports its backend and may execute source in the capture. So `minify run` asks before it runs a
capture of somebody else. A capture has an origin tag, an HMAC over everything that could execute, made with this user's
key; so has a stored script. The key is in ``$XDG_STATE_HOME/fxminify/key`` (mode 600) and is made on first use.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path

from ..document.case import Case, to_json

#: The prefix of signed scripts, which no signed case has.
_SCRIPT = b"script\0"


def origin_tag(case: Case) -> str:
    """The tag for a capture of this user. It is empty if no key can be stored; then `minify run` asks."""
    return _tag(_content(case))


def is_ours(case: Case, tag: object) -> bool:
    """Whether ``tag``, as found in a file, proves that this user's fxminify made ``case``."""
    return _proves(tag, _content(case))


def script_tag(text: str) -> str:
    """The tag to store with a script that was rendered here."""
    return _tag(_SCRIPT + text.encode(errors="replace"))


def is_our_script(text: str, tag: object) -> bool:
    """Whether ``tag``, as found in a file, proves that this user's fxminify rendered ``text``."""
    return _proves(tag, _SCRIPT + text.encode(errors="replace"))


def _tag(content: bytes) -> str:
    key = _key(create=True)
    return hmac.new(key, content, hashlib.sha256).hexdigest() if key else ""


def _proves(tag: object, content: bytes) -> bool:
    key = _key(create=False)
    if not key or not isinstance(tag, str) or not tag:
        return False
    made = hmac.new(key, content, hashlib.sha256).hexdigest()
    return hmac.compare_digest(made.encode(), tag.encode(errors="replace"))


def _content(case: Case) -> bytes:
    doc = to_json(case)
    return json.dumps([doc["graph"], doc["backend"], doc["imports"]], sort_keys=True).encode()


def _key(*, create: bool) -> bytes:
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    path = Path(state, "fxminify", "key")
    try:
        if create and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f"key.{os.getpid()}.{secrets.token_hex(4)}")
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(32))
            with contextlib.suppress(FileExistsError):  # of two processes making a key one wins, and both read it
                os.link(draft, path)
            draft.unlink()
        return path.read_bytes()
    except OSError:
        return b""
