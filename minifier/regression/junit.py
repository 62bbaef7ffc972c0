"""JUnit XML of a retest: a test for each case and backend.

A fixed bug passes. An expected failure is skipped, as pytest reports an ``xfail``, and so is a case that could not run
or has no script. Anything else is a failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from ...store.index import RetestResult
from .. import junit as xml
from .retest import RetestAnswer


def junit(answers: Sequence[RetestAnswer], suite: str) -> bytes:
    """The document, UTF-8; ``suite`` is the name of the suite."""
    done = [answer.retest for answer in answers if answer.retest is not None]
    began = min((retest.at for retest in done), default="").partition("+")[0]
    return xml.document(suite, [_test(answer) for answer in answers], sum(r.seconds for r in done), began)


def _test(answer: RetestAnswer) -> ElementTree.Element:
    capture, found = answer.case.capture, answer.retest
    name = f"{answer.case.name} {capture.kind}"
    test = xml.test(answer.case.backend or "backend", name, 0.0 if found is None else found.seconds)
    text = xml.text(f"{answer.result}: {answer.message}" if answer.message else answer.result, 1000)
    if found is None or found.result is RetestResult.CANNOT_RUN:
        ElementTree.SubElement(test, "skipped", {"type": xml.SKIPPED, "message": text})
    elif not answer.expected:
        failure = ElementTree.SubElement(test, "failure", {"type": found.result.value, "message": text})
        failure.text = xml.text(f"{details(answer)}\n{answer.log}", 20_000)
    elif found.result is not RetestResult.FIXED:
        ElementTree.SubElement(test, "skipped", {"type": xml.EXPECTED, "message": text})
    if found is not None:
        versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
        ElementTree.SubElement(test, "system-out").text = xml.text(f"{details(answer)}\n{versions}", 8000)
    return test


def details(answer: RetestAnswer) -> str:
    """An answer in words: its result, the captured failure, its standing."""
    capture = answer.case.capture
    lines = [
        f"{answer.result}: {answer.message}" if answer.message else answer.result,
        f"captured as {capture.headline}",
    ]
    if answer.standing is not None:
        lines.append(answer.standing.text())
    return "\n".join(lines)
