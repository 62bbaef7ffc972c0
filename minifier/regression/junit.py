"""JUnit XML of a retest, in the form that Jenkins, GitLab and pytest use.

There is one suite, with a test for each case and backend. A fixed bug passes. An expected failure is skipped, as pytest
reports an ``xfail``, and so is a case that could not run or has no script. Anything else is a failure. The schema is
Jenkins's ``junit-10.xsd``, which pytest's reports follow, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from ...store.index import RetestResult
from ..printable import shown
from .retest import RetestAnswer


def junit(answers: Sequence[RetestAnswer], suite: str) -> bytes:
    """The document, UTF-8; ``suite`` is the name of the suite."""
    tests = [_test(answer) for answer in answers]
    seconds = sum(answer.retest.seconds for answer in answers if answer.retest is not None)
    figures = {
        "tests": str(len(tests)),
        "failures": str(sum(test.find("failure") is not None for test in tests)),
        "errors": "0",
        "time": f"{seconds:.3f}",
    }
    skipped = str(sum(test.find("skipped") is not None for test in tests))
    root = ElementTree.Element("testsuites", figures)
    found = ElementTree.SubElement(root, "testsuite", {"name": _text(suite, 500), **figures, "skipped": skipped})
    times = sorted(answer.retest.at for answer in answers if answer.retest is not None)
    if times:
        found.set("timestamp", times[0].partition("+")[0])
    found.extend(tests)
    ElementTree.indent(root)
    text: str = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'.encode()


def _test(answer: RetestAnswer) -> ElementTree.Element:
    capture, found = answer.case.capture, answer.retest
    test = ElementTree.Element("testcase", {
        "classname": _text(answer.case.backend or "backend", 200),
        "name": _text(f"{answer.case.name} {capture.kind}", 200),
        "time": f"{0.0 if found is None else found.seconds:.3f}",
    })  # fmt: skip
    text = _text(f"{answer.result}: {answer.message}" if answer.message else answer.result, 1000)
    if found is None or found.result is RetestResult.CANNOT_RUN:
        ElementTree.SubElement(test, "skipped", {"type": "minify.skip", "message": text})
    elif not answer.expected:
        failure = ElementTree.SubElement(test, "failure", {"type": found.result.value, "message": text})
        failure.text = _text(f"{details(answer)}\n{answer.log}", 20_000)
    elif found.result is not RetestResult.FIXED:
        ElementTree.SubElement(test, "skipped", {"type": "pytest.xfail", "message": text})
    if found is not None:
        versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
        ElementTree.SubElement(test, "system-out").text = _text(f"{details(answer)}\n{versions}", 8000)
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


def _text(value: str, limit: int) -> str:
    """``value`` without characters that XML 1.0 does not allow."""
    return shown(value, limit).encode("utf-8", "replace").decode()
