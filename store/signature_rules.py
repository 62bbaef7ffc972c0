"""Signature rules of single compilers, which their adapters provide as data.

The rules that hold for every backend are in `fxminify.store.masking`. A backend's adapter
(`fxminify.backends.adapters`) has a `SignatureRules` as its attribute ``signature``. All rules of all installed
adapters apply to every failure, because one backend may call another: a chain, or a backend that falls back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from . import extensions


@dataclass(frozen=True, slots=True)
class SignatureRules:
    """Regular expressions for the output of a compiler.

    * ``masks``: pairs of a pattern and its replacement, for names in messages that change from run to run or as a
      graph shrinks.
    * ``numbered``: names that the compiler makes by appending a number.
    * ``noise``: lines on standard error that report no error, such as warnings and log lines.
    * ``errors``: lines on standard error that report an error. ``prefixes``: the beginnings that are cut off such a
      line, such as the time.
    * ``generic``: messages of exceptions that are the same for every bug. For such an exception, the diagnosis is
      the first line on standard error that looks like an error, or else the first one that is not noise.
    * ``wrappers``: messages of exceptions which say only that a step failed. A person sees the exception that
      caused them.
    * ``cache_files``: names of files that the compiler puts into its caches.

    No pattern may backtrack from each letter of a long word: messages can have megabytes.
    """

    masks: tuple[tuple[str, str], ...] = ()
    numbered: tuple[str, ...] = ()
    noise: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    generic: tuple[str, ...] = ()
    wrappers: tuple[str, ...] = ()
    cache_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InstalledRules:
    """The rules of all adapters, compiled. A pattern matches nothing where no adapter has one."""

    masks: tuple[tuple[re.Pattern[str], str], ...]
    numbered: tuple[str, ...]
    noise: re.Pattern[str]
    errors: re.Pattern[str]
    prefixes: re.Pattern[str]
    generic: re.Pattern[str]
    wrappers: re.Pattern[str]
    cache_files: re.Pattern[str]


@cache
def installed() -> InstalledRules:
    """The rules of the adapters that are installed here."""
    found = [rules for adapter in extensions.load(extensions.BACKENDS).values() if (rules := _rules(adapter))]
    return InstalledRules(
        masks=tuple((re.compile(pattern), replacement) for rules in found for pattern, replacement in rules.masks),
        numbered=tuple(name for rules in found for name in rules.numbered),
        noise=_any([pattern for rules in found for pattern in rules.noise]),
        errors=_any([pattern for rules in found for pattern in rules.errors]),
        prefixes=_any([pattern for rules in found for pattern in rules.prefixes]),
        generic=_any([pattern for rules in found for pattern in rules.generic]),
        wrappers=_any([pattern for rules in found for pattern in rules.wrappers]),
        cache_files=_any([pattern for rules in found for pattern in rules.cache_files]),
    )


def _rules(adapter: Any) -> SignatureRules | None:
    rules = getattr(adapter, "signature", None)
    return rules if isinstance(rules, SignatureRules) else None


def _any(patterns: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns) or r"(?!)")
