"""The report of a capture: all that is known about it, as one value.

`minify show --json`, the pages, the formats of a script, the service and the tools of an agent read it.
`fxminify.minifier.reporting.gathering` makes it from an index. A value that was not measured is None, and `absent` may
say why. ``docs/report.md`` and ``report.schema.json`` are written from the types here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from ...repro_templates.report.figures import Values, form, number, short
from ...repro_templates.report.phrases import one_line
from ...store import codec
from ...store.codec import about
from ...store.document.case import Json

#: The version of the form of a report. Fields may be added without a new one.
SCHEMA: Literal[1] = 1
#: The file of a report in a bundle.
REPORT = "report.json"
#: Why a field is empty in a report that is handed on.
LEFT_OUT = "left out of what is handed on"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedCause:
    """An exception that caused another one."""

    type: Annotated[str, about("its class")]
    message: Annotated[str, about("its text")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedFrame:
    """A frame of a stack."""

    file: Annotated[str, about("its file, relative to a package, or a base name")]
    function: Annotated[str, about("the function")]
    line: Annotated[int, about("the line, 0 where it is not known")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedFailure:
    """The failure of the backend."""

    kind: Annotated[str, about("`compile_error`, `runtime_error`, `divergence`, `crash`, `hang` or `out_of_memory`")]
    phase: Annotated[str, about("`compile`, `guards`, `forward` or `backward`")]
    signature: Annotated[
        str, about("the digest that is equal for failures of one kind, [signatures.md](signatures.md)")
    ]
    headline: Annotated[str, about("the failure in one line")]
    type: Annotated[str, about("the class of the exception, empty where nothing was raised")]
    message: Annotated[str, about("the text of the exception, or the difference in words")]
    causes: Annotated[tuple[ReportedCause, ...], about("the chained exceptions, the outermost first")]
    frames: Annotated[tuple[ReportedFrame, ...], about("the stack, the frame that raised last")]
    printed: Annotated[str, about("what was written on standard error meanwhile")]
    signal: Annotated[int | None, about("the signal that ended the process")]
    eager: Annotated[str | None, about("the error of eager for the same call; empty: it raised nothing")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementValues:
    """An element of a result."""

    at: Annotated[tuple[int, ...], about("its index, empty for a scalar")]
    actual: Annotated[str, about("its value as the backend computed it, with the digits that its dtype needs")]
    expected: Annotated[str, about("its value in eager")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedResult:
    """A result of the script that differs from eager's."""

    where: Annotated[str, about("its place: `output 0`, `gradient of input 1`, `input 0`")]
    dtype: Annotated[str | None, about("the dtype of the compiled result")]
    expected_dtype: Annotated[str | None, about("the dtype of eager's result")]
    shape: Annotated[tuple[int, ...] | None, about("the shape of the compiled result")]
    expected_shape: Annotated[tuple[int, ...] | None, about("the shape of eager's result")]
    elements: Annotated[int | None, about("the number of elements")]
    differing: Annotated[int | None, about("the number of elements that differ, null where no value differs")]
    largest_difference: Annotated[str | None, about("the largest absolute difference, a number or `inf`")]
    at: Annotated[tuple[int, ...] | None, about("the index of the element with the largest difference")]
    actual: Annotated[str | None, about("the compiled value there, in six digits")]
    expected: Annotated[str | None, about("the value of eager there, in six digits")]
    values: Annotated[
        tuple[ElementValues, ...] | None,
        about("all elements of a result of at most 8; of a larger one up to 8 that differ, by index"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Float64Error:
    """The error of a result against a run of the same graph in float64."""

    where: Annotated[str, about("the place of the result")]
    kind: Annotated[str, about("the class of the difference: `value`, `nan`, `inf` and others")]
    dtype: Annotated[str | None, about("the dtype of the result")]
    error: Annotated[str, about("the largest error of the compiled result")]
    eager_error: Annotated[str, about("the largest error of eager")]
    differing: Annotated[int | None, about("the number of elements that differ")]
    elements: Annotated[int | None, about("the number of elements")]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """The first value of the captured graph that differs by more than eager's own error."""

    node: Annotated[str, about("the name of the node")]
    position: Annotated[int, about("its number among the compute nodes, from 1")]
    of: Annotated[int, about("the number of compute nodes")]
    error: Annotated[str | None, about("the error of the compiled value")]
    eager_error: Annotated[str | None, about("the error of eager")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedDivergence:
    """The values that differ, for a failure of the kind `divergence`."""

    kind: Annotated[str, about("the class of the difference: `value`, `nan`, `dtype`, `stride`, `alias` and others")]
    where: Annotated[str, about("the place of the result")]
    assertion: Annotated[str | None, about("the text of the assertion that failed in the script")]
    results: Annotated[tuple[ReportedResult, ...] | None, about("the results that differ in the run of the script")]
    float64: Annotated[tuple[Float64Error, ...], about("errors against a float64 run, where they were measured")]
    first_node: Annotated[FirstDifference | None, about("where the captured graph begins to differ")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedGraph:
    """The graph as it was captured."""

    nodes: Annotated[int | None, about("the number of compute nodes")]
    inputs: Annotated[int | None, about("the number of inputs")]
    source: Annotated[
        str | None,
        about("the graph as a function; null beside a minimal case, unless `minify show --captured` asks for it"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedStep:
    """An accepted step of the reduction. Queries and seconds are totals so far."""

    number: Annotated[int, about("the number of the step, from 1")]
    pass_name: Annotated[str, about("the pass that proposed it")]
    nodes: Annotated[int, about("the compute nodes that were left")]
    inputs: Annotated[int, about("the inputs that were left")]
    queries: Annotated[int, about("the queries so far")]
    seconds: Annotated[float, about("the seconds so far")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The last reduction."""

    reduction: Annotated[int, about("the id of the reduction, for `minify history`")]
    finished: Annotated[bool, about("whether it came to its end")]
    nodes: Annotated[int | None, about("the compute nodes at its start")]
    queries: Annotated[int, about("its queries to the backend")]
    seconds: Annotated[float, about("its seconds")]
    steps: Annotated[tuple[ReportedStep, ...], about("its accepted steps, in order")]
    failed_passes: Annotated[Mapping[str, tuple[str, ...]], about("errors of passes themselves, by pass")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramPlace:
    """A line of the program that the minimal case comes from."""

    line: Annotated[str, about("the place: `model.py:16 forward`; empty where only modules are known")]
    modules: Annotated[tuple[str, ...], about("the paths of the modules that ran there: `encoder.layer.0`")]


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimalCase:
    """The smallest case that shows the failure: the case of the verified script, if there is one."""

    nodes: Annotated[int, about("the number of compute nodes")]
    inputs: Annotated[int, about("the number of inputs")]
    operators: Annotated[str, about("the operators that it calls, sorted")]
    source: Annotated[str, about("the graph as a function")]
    comes_from: Annotated[str, about("the lines of the program that it comes from, in one line")]
    places: Annotated[tuple[ProgramPlace, ...], about("the same lines, one by one")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRuns:
    """The verification of the script, in processes of its own."""

    shown: Annotated[int, about("the runs that showed the failure")]
    runs: Annotated[int, about("all runs")]
    at: Annotated[str, about("the time of the verification (UTC)")]
    replays: Annotated[str | None, about("`2 of 3`: the replays of the captured graph that failed, if not all did")]
    tentative: Annotated[str | None, about("the reason why the failure is not certain")]
    torch: Annotated[str | None, about("the version of torch")]
    python: Annotated[str | None, about("the version of Python")]
    platform: Annotated[str | None, about("the system and the processor: `Linux x86_64`")]
    backend: Annotated[str | None, about("the package of the backend with its version, null for a backend of torch")]
    queries: Annotated[int | None, about("the queries before the script was verified")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedLayer:
    """The part of the compiler in which the minimal case fails."""

    fails_in: Annotated[str, about("part and layer in one phrase")]
    part: Annotated[str | None, about("the part whose switch makes the failure go (`cause`)")]
    layer: Annotated[str | None, about("the first layer that fails (`ablation`): AOTAutograd, the backend and others")]
    passing: Annotated[tuple[str, ...], about("the backends of torch that stop before this layer, and pass")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedValue:
    """The result of the minimal case with one thing changed."""

    value: Annotated[str, about("the value that was tried")]
    outcome: Annotated[
        str, about("`same` (it fails), `pass`, `other`, `invalid`, `timeout`, `crash`, `flaky`, `infra`")
    ]
    shown: Annotated[int, about("the runs that showed the failure")]
    runs: Annotated[int, about("all runs")]
    on: Annotated[str, about("the larger case on which it was tried, empty for the minimal one")]
    said: Annotated[str, about("the other failure, or the reason why there is no answer")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedFeature:
    """A feature of the minimal case, and the values that were tried in its place."""

    aspect: Annotated[str, about("`size`, `dtype`, `values`, `argument`, `setting`, `layout`, `operator`, `default`")]
    name: Annotated[str, about("the feature: `x.shape[0]`")]
    now: Annotated[str, about("its value in the minimal case")]
    claim: Annotated[str, about("what the answers show: `matters`, `does not matter`, `also fails with` and others")]
    answers: Annotated[tuple[TriedValue, ...], about("the values that were tried")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedVariant:
    """The nearest variant of the minimal case that passes."""

    passes_with: Annotated[str, about("the change in words")]
    difference: Annotated[str, about("the changed lines, which begin with `-` or `+`")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedNeeds:
    """The properties of the minimal case that the failure needs."""

    summary: Annotated[str, about("the answers in short")]
    sentences: Annotated[tuple[str, ...], about("sentences on what is not in the summary")]
    needs: Annotated[tuple[str, ...], about("properties that the failure needs")]
    passes_with: Annotated[tuple[str, ...], about("changes with which the case passes")]
    free: Annotated[tuple[str, ...], about("properties that do not matter, as far as they were tried")]
    also_fails: Annotated[tuple[str, ...], about("other values that fail")]
    variant: Annotated[ReportedVariant | None, about("the nearest variant that passes")]
    features: Annotated[tuple[TriedFeature, ...], about("all answers")]
    tested: Annotated[int, about("the number of variants that were tried")]
    seconds: Annotated[float, about("the seconds that it took")]
    complete: Annotated[bool, about("whether the budget sufficed")]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendResult:
    """The case under another backend."""

    backend: Annotated[str, about("the backend")]
    layer: Annotated[str, about("the layer after which it stops, empty for one that is no layer of torch")]
    result: Annotated[str, about("`same failure`, `another failure`, `passes`, `cannot run`, `eager refuses it`")]
    message: Annotated[str, about("the failure, if it is another one")]
    seconds: Annotated[float, about("the seconds of the run")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedAblation:
    """The results under other backends."""

    of: Annotated[Literal["minimal", "captured"], about("the graph that was run")]
    enters: Annotated[str, about("the first layer that fails, in words")]
    shows: Annotated[bool, about("whether the failure showed at all where it was run")]
    rows: Annotated[tuple[BackendResult, ...], about("the backends, layers of torch first")]
    torch: Annotated[str, about("the version of torch")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedSwitch:
    """The minimal case with some switches of the backend turned."""

    parts: Annotated[tuple[str, ...], about("the parts of the compiler that they turn")]
    lines: Annotated[tuple[str, ...], about("the lines to type")]
    result: Annotated[str, about("`passes`, `same failure`, `another failure`, `cannot run`")]
    message: Annotated[str, about("the other failure")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassApplication:
    """The application of a pass or lowering with which the failure begins to show."""

    subsystem: Annotated[str, about("the subsystem of torch's bisection")]
    number: Annotated[int, about("its number, from 1")]
    count: Annotated[int, about("all applications of the subsystem")]
    name: Annotated[str, about("the name of the pass or lowering")]
    kind: Annotated[str, about("one application in words: `post-grad pass`")]
    fails_with: Annotated[tuple[str, ...], about("environment variables with which it fails")]
    passes_with: Annotated[tuple[str, ...], about("environment variables with which it passes")]
    checked: Annotated[bool, about("whether the script was run with both")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedWay:
    """A setting with which the minimal case passes."""

    lines: Annotated[tuple[str, ...], about("the lines to type")]
    runs: Annotated[int, about("the unused workers in which the minimal case passed")]
    captured: Annotated[str, about("what the captured graph does with it: `passes`, or why not")]
    helps: Annotated[bool, about("whether the captured graph passes, too")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedTwin:
    """The minimal case compiled in another way."""

    change: Annotated[str, about("the argument of `torch.compile`: `dynamic=True`")]
    result: Annotated[str, about("`passes`, `same failure`, `another failure`, `cannot run`")]
    message: Annotated[str, about("the other failure")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedJudgement:
    """The answers of the judges of PyTorch's triage about a result of the minimal case."""

    where: Annotated[str, about("the place of the result")]
    assert_close: Annotated[bool, about("whether `torch.testing.assert_close` passes with its usual tolerances")]
    same: Annotated[
        bool | None, about("whether `torch._dynamo.utils.same` passes with a float64 reference, null without one")
    ]
    units: Annotated[str | None, about("the largest error against float64, in units in the last place, or `inf`")]
    eager_units: Annotated[str | None, about("the largest error of eager")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedCause:
    """The search over the switches of the backend."""

    sentences: Annotated[tuple[str, ...], about("the answer in sentences")]
    switches: Annotated[tuple[TriedSwitch, ...], about("the switches that were tried")]
    applications: Annotated[tuple[PassApplication, ...], about("the applications that were found")]
    judgements: Annotated[tuple[ReportedJudgement, ...], about("what judges say of a divergence")]
    twins: Annotated[tuple[TriedTwin, ...], about("symbolic sizes and modes that were tried")]
    queries: Annotated[int, about("the queries")]
    stopped: Annotated[str, about("the reason why not all was tried, empty if it was")]
    torch: Annotated[str, about("the version of torch")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedVersions:
    """The results of retests."""

    standing: Annotated[tuple[str, ...], about("the last result under each backend, in words")]
    first_bad: Annotated[str | None, about("the first failing version of those that were tried")]
    newest: Annotated[str | None, about("the result with the newest versions, where it is not the same failure")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedPackage:
    """An installed package that the backend needs."""

    name: Annotated[str, about("its name")]
    version: Annotated[str, about("its version")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedEnvironment:
    """The installation of the verification, and the settings of the case that is shown."""

    packages: Annotated[tuple[ReportedPackage, ...], about("packages that the backend needs besides torch")]
    local: Annotated[tuple[str, ...], about("modules that no package has")]
    system: Annotated[tuple[tuple[str, str], ...], about("lines of `torch.utils.collect_env`: label and value")]
    backend: Annotated[Mapping[str, Any], about("the backend and its options, [format.md](format.md)")]
    context: Annotated[Mapping[str, Any], about("the state of torch around the call, [format.md](format.md)")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedIllustration:
    """Code that the compiler made of the minimal case."""

    name: Annotated[str, about("its name")]
    text: Annotated[str, about("the code")]
    error: Annotated[str, about("the error with which the compiler refused it, empty if it did not")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedScript:
    """A script of the minimal case."""

    format: Annotated[str, about("the format, as `minify formats` lists it")]
    shown: Annotated[int, about("the runs that showed the failure")]
    runs: Annotated[int, about("all runs")]
    at: Annotated[str, about("the time at which it was made (UTC)")]
    files: Annotated[tuple[str, ...], about("files in the folder of the index, and in the present one, with this text")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedKnown:
    """The entry of a team about this bug, in its file `known.toml`."""

    url: Annotated[str, about("where it is reported")]
    state: Annotated[str, about("its state in words: `fixed in 2.14`")]
    way_around: Annotated[str, about("what works around it")]
    note: Annotated[str, about("what else there is to say")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureReport:
    """All that is known about a capture."""

    schema: Annotated[Literal[1], about("the version of this form")]
    fxminify: Annotated[str, about("the version of fxminify that wrote the report")]
    id: Annotated[int, about("the id of the capture")]
    bug: Annotated[int | None, about("the id of its bug")]
    parent: Annotated[int | None, about("the capture during whose reduction it was found")]
    state: Annotated[str, about("the state, [reference.md](reference.md#states-of-a-failure)")]
    reason: Annotated[str, about("the reason for the state, may be empty")]
    backend: Annotated[str, about("the name of the backend")]
    occurrences: Annotated[int, about("how often it occurred")]
    created: Annotated[str, about("the time of the first occurrence (UTC)")]
    last_seen: Annotated[str, about("the time of the last occurrence (UTC)")]
    failure: Annotated[ReportedFailure | None, about("the failure of the backend")]
    divergence: Annotated[ReportedDivergence | None, about("actual and expected values")]
    captured: Annotated[CapturedGraph, about("the captured graph")]
    minimal: Annotated[MinimalCase | None, about("the minimal case")]
    story: Annotated[Story | None, about("the last reduction")]
    verification: Annotated[ScriptRuns | None, about("the verification of the script")]
    layer: Annotated[ReportedLayer | None, about("where it fails")]
    matters: Annotated[ReportedNeeds | None, about("what the failure needs")]
    ablation: Annotated[ReportedAblation | None, about("the results under other backends")]
    cause: Annotated[SearchedCause | None, about("the search over the switches of the backend")]
    ways_around: Annotated[tuple[TriedWay, ...] | None, about("settings with which it passes")]
    rest: Annotated[str | None, about("the captured graph without the operators of the minimal case, in words")]
    versions: Annotated[TriedVersions | None, about("the results of retests")]
    known: Annotated[ReportedKnown | None, about("the entry of this bug in `known.toml`")]
    environment: Annotated[ReportedEnvironment | None, about("versions and settings")]
    provenance: Annotated[Mapping[str, Any], about("where it was captured: program, versions, process")]
    illustration_heading: Annotated[str, about("the heading of the illustrations")]
    illustrations: Annotated[tuple[ReportedIllustration, ...], about("code that the compiler made of it")]
    scripts: Annotated[tuple[ReportedScript, ...], about("the scripts that are stored")]
    absent: Annotated[Mapping[str, str], about("why a field is null, by the path of the field")]
    problems: Annotated[tuple[str, ...], about("parts of the index that cannot be read")]

    def to_json(self) -> Json:
        """The report as JSON values."""
        return codec.dump(self)


def published(report: CaptureReport) -> CaptureReport:
    """``report`` without what only those who have the program need: where it was captured, and standard error."""
    absent = {**report.absent, "provenance": LEFT_OUT, "failure.printed": LEFT_OUT, "known": LEFT_OUT}
    failure = None if report.failure is None else replace(report.failure, printed="")
    scripts = tuple(replace(script, files=()) for script in report.scripts if script.format == "script")
    return replace(report, provenance={}, known=None, failure=failure, scripts=scripts, absent=absent)


def values(report: CaptureReport) -> tuple[Values, ...]:
    """A row for each result with other values, for a table."""
    results = report.divergence.results if report.divergence is not None else None
    return tuple(_row(result) for result in results or () if result.differing is not None)


def _row(found: ReportedResult) -> Values:
    texts = (found.actual or "", found.expected or "", *(_all(found) or ("", "")))
    actual, expected, all_actual, all_expected = (one_line(text, 200) for text in texts)
    return Values(
        where=one_line(found.where, 200), elements=f"{found.differing} of {found.elements or '?'}",
        difference=number(found.largest_difference), at=str([*found.at]) if found.at else "",
        actual=actual, expected=expected, all_actual=all_actual, all_expected=all_expected,
        form=one_line(form(found.dtype, found.shape, found.expected_dtype, found.expected_shape), 200),
    )  # fmt: skip


def _all(result: ReportedResult) -> tuple[str, str] | None:
    """All values of a small result, compiled and of eager, in six digits; None for a scalar and a large one."""
    if not result.values or not 1 < len(result.values) == result.elements:
        return None
    sides = zip(*((short(value.actual), short(value.expected)) for value in result.values), strict=True)
    actual, expected = (f"[{', '.join(side)}]" for side in sides)
    return actual, expected
