"""Private text: what `fxminify.store.private_values` knows by value, and paths, secrets and addresses by their shape.

`private` masks it in text that is only read, `shareable` in a way that leaves the signature of a message as it is. Code
must run, so `revealing` lists what a person should check in it before it is handed out.
"""

from __future__ import annotations

import ast
import io
import ipaddress
import re
import tokenize
from collections.abc import Callable, Collection, Iterator
from typing import Any

from .parsing import parse
from .private_values import here
from .scrubbing import masked_json
from .signature_rules import installed
from .text import without_addresses

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
#: A single part is a path only if it is a usual directory; ``/2`` and ``and/or`` are not.
_SINGLE = re.compile(r"^/(?:home|root|tmp|usr|var|opt|mnt|etc|data|srv)/?$")
_SETTING = re.compile(r"(?m)^os\.environ\[.*$")
_ADDRESS = re.compile(r"\b(?:https?|ftp|ssh|git)://[^\s\"'<>()\[\]{}]+")
#: Keys whose value is a secret however short it is, and keys that mean many things.
_TELLING = (
    r"passw(?:or)?d|passphrase|passcode|(?<![a-z])pwd?|secret|credential|(?:api|access|account|private|secret|signing|encryption"
    r"|auth)[_-]?key|auth[_-]?token|access[_-]?token|refresh[_-]?token|id[_-]?token|client[_-]?secret"
)
_ANY = rf"{_TELLING}|token|key|signature|sig|auth|session|sas|pat|jwt|code"
#: Words that stand where a secret would, in code and in prose.
_NO_SECRET = r"(?:None|null|true|false|not|str|bytes|int|self|required|missing|empty|unset|undefined|invalid|<\w+>)\b"
#: The beginning of an alternative: a quoted value, or what follows. And a value that ends at a blank or a delimiter.
_QUOTED_OR = r"""(?:(["'])[^"'\n]{4,}+(?=["'])|"""
_BARE = r"""[^\s"'`,;&<>()\[\]{}]"""
#: What begins a token of a service.
_PREFIXES = (
    r"hf_|gh[opsru]_|github_pat_|gl[a-z]{2,6}-|sk-|[srp]k_(?:live|test)_|xox[abeprs]-|xapp-|AKIA|ASIA|AIza|ya29\.|npm_|"
    r"pypi-|dop_v1_|shpat_|nvapi-|r8_|SG\.|lin_api_|dckr_pat_|sq0[a-z]{3}-|fxm_\d{1,18}_|fxs_\d{1,18}_"
)
#: The last part of the name of a host, besides two letters, and endings of files among those.
_DOMAINS = frozenset(
    re.findall(
        r"\w+",
        """
    com net org edu gov mil int info biz io ai dev app cloud tech local localdomain internal intern lan corp home
    intra intranet private example test invalid cluster svc compute node consul arpa onion
""",
    )
)
_ENDINGS = frozenset(
    re.findall(
        r"\w+",
        """
    py cc so js rs md sh go td ll cu hh ml pl rb ts pt cl kt db gz xz ex hs el vb fs mm bc pb st tf op in
""",
    )
)
#: Each is looked for only where one of these texts is. It begins only where a word does, and gives nothing back: the
#: time must grow as the text does.
_SECRETS = tuple((tuple(needles.split()), re.compile(pattern), masked) for needles, pattern, masked in (
    ("-----begin", r"-----BEGIN [A-Z0-9 ]{1,60}+-----(?:(?!-----END)[\s\S])*+(?:-----END [A-Z0-9 ]{1,60}+-----)?",
     "<masked>"),
    ("-----end", r"(?<![A-Za-z0-9+/=\s])[A-Za-z0-9+/=\s]{16,}+-----END [A-Z0-9 ]{1,60}+-----", "<masked>"),
    ("authorization", r"(?i)\b((?:proxy-)?authorization[\"']?+\s*+[:=]\s*+[\"']?+(?:[a-z]{3,12}+[ \t]++)?+)"
                      rf"{_BARE}{{4,}}+", r"\1<masked>"),
    ("bearer basic", r"(?i)\b((?:bearer|basic)[ \t]++)(?=[\w.~+/-]{0,200}[\d=])[A-Za-z0-9._~+/-]{8,}+=*+",
     r"\1<masked>"),
    ("cookie", r"(?i)\b((?:set-)?cookie[\"']?+:[ \t]*+)[^\r\n]++", r"\1<masked>"),
    ("=", rf"(?i)([?&;#](?=[\w.-]*(?:{_ANY}))[\w.-]{{1,60}}+=)[^\s&;#\"'<>]{{4,}}+", r"\1<masked>"),
    ("-", rf"(?i)(?<![\w-])(--?(?=[\w-]*(?:{_ANY})[=\s])[\w-]{{1,60}}+(?:=|[ \t]++(?!-)))(?!{_NO_SECRET})"
          rf"{_QUOTED_OR}(?=\S{{0,200}}\d){_BARE}{{4,}}+)", r"\1\2<masked>"),
    ("pass pw secret credential key token",
     rf"(?i)(?<![\w$-])((?=[\w-]*(?:{_TELLING}))[\w-]{{1,80}}+[\"']?+\s*+(?:=>|[=:])\s*+)(?!{_NO_SECRET})"
     rf"{_QUOTED_OR}{_BARE}{{4,}}+)", r"\1\2<masked>"),
    ("token", r"(?i)(?<![\w-])((?=[\w-]*token\b)[\w-]{1,80}+[\"']?+\s*+[=:]\s*+[\"']?+)[A-Za-z0-9+/_.-]{12,}+",
     r"\1<masked>"),
    ("pass pw secret credential key token",
     rf"(?<![\w$-])((?=[A-Z0-9_]{{1,80}}=)(?i:(?=\w*(?:{_TELLING})))\w++=)(?!{_NO_SECRET}){_BARE}{{4,}}+",
     r"\1<masked>"),
    ("://", r"(?<=://)[^\s/@:\"'<>]{0,100}:[^\s@\"'<>]{1,200}@(?:[^\s/@\"'<>]{0,200}@)?", ""),
    ("-u --user", r"(?<![\w-])((?:-u|--user)[= ][^\s:]{1,60}:)[^\s:]{2,}+", r"\1<masked>"),
    ("hook", r"(?i)(\bhttps?://(?:[\w.-]{0,60}(?:\bhooks?|\.webhook)\.[\w.-]*+|[\w.-]{1,80}/(?:[\w-]{1,20}/)?webhooks?)/)"
             r"[^\s\"'<>]{8,}+", r"\1<masked>"),
    ("_ - akia asia aiza ya29 sg.", rf"\b(?:{_PREFIXES})[A-Za-z0-9_-]{{12,}}+", "<masked>"),
    ("akc ap", r"\b(?:AKC|AP[0-9A-F])(?=[A-Za-z]{0,40}\d)[A-Za-z0-9]{15,}+", "<masked>"),
    ("sk ac", r"\b(?:SK|AC)[0-9a-f]{32}\b", "<masked>"),
    ("-us", r"\b[0-9a-f]{32}-us\d{1,2}\b", "<masked>"),
    (":", r"\b\d{8,10}:[A-Za-z0-9_-]{35}(?![\w-])", "<masked>"),
    (".", r"(?<![\w.-])[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}+", "<masked>"),
    ("eyj", r"(?<![\w-])eyJ[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]++", "<masked>"),
))  # fmt: skip
#: The addresses of a machine for itself, which are no private text: loopback, and all of its own.
_THIS_MACHINE = re.compile(r"127\.|0\.0\.0\.0")
#: What names a machine or a person.
_ADDRESSES = tuple((tuple(needles.split()), re.compile(pattern), masked) for needles, pattern, masked in (
    ("://", r"(?<=://)[^/\s@]+@", ""),
    ("@", r"(?<![\w.+-])(?:[\w.+-]++|<user>)@(?:[\w-]++(?:\.[\w-]++)++|<host>(?:\.[\w-]++)*+)", "<address>"),
    (".", rf"(?<![\w.])(?!{_THIS_MACHINE.pattern})(?:\d{{1,3}}\.){{3}}\d{{1,3}}(?![\w.])", "<address>"),
    (": -", r"(?<![\w:-])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![\w:-])", "<address>"),
))  # fmt: skip
#: A text of words alone, in which there is nothing to look for by shape.
_NOTHING = re.compile(r"[\w ,;!?*()<>|-]{0,11}|(?:[A-Za-z]{0,15}+[ ,;!?*()<>|\n]++)*+[A-Za-z]{0,15}", re.ASCII)
#: What may be the name of a host with its port; `_is_host` decides.
_HOST = re.compile(r"(?<![\w.@-])[A-Za-z0-9][A-Za-z0-9.-]*+(?=:\d{2,5}(?!\w))")
#: What may be an address of IPv6; `_is_address` decides.
_IPV6 = re.compile(
    r"(?<![\w:.])(?=[0-9A-Fa-f:]*\d)(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?:(?:\.\d{1,3}){3})?(?:%\w{1,16})?(?![\w:])"
)


def private(text: str, keep: Collection[str] = ()) -> str:
    """``text`` with the last parts of paths only, and without secrets, addresses, home directories and the values of
    this machine. What the user typed may be kept: ``keep`` has paths and addresses that stay as they are."""
    if _NOTHING.fullmatch(text):
        return here().mask(text)
    text = text.replace("\0", "?")
    present = [own for own in keep if own in text]
    for number, own in enumerate(present):
        text = text.replace(own, f"\0k{number}\0")
    text = _without_paths(without_addresses(without_secrets(text)), _shortened, own=True)
    return re.sub(r"\0k(\d+)\0", lambda match: present[int(match[1])], text)


def private_json(value: Any, keep: Collection[str] = ()) -> Any:
    """``value`` with all its texts `private`, but for the keys of objects."""
    return masked_json(value, lambda text: private(text, keep))


def shareable(text: str) -> str:
    """``text`` without what `private` leaves out. A path remains one, so that messages keep their signature."""
    return _without_paths(without_secrets(text), _still_a_path)


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


def without_secrets(text: str) -> str:
    """``text`` without the values of this machine, without secrets and without addresses. Its paths stay."""
    text = here().mask(text)
    lower = text.lower()
    for needles, pattern, masked in (*_SECRETS, *_ADDRESSES):
        if any(needle in lower for needle in needles):
            text = pattern.sub(masked, text)
    if ":" not in text:
        return text
    text = _IPV6.sub(_without_address, text)
    return _HOST.sub(lambda match: "<host>" if _is_host(match) else match[0], text)


#: The first group of an address that is in use: global, local to a site or to a link. Others are slices, times, names.
_GROUP = re.compile(r"(?:[23][0-9a-f]|f[cd])[0-9a-f]{2}|fe[89ab][0-9a-f]", re.IGNORECASE)


def _without_address(match: re.Match[str]) -> str:
    """``<address>`` for one of IPv6, which a colon may follow."""
    colon = ":" if re.search(r"[^:]:$", match[0]) else ""
    return f"<address>{colon}" if _is_address(match[0].removesuffix(colon)) else match[0]


def _is_address(text: str) -> bool:
    """Whether a text is an address of IPv6."""
    first = text.partition(":")[0]
    if not _GROUP.fullmatch(first) and not text.lower().startswith("::ffff:"):
        return False
    try:
        ipaddress.IPv6Address(text.partition("%")[0])
    except ValueError:
        return False
    return not re.fullmatch(r"\d+::\d*", text)


def _is_host(match: re.Match[str]) -> bool:
    """Return whether a word before a colon and a number is a host name, and not the name of a file or a module."""
    labels = match[0].lower().split(".")
    if match.string.endswith("://", 0, match.start()):
        return labels != ["localhost"] and not _THIS_MACHINE.match(match[0])
    if match.string.endswith("/", 0, match.start()) or len(labels) < 2 or "" in labels:
        return False
    last = labels[-1]
    if len(last) == 2 and last.isalpha() and last not in _ENDINGS:
        return len(labels) > 2 or any(not c.isalpha() for c in labels[0])
    return last in _DOMAINS


def _without_paths(text: str, short: Callable[[str], str], *, own: bool = False) -> str:
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[0])
        return f"\0{len(kept) - 1}\0"

    text = _PATH.sub(lambda match: short(match[0]), _ADDRESS.sub(keep, text if own else text.replace("\0", "?")))
    return re.sub(r"\0(\d+)\0", lambda match: kept[int(match[1])], text)


def revealing(text: str) -> Iterator[str]:
    """A few words on each value of this machine, absolute path and likely secret in ``text``. They do not repeat it.

    The values of environment variables that a script sets are public (`fxminify.backends.provenance.variables`).
    """
    yield from here().found(_SETTING.sub("", text))
    bare = _ADDRESS.sub("", text)
    if any(_shortened(m[0]) != m[0] and not _NEUTRAL.match(m[0]) for m in _PATH.finditer(bare)):
        yield "an absolute path"
    if any(pattern.search(text) for _, pattern, _ in _SECRETS):
        yield "what looks like a secret"
    if (
        any(pattern.search(text) for _, pattern, masked in _ADDRESSES if masked)
        or any(_without_address(match) != match[0] for match in _IPV6.finditer(text))
        or any(map(_is_host, _HOST.finditer(text)))
    ):
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
