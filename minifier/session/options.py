"""The options of a minification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class MinifyOptions:
    """The options of `fxminify.minify` and `minify run`. Times are in seconds, ``memory`` is in GiB.

    * ``jobs``: workers at a time; 0: as many as the cluster of the ``executor`` has, without one as many as processors
      and memory allow, where a query takes long enough for it.
    * ``executor``: a Dask cluster, ``dask://HOST:PORT`` or ``local:N``.
    * ``match``: how much of the signature must agree, ``exact``, ``origin`` or ``any``; ``error_regex`` instead says
      that a failure is the same one when its text matches.
    * ``replays``: runs of the captured graph before the search; ``runs``: runs of the finished script in
      processes of their own, of which at least one is fresh.
    * ``min_rate``: the share of its runs in which a candidate, and the result, must fail.
    * ``budget``, ``max_queries``: seconds and queries for one capture; ``timeout``: seconds for one query,
      by default derived from the replays; ``memory``: the most a worker may allocate.
    * ``embed_data``: store captured values beside the script where no short form of them shows the failure.
    * ``trust``: run captures that were made elsewhere.
    * ``sandbox``: run what a capture executes without network and without the user's files.
    * ``explain``: also find out what of the result matters.
    * ``again``: minify captures that were already done, too; ``from_step``: go on from this step of the history.
    * ``strict``: raise `fxminify.minifier.reducer.shrinker.PassFailed` when a pass itself fails.
    """

    jobs: int = 0
    match: Literal["exact", "origin", "any"] = "exact"
    error_regex: str | None = None
    replays: int = 3
    runs: int = 3
    budget: float | None = None
    max_queries: int | None = None
    timeout: float | None = None
    memory: float | None = None
    embed_data: bool = False
    trust: bool = False
    sandbox: bool = False
    explain: bool = True
    from_step: int | None = None
    executor: str | None = None
    strict: bool = False
    again: bool = False
    min_rate: float | None = None
