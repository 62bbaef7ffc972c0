"""JUnit XML of a hunt: a test for each program.

A program that is ok passes. Only a failure that is not expected is a failure; an expected one is skipped, as pytest
reports an ``xfail``, and so is what eager mode refuses, what cannot be judged, and what was not tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree import ElementTree

from .. import junit as xml
from .cells import Cell, CellState, HuntResult
from .programs import Program, ProgramResult


def junit(found: HuntResult, results: Mapping[Program, ProgramResult], db: str) -> bytes:
    """Return the document, UTF-8. ``results`` has the seconds of programs; ``db`` is named by the next command."""
    new = frozenset(found.new)
    tests = [_test(found.backend, cell, results.get(cell.program), new, db) for cell in found.cells]
    return xml.document(f"minify hunt {found.backend}", tests, sum(result.seconds for result in results.values()))


def _test(backend: str, cell: Cell, result: ProgramResult | None, new: frozenset[str], db: str) -> ElementTree.Element:
    name = cell.program.text()
    test = xml.test(backend, name, 0.0 if result is None else result.seconds)
    said = xml.text(f"{cell.state}: {cell.detail}" if cell.detail else cell.state, 1000)
    if cell.state is CellState.FAILS and name in new:
        failure = ElementTree.SubElement(test, "failure", {"type": "failure", "message": said})
        commands = [f"minify run {db} {capture}" for capture in cell.captures]
        failure.text = xml.text("\n".join([cell.detail, *commands]), 20_000)
    elif cell.state is not CellState.OK:
        kind = xml.EXPECTED if cell.state is CellState.FAILS else xml.SKIPPED
        ElementTree.SubElement(test, "skipped", {"type": kind, "message": said})
    return test
