"""Gather the report of a capture (`CaptureReport`) from what an index stores. Runs nothing and builds no graph.

Explanations, causes and ablations are stored when they are made. The case that is shown may be newer, if the capture
was minified again. So each of them is compared with this case, and left out if it belongs to another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ... import __version__
from ...repro_templates.context import Header
from ...repro_templates.formats import OURS
from ...repro_templates.report.figures import evidence, number
from ...repro_templates.source.expressions import Unprintable
from ...repro_templates.source.function import print_graph
from ...store import codec
from ...store.document.case import Case, called_names
from ...store.document.program_lines import comes_from, program_lines
from ...store.errors import StoreError
from ...store.failure import EAGER, Failure, FailureKind
from ...store.index import CaptureInfo, Index, ReductionInfo, State
from ...store.measured import MEASURED, SAID
from ..oracle import ablation, first_node, rest
from ..oracle.ablation import Ablation
from ..reducer import history
from . import cause, explanation, illustrations, known, record, report, retests
from .cause import Cause
from .illustrations import Illustrations
from .report import CaptureReport
from .script_file import copies
from .standing import retested

_T = TypeVar("_T")


def gather(index: Index, capture_id: int, *, captured: bool = False, folders: Iterable[Path] = ()) -> CaptureReport:
    """The report of a capture. ``captured``: with the captured graph, however large it is.

    Scripts are looked for in ``folders``. Raises `StoreError`.
    """
    return of_info(index, index.captures.get(capture_id), captured=captured, folders=folders)


def of_info(
    index: Index, info: CaptureInfo, *, captured: bool = False, folders: Iterable[Path] = (), lenient: bool = False
) -> CaptureReport:
    """`gather` for a row of the index. ``lenient``: with a problem in the place of a case that cannot be read."""
    return _Gathering(index, info, lenient).gathered(captured, list(folders))


@dataclass(slots=True)
class _MeasuredResult:
    """A row of `fxminify.backends.comparison.mismatch.measure`, as an index keeps it."""

    where: str
    elements: int | None = None
    of: int | None = None
    error: str | None = None
    at: tuple[int, ...] | None = None
    actual: str | None = None
    expected: str | None = None
    values: tuple[report.ElementValues, ...] | None = None
    dtype: str | None = None
    expected_dtype: str | None = None
    shape: tuple[int, ...] | None = None
    expected_shape: tuple[int, ...] | None = None


@dataclass(slots=True)
class _Gathering:
    """The report of ``info`` while it is gathered."""

    index: Index
    info: CaptureInfo
    lenient: bool
    absent: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def gathered(self, captured: bool, folders: Sequence[Path]) -> CaptureReport:
        index, info = self.index, self.info
        header = self.read(lambda: record.kept(index, info))
        failure = header.failure if header is not None and info.verified else info.failure
        best = self.case(lambda: index.best(info)) if info.state is not State.UNSUPPORTED else None
        last = index.reductions.last(info.id)
        case = best
        if case is None and info.nodes_before is not None:
            case = self.case(lambda: index.captures.case(info.id))
        # What was found out about the result of the last reduction is about the case that is shown.
        is_last = best is not None and last is not None and self.case(lambda: index.reductions.best(last.id)) == best
        torch = "" if header is None else header.torch
        searched = None if case is None else self.read(lambda: cause.of_case(index, info.id, case))
        layers = self.read(lambda: ablation.stored(index, info.id))
        explained = self.read(lambda: explanation.stored(index, info.id)) if is_last else None
        drawn = self.read(lambda: illustrations.stored(index, info.id)) or Illustrations()
        if best is None:
            self.absent["minimal"] = info.reason or f"it was not minified ({info.state})"
        if explained is None:
            self.absent["matters"] = "no variant of this minimal case was tried"
        if searched is None:
            for name in ("cause", "ways_around"):
                self.absent[name] = "the switches of the backend were not tried on this case (minify explain)"
        if layers is None:
            self.absent["ablation"] = "it was not run under other backends (minify ablate)"
        return CaptureReport(
            schema=report.SCHEMA,
            fxminify=__version__,
            id=info.id,
            bug=info.bug if info.bug > 0 else None,
            parent=info.parent,
            state=str(info.state),
            reason=info.reason,
            backend=info.backend,
            occurrences=info.occurrences,
            created=info.created,
            last_seen=info.last_seen,
            failure=self.failure(failure),
            divergence=self.divergence(failure),
            captured=self.captured_graph(best, case, whole=captured),
            minimal=None if best is None else _minimal(best),
            story=self.story(last),
            verification=self.verification(header),
            layer=self.layer(searched, layers, torch, best, last, is_last=is_last),
            matters=None if explained is None else needs(explained),
            ablation=None if layers is None else _ablation(layers),
            cause=None if searched is None else _cause(searched),
            ways_around=None if searched is None else _ways(searched),
            rest=self.rest(best),
            versions=self.versions(header),
            known=self.known(folders),
            environment=self.environment(header, case),
            provenance={name: value for name, value in info.provenance.items() if name != "origin"},
            illustration_heading=drawn.heading,
            illustrations=tuple(
                report.ReportedIllustration(name=item.name, text=item.text, error=item.error) for item in drawn.items
            ),
            scripts=self.scripts(folders),
            absent=self.absent,
            problems=tuple(dict.fromkeys(self.problems)),
        )

    def case(self, stored: Callable[[], Case | None]) -> Case | None:
        """A stored case. Raises `StoreError` where it cannot be read, unless the report is lenient."""
        return self.read(stored) if self.lenient else stored()

    def read(self, stored: Callable[[], _T | None]) -> _T | None:
        """A stored value; None, and a problem, where it cannot be read."""
        try:
            return stored()
        except StoreError as error:
            self.problems.append(str(error))
            return None

    # Failure and values

    def failure(self, failure: Failure | None) -> report.ReportedFailure | None:
        if failure is None:
            self.absent["failure"] = "no failure was seen"
            return None
        eager = failure.detail.get(EAGER)
        frames = failure.frames or (self.info.failure.frames if self.info.failure is not None else ())
        return report.ReportedFailure(
            kind=str(failure.kind),
            phase=str(failure.phase),
            signature=self.info.signature,
            headline=self.info.headline,
            type=failure.type,
            message=failure.message,
            causes=tuple(report.ReportedCause(type=kind, message=text) for kind, text in failure.causes),
            frames=tuple(report.ReportedFrame(file=f.file, function=f.function, line=f.line) for f in frames),
            printed=failure.diagnostics,
            signal=failure.signal,
            eager=eager if isinstance(eager, str) else None,
        )

    def divergence(self, failure: Failure | None) -> report.ReportedDivergence | None:
        if failure is None or failure.kind is not FailureKind.DIVERGENCE:
            self.absent["divergence"] = "the failure is no divergence of values"
            return None
        said = failure.detail.get(SAID)
        results = failure.detail.get(MEASURED)
        if not isinstance(results, list | tuple):
            results = None
            self.absent["divergence.results"] = "no run of a script measured them"
        first = self.first_difference()
        if first is None:
            self.absent["divergence.first_node"] = "it was not found"
        return report.ReportedDivergence(
            kind=str(failure.detail.get("class", "")),
            where=str(failure.detail.get("where", "")),
            assertion=said if isinstance(said, str) else None,
            results=None if results is None else tuple(filter(None, map(self.result, results))),
            float64=tuple(_float64(failure)),
            first_node=first,
        )

    def result(self, row: Any) -> report.ReportedResult | None:
        try:
            found = codec.load(row, _MeasuredResult)
        except ValueError as error:
            self.problems.append(f"a measured result cannot be read: {error}")
            return None
        return report.ReportedResult(
            where=found.where, dtype=found.dtype, expected_dtype=found.expected_dtype, shape=found.shape,
            expected_shape=found.expected_shape, elements=found.of, differing=found.elements,
            largest_difference=found.error, at=found.at, actual=found.actual, expected=found.expected,
            values=found.values,
        )  # fmt: skip

    def first_difference(self) -> report.FirstDifference | None:
        found = self.read(lambda: first_node.stored(self.index, self.info.id)) or {}
        position, of = found.get("position"), found.get("of")
        if not isinstance(position, int) or not isinstance(of, int):
            return None
        return report.FirstDifference(
            node=str(found.get("node", "")), position=position, of=of, error=_number(found.get("error")),
            eager_error=_number(found.get("eager_error")),
        )  # fmt: skip

    # Graphs and the reduction

    def captured_graph(self, best: Case | None, case: Case | None, *, whole: bool) -> report.CapturedGraph:
        printed: str | None = None
        if self.info.nodes_before is None:
            printed = self.info.graph_text or None
        elif whole:
            printed = source(self.index.captures.case(self.info.id))
        elif best is None and case is not None:
            printed = source(case)
        else:
            self.absent["captured.source"] = "the minimal case is shown; minify show --captured shows it"
        return report.CapturedGraph(nodes=self.info.nodes_before, inputs=self.info.inputs_before, source=printed)

    def story(self, last: ReductionInfo | None) -> report.Story | None:
        if last is None:
            self.absent["story"] = "it was not minified"
            return None
        rows = self.index.reductions.steps(last.id)
        return report.Story(
            reduction=last.id,
            finished=last.finished,
            nodes=last.nodes_before or self.info.nodes_before,
            queries=last.queries,
            seconds=last.seconds,
            steps=tuple(
                report.ReportedStep(
                    number=row.number, pass_name=row.pass_name, nodes=row.nodes, inputs=row.inputs, queries=row.queries,
                    seconds=row.seconds,
                )
                for row in rows
            ),
            failed_passes=history.failed_passes(self.index, last.id),
        )  # fmt: skip

    def verification(self, header: Header | None) -> report.ScriptRuns | None:
        script = self.index.repros.get(self.info.id, "script")
        if script is None:
            self.absent["verification"] = "there is no script"
            return None
        return report.ScriptRuns(
            shown=script.verified,
            runs=script.runs,
            at=script.created,
            replays=None if header is None else header.replays or None,
            tentative=None if header is None else header.tentative or None,
            torch=None if header is None else header.torch or None,
            python=None if header is None else header.python or None,
            platform=None if header is None else header.platform or None,
            backend=None if header is None else header.backend or None,
            queries=None if header is None else header.queries,
        )

    def rest(self, best: Case | None) -> str | None:
        behind = self.read(lambda: rest.stored(self.index, self.info.id))
        if best is None or behind is None or not (words := behind.words(best.graph)):
            self.absent["rest"] = "the captured graph was not run without what fails"
            return None
        return words

    def scripts(self, folders: Sequence[Path]) -> tuple[report.ReportedScript, ...]:
        out = []
        for name, format in OURS.items():
            stored = self.index.repros.get(self.info.id, name) if format.run is not None else None
            if stored is not None:
                files = copies(stored.text, folders) if name == "script" else []
                out.append(
                    report.ReportedScript(
                        format=name, shown=stored.verified, runs=stored.runs, at=stored.created,
                        files=tuple(map(str, files)),
                    )
                )  # fmt: skip
        return tuple(out)

    # What was found out

    def layer(
        self,
        searched: Cause | None,
        layers: Ablation | None,
        torch: str,
        best: Case | None,
        last: ReductionInfo | None,
        *,
        is_last: bool,
    ) -> report.ReportedLayer | None:
        part, enters = "", ""
        passing: tuple[str, ...] = ()
        phrases = []
        if searched is not None and (part := searched.fails_in()):
            phrases.append(f"{part}{_elsewhere(searched.torch, torch)}")
        if layers is not None and layers.shows and (
            (is_last and last is not None and layers.reduction == last.id) or (best is None and layers.reduction == 0)
        ):  # fmt: skip
            enters, passing = layers.enters, layers.passing
            told = f" ({', '.join(passing)} {'passes' if len(passing) == 1 else 'pass'})" if passing else ""
            phrases.append(f"{enters}{told}{_elsewhere(layers.torch, torch)}")
        if not phrases:
            self.absent["layer"] = "neither minify explain nor minify ablate found it for this case"
            return None
        return report.ReportedLayer(
            fails_in="; ".join(phrases), part=part or None, layer=enters or None, passing=passing
        )

    def versions(self, header: Header | None) -> report.TriedVersions | None:
        lines = retested(self.index, self.info)
        if not lines:
            self.absent["versions"] = "it was not run again (minify retest)"
            return None
        tried = None if header is None else retests.tried(self.index, self.info, header)
        return report.TriedVersions(
            standing=tuple(lines),
            first_bad=None if tried is None else retests.first_bad(tried) or None,
            newest=None if tried is None else retests.newest(tried) or None,
        )

    def known(self, folders: Sequence[Path]) -> report.ReportedKnown | None:
        entries = self.read(lambda: known.read(folders)) or []
        found = known.find(entries, self.info.signature, self.info.operators)
        if found is None:
            self.absent["known"] = "no known.toml that was read names it"
            return None
        return report.ReportedKnown(url=found.url, state=found.state, way_around=found.way_around, note=found.note)

    def environment(self, header: Header | None, case: Case | None) -> report.ReportedEnvironment | None:
        if case is None:
            self.absent["environment"] = "the graph is not stored"
            return None
        packages = () if header is None else header.installed.packages
        return report.ReportedEnvironment(
            packages=tuple(report.ReportedPackage(name=p.name, version=p.version) for p in packages),
            local=() if header is None else header.installed.local,
            system=() if header is None else header.installed.system,
            backend={key: value for key, value in case.backend.items() if key != "search_path"},
            context={key: value for key, value in case.context.items() if key != "rng"},
        )


def _minimal(case: Case) -> report.MinimalCase:
    return report.MinimalCase(
        nodes=case.graph.count,
        inputs=len(case.inputs),
        operators=called_names(case),
        source=source(case),
        comes_from=comes_from(case.graph),
        places=tuple(
            report.ProgramPlace(line=place.line, modules=place.modules) for place in program_lines(case.graph)
        ),
    )


def source(case: Case) -> str:
    """The graph as a function, or the reason why it cannot be printed."""
    try:
        return print_graph(case).text
    except Unprintable as error:
        return f"# cannot be printed: {error}"


def _float64(failure: Failure) -> Iterable[report.Float64Error]:
    """The errors of a divergence, and of those beside it, against a float64 run."""
    for item in evidence(failure):
        differing, elements = item.get("elements"), item.get("of")
        yield report.Float64Error(
            where=str(item.get("where", "")), kind=str(item["class"]),
            dtype=str(item["dtype"]) if "dtype" in item else None, error=str(item["error"]),
            eager_error=str(item["eager_error"]), differing=differing if isinstance(differing, int) else None,
            elements=elements if isinstance(elements, int) else None,
        )  # fmt: skip


def _number(value: object) -> str | None:
    """A stored number as text; None for anything else."""
    return str(value) if number(value) else None


def needs(found: explanation.Explanation) -> report.ReportedNeeds:
    """The answers of an explanation, in words and as data."""
    words = found.wording
    variant: report.ReportedVariant | None = None
    if (passing := found.passing_variant) is not None:
        variant = report.ReportedVariant(passes_with=found.passes_with(), difference=passing.difference)
    return report.ReportedNeeds(
        summary=found.summary(),
        sentences=tuple(found.sentences()),
        needs=tuple(words.needs()),
        passes_with=tuple(words.passes()),
        free=tuple(words.free()),
        also_fails=tuple(words.fails()),
        variant=variant,
        features=tuple(
            report.TriedFeature(
                aspect=str(feature.aspect), name=feature.name, now=feature.now, claim=str(feature.claim),
                answers=tuple(
                    report.TriedValue(
                        value=a.value, outcome=str(a.outcome), shown=a.shown, runs=a.runs, on=a.on, said=a.said
                    )
                    for a in feature.answers
                ),
            )
            for feature in found.features
        ),
        tested=found.asked,
        seconds=found.seconds,
        complete=found.complete,
    )  # fmt: skip


def _ablation(found: Ablation) -> report.ReportedAblation:
    return report.ReportedAblation(
        of="minimal" if found.reduction else "captured",
        enters=found.enters,
        shows=found.shows,
        rows=tuple(
            report.BackendResult(
                backend=row.backend, layer=row.layer, result=row.result, message=row.message, seconds=row.seconds
            )
            for row in found.rows
        ),
        torch=found.torch,
    )


def _cause(found: Cause) -> report.SearchedCause:
    return report.SearchedCause(
        sentences=tuple(found.sentences()),
        switches=tuple(
            report.TriedSwitch(parts=row.parts, lines=row.lines, result=row.result, message=row.message)
            for row in found.rows
        ),
        applications=tuple(
            report.PassApplication(
                subsystem=a.subsystem, number=a.number, count=a.count, name=a.name, kind=a.kind,
                fails_with=a.fails_with, passes_with=a.passes_with, checked=a.checked,
            )
            for a in found.applications
        ),
        judgements=tuple(
            report.ReportedJudgement(
                where=j.where, assert_close=j.assert_close, same=j.same,
                units=j.units, eager_units=j.eager_units,
            )
            for j in found.judgements
        ),
        twins=tuple(report.TriedTwin(change=t.change, result=t.result, message=t.message) for t in found.twins),
        queries=found.queries,
        stopped=found.stopped,
        torch=found.torch,
    )  # fmt: skip


def _ways(found: Cause) -> tuple[report.TriedWay, ...]:
    return tuple(
        report.TriedWay(lines=way.lines, runs=way.runs, captured=way.captured, helps=way.captured == cause.HELPS)
        for way in found.ways
    )


def _elsewhere(torch: str, own: str) -> str:
    """The version of torch that was asked, if it is not the one of the script."""
    return "" if torch in ("", own) or not own else f" with torch {torch}"
