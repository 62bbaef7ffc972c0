"""JUnit XML in the form that Jenkins, GitLab and pytest use: one suite of tests.

The schema is Jenkins's ``junit-10.xsd``, which pytest's reports follow, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from .printable import shown

#: The type of a test that did not run, and of a failure that is expected, as pytest names it.
SKIPPED, EXPECTED = "minify.skip", "pytest.xfail"


def test(owner: str, name: str, seconds: float) -> ElementTree.Element:
    """Return a test, which passes as long as it has no ``failure`` or ``skipped``."""
    attributes = {"classname": text(owner, 200), "name": text(name, 200), "time": f"{seconds:.3f}"}
    return ElementTree.Element("testcase", attributes)


def document(suite: str, tests: Sequence[ElementTree.Element], seconds: float, timestamp: str = "") -> bytes:
    """Return the document with ``tests`` in the suite of that name, UTF-8."""
    figures = {
        "tests": str(len(tests)),
        "failures": str(sum(test.find("failure") is not None for test in tests)),
        "errors": "0",
        "time": f"{seconds:.3f}",
    }
    skipped = str(sum(test.find("skipped") is not None for test in tests))
    root = ElementTree.Element("testsuites", figures)
    found = ElementTree.SubElement(root, "testsuite", {"name": text(suite, 500), **figures, "skipped": skipped})
    if timestamp:
        found.set("timestamp", timestamp)
    found.extend(tests)
    ElementTree.indent(root)
    written: str = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{written}\n'.encode()


def text(value: str, limit: int) -> str:
    """Return ``value`` without characters that XML 1.0 does not allow, of at most ``limit`` characters."""
    return shown(value, limit).encode("utf-8", "replace").decode()
