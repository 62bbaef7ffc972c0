"""Private text: what `fxminify.store.private_values` knows by value, and paths, secrets and addresses by their shape.

`private` masks it in text that is only read, `shareable` in a way that leaves the signature of a message as it is. Code
must run, so `revealing` lists what a person should check in it before it is handed out.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator

from ..store.parsing import parse
from ..store.private_values import here
from ..store.signature_rules import installed
from ..store.text import without_addresses

_PART = r"[\w.~+@%=-]+"
#: Absolute paths: POSIX ones of at least two parts, home directories, Windows drives and shares.
_PATH = re.compile(
    rf"(?:(?<![\w/.~-])|(?<=-[ILD]))(?:(?:file://|~[\w.-]*|[A-Za-z]:)?(?:/{_PART})+/?)"
    rf"|(?:/home|/Users)/{_PART}(?:/{_PART})*"
    rf"|(?:[A-Za-z]:|(?<![\w\\])\\\\{_PART})(?:\\{{1,2}}[\w.~+@% -]+)+"
)
#: Tokens before the docstring of a script.
_BLANK = (tokenize.ENCODING, tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE)
_HOME = re.compile(r"^(?:file://)?(?:/home|/Users|/root|/var/home|[A-Za-z]:\\{1,2}Users)(?:[/\\]+[^/\\]*)?[/\\]?$")
#: What stands for a directory.
_NEUTRAL = re.compile(r"(?:/masked|/home/user)(?:/|$)")
_PACKAGES = re.compile(r"^.*?[/\\](?:site|dist)-packages[/\\](.+)$")
#: A single part is a path only if it is a usual directory; ``/2`` and ``and/or`` are none.
_SINGLE = re.compile(r"^/(?:home|root|tmp|usr|var|opt|mnt|etc|data|srv)/?$")
_SETTING = re.compile(r"(?m)^os\.environ\[.*$")
_ADDRESS = re.compile(r"\b(?:https?|ftp|ssh|git)://[^\s\"'<>()\[\]{}]+")
#: Each begins only where a word does, and gives nothing back: the time must grow as the text does.
_SECRETS = (
    (re.compile(r"(?i)(?<![\w-])((?=[\w-]*(?:token|passw(?:or)?d|secret|api[_-]?key|credential))[\w-]++[\"']?+\s*+[=:]"
                r"\s*+[\"']?+)[A-Za-z0-9+/_.-]{12,}+"), r"\1<masked>"),
    (re.compile(r"\b(?:hf_|ghp_|gho_|github_pat_|glpat-|sk-|xox[abp]-|AKIA|ASIA)[A-Za-z0-9_-]{12,}"), "<masked>"),
    (re.compile(r"(?<![\w-])eyJ[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]++"), "<masked>"),
    (re.compile(r"(?<=://)[^/\s@]+@"), ""),
    (re.compile(r"(?<![\w.+-])[\w.+-]++@[\w-]++(?:\.[\w-]++)++"), "<address>"),
    (re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])"), "<address>"),
)  # fmt: skip


def private(text: str) -> str:
    """``text`` with the last parts of paths only, and without secrets, addresses, home directories and the values of
    this machine."""
    return _without_paths(without_addresses(_without_secrets(text)), _shortened)


def shareable(text: str) -> str:
    """``text`` without what `private` leaves out. A path remains one, so that messages keep their signature."""
    return _without_paths(_without_secrets(text), _still_a_path)


def shareable_script(source: str) -> str:
    """A script with its docstring and its comments `shareable`, and its code as it is."""
    lines = source.splitlines(keepends=True)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
        first = next((token for token in tokens if token.type not in _BLANK), None)
        for token in reversed(tokens):
            if token.type != tokenize.COMMENT and token is not first:
                continue
            if token.type not in (tokenize.COMMENT, tokenize.STRING):
                continue
            (start, left), (end, right) = token.start, token.end
            text = lines[start - 1][:left] + shareable(token.string) + lines[end - 1][right:]
            lines[start - 1 : end] = text.splitlines(keepends=True)
        masked = "".join(lines)
        return masked if ast.dump(_bare(masked)) == ast.dump(_bare(source)) else source
    except (SyntaxError, ValueError, tokenize.TokenError, RecursionError):
        return source


def _bare(source: str) -> ast.Module:
    """The code of ``source`` without its docstring."""
    tree = parse(source)
    if ast.get_docstring(tree, clean=False) is not None:
        del tree.body[0]
    return tree


def _without_secrets(text: str) -> str:
    text = here().mask(text)
    for pattern, masked in _SECRETS:
        text = pattern.sub(masked, text)
    return text


def _without_paths(text: str, short: Callable[[str], str]) -> str:
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\0{len(kept) - 1}\0"

    text = _PATH.sub(lambda match: short(match[0]), _ADDRESS.sub(keep, text.replace("\0", "?")))
    return re.sub(r"\0(\d+)\0", lambda match: kept[int(match[1])], text)


def revealing(text: str) -> Iterator[str]:
    """A few words on each value of this machine, absolute path and likely secret in ``text``. They do not repeat it.

    The values of environment variables that a script sets are public (`fxminify.backends.provenance.variables`).
    """
    yield from here().found(_SETTING.sub("", text))
    bare = _ADDRESS.sub("", text)
    if any(_shortened(m[0]) != m[0] and not _NEUTRAL.match(m[0]) for m in _PATH.finditer(bare)):
        yield "an absolute path"
    if any(pattern.search(text) for pattern, masked in _SECRETS[:3] if masked):
        yield "what looks like a secret"
    if any(pattern.search(text) for pattern, _ in _SECRETS[4:]):
        yield "an address"


def _still_a_path(path: str) -> str:
    """`_shortened` below a directory that says nothing."""
    short = _shortened(path)
    if short == path or "/" in short.removeprefix("<path>/"):
        return short
    return "/masked" if short == "<path>" else f"/masked/{short.removeprefix('<path>/')}"


def _shortened(path: str) -> str:
    """The last part of a path; of a file of an installed package all that comes after ``site-packages``."""
    if inside := _PACKAGES.match(path):
        return inside[1]
    if _HOME.match(path) or _SINGLE.match(path):
        return "<path>"
    parts = [part for part in re.split(r"[/\\]+", path.removeprefix("file://")) if part]
    if len(parts) < 2:
        return path
    parts[-1] = installed().cache_files.sub("digest", parts[-1])
    return parts[-1] if "." in parts[-1] or not re.match(r"^(?:[A-Za-z]:|/|~|\\)", path) else f"<path>/{parts[-1]}"
