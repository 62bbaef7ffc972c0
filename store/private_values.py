"""Private values of this user and machine: names of user and host, the home directory, the environment.

`here` has these values of this process. They are masked in text that is only read, so that the text is the same for
every user who captures it. Files for other people are searched for them. This module alone decides which values are
too short or too common: masking must not change the name of an operator or half of a message. ``docs/security.md``
states the rule.
"""

from __future__ import annotations

import builtins
import getpass
import ipaddress
import json
import keyword
import os
import re
import socket
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from urllib.parse import quote, unquote, urlsplit

from .document.names import SHIPPED

#: The fewest characters of a name of a user or host, of a secret, and of any other value.
SHORTEST_NAME, SHORTEST_SECRET, SHORTEST = 3, 4, 6
#: A value of so many characters is masked inside longer words, too.
_LONG = 16
USER, HOST, HOME, VALUE = "<user>", "<host>", "/home/user", "<masked>"
#: What stands for a value inside a path, which is to remain one.
_IN_PATH = {USER: "user", HOST: "host", VALUE: "masked"}
_ABSOLUTE = "/masked/value"
_PLACEHOLDER = re.compile("|".join(map(re.escape, (USER, HOST, VALUE, "<address>"))))

#: Variables that say nothing about a person, and settings of torch and compilers that their messages repeat; of these
#: only paths and addresses count.
_OPEN = re.compile(
    r"TERM\w*|COLORTERM|COLUMNS|LINES|LANG|LANGUAGE|LC_\w+|TZ|SHELL|SHLVL|LS_COLORS|PS\d|EDITOR|VISUAL|PAGER|LESS\w*|"
    r"DEBIAN_FRONTEND|DISPLAY|XDG_(?:SESSION|CURRENT)_\w+|PYTEST_\w+|PYTHON(?!PATH$|HOME$)\w+|FXMINIFY_\w+|"
    r"(?:TORCH|PYTORCH|AOT|INDUCTOR|TRITON|CUDA|NVIDIA|NCCL|GLOO|OMP|MKL|KMP|OPENBLAS|XLA|ONNX|ORT|OPENVINO|IREE|RUST|"
    r"CC|CXX|CFLAGS|CXXFLAGS|LDFLAGS|MAX_JOBS)(?:_?[A-Z0-9]\w*)?"
)
_SECRET = re.compile(
    r"TOKEN|SECRET|PASSW|PWD$|CREDENTIAL|AUTH|(?:API|ACCESS|PRIVATE|ENCRYPT\w*|SIGNING)_?KEY", re.IGNORECASE
)
_FOLDERS = frozenset({"PWD", "OLDPWD"})
_USERS = ("LOGNAME", "USER", "LNAME", "USERNAME", "SUDO_USER")
_HOSTS = ("HOSTNAME", "HOST", "COMPUTERNAME")
#: Directories of every system, whose files say nothing about a person.
_STANDARD = re.compile(r"/(?:bin|sbin|lib\w*|usr|etc|dev|proc|sys|run|var|snap)(?:/|$)")
_NUMBER = re.compile(
    r"[\d\s.,:;x+_/-]*|v?\d+(?:\.\d+)+(?:[+-]\w+|[abr]c?\d+)?|0[xX][0-9a-fA-F]{1,8}|-?\d+(?:\.\d+)?[eE][+-]?\d+"
)
_LOCALE = re.compile(r"(?:[a-z]{2,3}(?:_[A-Z]{2})?|C|POSIX)(?:\.[\w-]+)?(?:@\w+)?")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
#: A stretch of a text with a slash in it. It begins only where a word does, so that the time grows with the text.
_STRETCH = re.compile(r"(?<![\w.~+@%=-])[\w.~+@%=-]*+(?:/[\w.~+@%=-]*+)++")

#: Names of accounts and hosts that many machines have, and words of messages that are also names.
_COMMON = frozenset(
    re.findall(
        r"\w+",
        """
        root admin administrator user users guest test tests tester testing demo dev devel developer develop
        prod production staging stage local localhost localdomain host hostname node nodes worker workers runner
        build builder jenkins ci nobody daemon www data ubuntu debian fedora centos alpine arch linux docker
        container vagrant ec2 azure jovyan jupyter colab kaggle conda python torch pytorch tensor server client
        cluster gpu cpu cuda tpu box pc laptop desktop home work workspace project projects app apps code src
        main master default true false yes no on off none null enabled disabled auto always never info debug
        warning warn error errors fatal critical trace verbose quiet silent strict fast slow high low medium all
        any same full empty new old release nightly stable lan internal example com org net io the and for not
        are was has had its but can may one two got out off own use via per see set get let put run ran try yet
        how who why now too than then this that with will from have been must when what where which while were
        your their masked address there these those only into onto over under also both each some such very more
        most less least first last next mark grant bill frank rich rose may june april august art ray dean drew
        chase grace hope faith joy will jack rob pat sue ken gene dale glen ford wade lane reed rusty sunny max
        min abs dim sum mul add sub div log exp sin cos tan size shape type value values name key index input
        inputs output outputs graph model module layer layers encoder decoder batch head heads weight weights
        bias grad loss train training eval inference compile compiler compiled backend function call called
        kernel op ops operator argument arguments arg args kwargs failed failure fail raise raised exception
        unsupported supported invalid expected found missing unknown unexpected assertion assert internal dynamo
        inductor eager aot triton nvidia amd intel arm mac windows darwin posix utf bash zsh fish vim nano emacs
        less
        """,
    )
)


@dataclass(frozen=True, slots=True)
class PrivateValue:
    """A text to mask. ``what`` describes it in a sentence, without repeating it."""

    text: str
    what: str
    instead: str
    #: It is masked inside words, too, and where only a letter differs in case.
    inside: bool = False
    any_case: bool = False

    def pattern(self) -> str:
        text = re.escape(self.text)
        if self.instead == HOME:
            return rf"{text}(?![A-Za-z0-9_-])"
        letters = r"\w" if self.instead == VALUE and self.text.isidentifier() else "[A-Za-z0-9]"
        if not self.inside:
            left = rf"(?:(?<!{letters})|(?<=%[0-9A-F]{{2}}))" if self.text[0].isalnum() else ""
            right = rf"(?!{letters})" if self.text[-1].isalnum() else ""
            text = f"{left}{text}{right}"
        return f"(?i:{text})" if self.any_case else text


@dataclass(frozen=True)
class PrivateValues:
    """The values that are looked for. ``common`` says of which facts no value is, because it is short or common."""

    values: tuple[PrivateValue, ...]
    common: tuple[str, ...] = ()
    _known: Mapping[str, PrivateValue] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_known", {value.text.lower(): value for value in reversed(self.values)})

    def mask(self, text: str) -> str:
        """``text`` with a placeholder for each value. In a path that is a plain word, so it remains a path."""
        if (pattern := self._pattern(text)) is None:
            return text
        stretches = [found.span() for found in _STRETCH.finditer(text)]
        starts = [start for start, _ in stretches]

        def placeholder(found: re.Match[str]) -> str:
            value, (begin, end) = self._known[found[0].lower()], found.span()
            if value.instead == HOME:
                return "~" if text[end : end + 1] == "/" else HOME
            if value.instead == VALUE and value.text.startswith("/"):
                return _ABSOLUTE
            place = bisect_right(starts, begin) - 1
            within = place >= 0 and end <= stretches[place][1]
            return _IN_PATH[value.instead] if within else value.instead

        return pattern.sub(placeholder, text)

    def folder(self, path: str) -> str:
        """A directory that must be found again, relative to the home directory (``~``) if it is below that."""
        homes = [value.text for value in self.values if value.instead == HOME]
        inside = next((home for home in homes if f"{path}/".startswith(f"{home}/")), None)
        return path if inside is None else f"~{path[len(inside) :]}"

    def besides(self, variable: str) -> PrivateValues:
        """Return these values without the value of the environment variable ``variable``."""
        return PrivateValues(tuple(value for value in self.values if value.what != f"{_OF_VARIABLE}{variable}"))

    def found(self, text: str) -> list[str]:
        """Describe the values that ``text`` contains, each once, without repeating it."""
        if (pattern := self._pattern(text)) is None:
            return []
        return list(dict.fromkeys(self._known[match[0].lower()].what for match in pattern.finditer(text)))

    def described(self) -> str:
        """Describe the values in words."""
        facts = list(dict.fromkeys(value.what for value in self.values))
        named = [what for what in facts if not what.startswith(_OF_VARIABLE)]
        number = len(facts) - len(named)
        values = f"{number} value{'' if number == 1 else 's'} of the environment"
        return ", ".join([*named, values])

    def _pattern(self, text: str) -> re.Pattern[str] | None:
        """The values that ``text`` may have in it, None where it has none: a search for each takes no time."""
        lower = text.lower()
        present = [value for known, value in self._known.items() if known in lower]
        return _compiled(tuple(present)) if present else None


@lru_cache(maxsize=64)
def _compiled(values: tuple[PrivateValue, ...]) -> re.Pattern[str]:
    longest_first = sorted(values, key=lambda value: (-len(value.text), value.text))
    return re.compile("|".join(value.pattern() for value in longest_first))


_OF_VARIABLE = "the value of the environment variable "


def here() -> PrivateValues:
    """Return the values of this process, including the environment in which it began.

    A page calls this some hundred times. So the environment, which may have changed meanwhile, is compared in the
    form in which CPython keeps it, if that is available, and is not decoded each time.
    """
    raw = getattr(os.environ, "_data", None)
    if _last and raw == _last[0][0] and _last[0][1] == _AT_START:
        return _last[0][2]
    found = _here(tuple(sorted({**_AT_START, **os.environ}.items())), tuple(sorted(_AT_START.items())))
    if isinstance(raw, dict):
        _last[:] = [(dict(raw), dict(_AT_START), found)]
    return found


#: The environment as it was when this module was imported: a program may remove a secret later.
_AT_START = dict(os.environ)
#: What `here` has found last, and in which environment.
_last: list[tuple[dict[bytes, bytes], dict[str, str], PrivateValues]] = []


@lru_cache(maxsize=8)
def _here(now: tuple[tuple[str, str], ...], began: tuple[tuple[str, str], ...]) -> PrivateValues:
    users: list[str] = []
    homes = [os.path.expanduser("~")]
    with suppress(KeyError, OSError, ImportError):
        users.append(getpass.getuser())
    with suppress(KeyError, ImportError):
        import pwd

        account = pwd.getpwuid(os.getuid())
        users.append(account.pw_name)
        homes.append(account.pw_dir)
    homes += [os.path.realpath(home) for home in homes]
    return of(dict(now), users, [socket.gethostname(), os.uname().nodename], homes, [dict(began)])


def of(
    environment: Mapping[str, str],
    users: Iterable[str] = (),
    hosts: Iterable[str] = (),
    homes: Iterable[str] = (),
    earlier: Iterable[Mapping[str, str]] = (),
) -> PrivateValues:
    """The values to mask of these facts; ``earlier`` has environments whose values count as well."""
    environments = [environment, *earlier]
    users = [*users, *(env.get(name, "") for env in environments for name in _USERS)]
    hosts = [*hosts, *(env.get(name, "") for env in environments for name in _HOSTS)]
    homes = [*homes, *(env.get("HOME", "") for env in environments)]
    homes = [home.rstrip("/") for home in homes if home.startswith("/")]
    users += [os.path.basename(home) for home in homes if home.startswith(("/home/", "/Users/"))]
    names = [part for host in hosts for part in (host, *host.split(".", 1))]
    found = [PrivateValue(home, "the home directory", HOME) for home in homes if _is_own_folder(home)]
    found += [PrivateValue(user, "the user name", USER, any_case=True) for user in users if _is_rare_name(user)]
    found += [PrivateValue(name, "the host name", HOST, any_case=True) for name in names if _is_rare_name(name)]
    known = {value.text.lower() for value in found}
    for env in environments:
        for variable, content in sorted(env.items()):
            what = f"{_OF_VARIABLE}{variable}"
            secret = names_secret(variable) and variable not in _FOLDERS
            for text, hidden in _parts(variable, content, secret):
                inside = hidden or len(text) >= _LONG
                found += [
                    PrivateValue(form, what, VALUE, inside=inside) for form in _forms(text) if form.lower() not in known
                ]
    own = {value.what for value in found}
    common = tuple(what for what in ("the user name", "the host name", "the home directory") if what not in own)
    return PrivateValues(tuple(dict.fromkeys(found)), common)


def names_secret(variable: str) -> bool:
    """Whether the name of an environment variable says that its value is a secret."""
    return _SECRET.search(variable) is not None


def covers(masked: str, text: str) -> bool:
    """Whether ``text`` is ``masked`` with anything in the places of its placeholders."""
    first, *rest = _PLACEHOLDER.split(masked)
    if not rest or not text.startswith(first):
        return False
    *middle, last = rest
    place = len(first)
    for part in middle:
        if (at := text.find(part, place)) < 0:
            return False
        place = at + len(part)
    return len(text) - len(last) >= place and text.endswith(last)


def _parts(variable: str, content: str, secret: bool) -> Iterator[tuple[str, bool]]:
    """The texts of a value that are private, each with whether it is a secret."""
    value = content.strip()
    if variable in {*_USERS, *_HOSTS, "HOME"}:
        return
    folders = [part for part in value.split(os.pathsep) if part.startswith("/")]
    if folders and "://" not in value and (len(folders) > 1 or value.startswith("/")) and not secret:
        yield from ((folder.rstrip("/"), False) for folder in folders if _is_own_folder(folder.rstrip("/")))
        return
    if "://" in value:
        yield from _parts_of_address(value)
    if _OPEN.fullmatch(variable) and not secret and "://" not in value:
        return
    if secret:
        if len(value) >= SHORTEST_SECRET and not (len(value) < 8 and (_NUMBER.fullmatch(value) or _is_word(value))):
            yield value, True
    elif len(value) >= SHORTEST and not _is_common(value):
        yield value, False
    lines = [line.strip() for line in value.splitlines()] if "\n" in value else []
    yield from ((line, secret) for line in lines if len(line) >= _LONG and not _is_common(line))


def _parts_of_address(value: str) -> Iterator[tuple[str, bool]]:
    """The user, the password and the host of a URL."""
    try:
        found = urlsplit(value)
        user, password, host = found.username, found.password, found.hostname
    except ValueError:
        return
    for text in dict.fromkeys(form for given in (password, unquote(password or "")) if (form := given)):
        if len(text) >= SHORTEST_SECRET and not _is_word(text):
            yield text, True
    if (user or password) and host and "." in host and _is_rare_name(host):
        yield host, False
    if user and len(user) >= SHORTEST and _is_rare_name(user):
        yield user, False


def _forms(text: str) -> list[str]:
    """``text`` as it is, and as it may be quoted."""
    return list(dict.fromkeys([text, repr(text)[1:-1], json.dumps(text)[1:-1], quote(text), quote(text, safe="")]))


def _is_own_folder(path: str) -> bool:
    """Whether an absolute path is one of this machine: not one that every system has."""
    return path.startswith("/") and path.count("/") > 1 and path != HOME and not _STANDARD.match(path)


def _is_rare_name(name: str) -> bool:
    """Whether the name of a user or a host stands for nothing else."""
    return len(name) >= SHORTEST_NAME and not _NUMBER.fullmatch(name) and not _is_word(name)


def _is_word(text: str) -> bool:
    """Whether ``text`` is one word of messages, of Python or of torch."""
    return text.lower() in _COMMON or text.lower() in _vocabulary()


def _is_common(value: str) -> bool:
    """Whether a value is one of many environments: a number, a switch, a locale, or words of torch only."""
    if _NUMBER.fullmatch(value):
        return not _is_address(value)
    if _LOCALE.fullmatch(value) and len(value) <= 12 and ("_" in value or "." in value):
        return True
    words = _WORD.findall(value)
    real = [word for word in words if len(word) > 2 and not word.isdigit()]
    short = all(len(word) < 5 for word in words if word.isdigit())
    return bool(real) and short and len(words) < 8 and all(map(_is_word, real))


def _is_address(value: str) -> bool:
    try:
        found = ipaddress.ip_address(value)
    except ValueError:
        return False
    return not (found.is_loopback or found.is_unspecified)


@cache
def _vocabulary() -> frozenset[str]:
    """The words in the names of torch and of Python, in lower case."""
    names = [*sys.stdlib_module_names, *dir(builtins), *keyword.kwlist, SHIPPED.read_text("utf-8")]
    text = " ".join(names)
    whole = re.findall(r"[A-Za-z_]\w*+", text)
    return frozenset(word.lower() for name in whole for word in (name, *_WORD.findall(name)))
