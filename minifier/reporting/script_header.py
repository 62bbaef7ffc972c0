"""The header of a script that is stored, completed with what the report of its capture says."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from ...backends.adapters import Illustration
from ...repro_templates.comment import Findings
from ...repro_templates.context import Header
from ...store.index import CaptureInfo, Index
from . import gathering, record
from .report import CaptureReport, values

#: The most rows in the table of reduction steps, and the most lines of the difference of a variant.
_MOST_STEPS, _MOST_LINES = 20, 40


def stored(index: Index, capture: CaptureInfo) -> Header | None:
    """The header of the script of ``capture``. None where it cannot be read."""
    header = record.kept(index, capture)
    return None if header is None else completed(header, gathering.of_info(index, capture))


def completed(header: Header, report: CaptureReport) -> Header:
    """``header`` with the answers of ``report``."""
    if (ablation := report.ablation) is not None and ablation.shows:
        layers = tuple((row.backend, row.layer, row.result) for row in ablation.rows)
        elsewhere = "" if ablation.torch in ("", header.torch) else f" with torch {ablation.torch}"
        header = replace(header, layers=layers, enters=f"{ablation.enters}{elsewhere}")
    if (found := report.cause) is not None:
        asked = [] if found.torch == header.torch else [f"Asked with torch {found.torch}."]
        header = replace(header, cause=(*found.sentences, *asked))
    if (needs := report.matters) is not None:
        header = replace(header, matters=tuple(filter(None, (needs.summary, *needs.sentences))))
        if (variant := needs.variant) is not None and header.matters:
            told = (variant.passes_with, *variant.difference.splitlines()[:_MOST_LINES])
            header = replace(header, passing_variant=told)
    if report.divergence is not None and (first := report.divergence.first_node) is not None:
        header = replace(header, first={
            "node": first.node, "position": first.position, "of": first.of, "error": first.error,
            "eager_error": first.eager_error,
        })  # fmt: skip
    drawn = tuple(Illustration(item.name, item.text, error=item.error) for item in report.illustrations)
    header = replace(header, illustration_heading=report.illustration_heading, illustrations=drawn)
    return replace(header, findings=findings(report), steps=_steps(report), values=values(report))


def findings(report: CaptureReport) -> Findings:
    """The findings of ``report``, in phrases for a comment."""
    needs, ways, versions = report.matters, report.ways_around or (), report.versions
    found = Findings(
        fails_in="" if report.layer is None else report.layer.fails_in,
        works_around=tuple("; ".join(way.lines) for way in ways if way.helps),
        first_bad="" if versions is None else versions.first_bad or "",
        now="" if versions is None else versions.newest or "",
        values=_small(report),
    )
    if needs is None:
        return found
    passes = needs.passes_with
    if not needs.needs and not passes and needs.variant is not None:
        passes = (needs.variant.passes_with,)
    return replace(found, necessary=needs.needs, passes_with=passes, free=needs.free, also_fails=needs.also_fails)


def _small(report: CaptureReport) -> str:
    """The values of the first small result: ``output 0: [1, 0.5] and [1, 0.25]``. Empty without one."""
    small = (f"{row.where}: {row.all_actual} and {row.all_expected}" for row in values(report) if row.all_actual)
    return next(small, "")


def _steps(report: CaptureReport) -> tuple[tuple[str, int, int], ...]:
    """The passes that made the case smaller, in order, with the nodes and inputs that were left after each."""
    rows = [] if report.story is None else [(s.pass_name, s.nodes, s.inputs) for s in report.story.steps]
    last = [row for row, after in pairwise([*rows, ("", 0, 0)]) if row[0] and row[0] != after[0]]
    return tuple(last[-_MOST_STEPS:])
