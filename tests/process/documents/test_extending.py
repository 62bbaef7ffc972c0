"""The blocks of `docs/extending.md` are a package; installed, it adds what the document says."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from desks import Desk
from indexes import add, chain, failing, minify
from reading import ROOT, Block, blocks

from fxminify.minifier.hunting.programs import Selection
from fxminify.store.index import Index

FOUND = blocks(ROOT / "docs" / "extending.md")


def block(heading: str, language: str, number: int = 0) -> Block:
    """One of the blocks under a heading that are written in one language."""
    return [b for b in FOUND if (b.heading, b.language) == (heading, language)][number]


def install(site: Path) -> None:
    """The package of the document as pip leaves it, with Acme's compiler, which the document does not show."""
    package = site / "acme"
    (package / "templates").mkdir(parents=True)
    (package / "templates" / "ticket.txt.j2").write_text(block("A format", "jinja").text)
    (package / "__init__.py").write_text(block("A format", "python").text)
    (package / "passes.py").write_text(block("A pass", "python").text)
    (package / "fxminify_adapter.py").write_text(block("A backend's adapter", "python").text)
    (package / "suite.py").write_text(block("A suite of programs", "python").text)
    (package / "compiler.py").write_text("def acme(gm, inputs):\n    return gm.forward\n")
    points = {"torch_dynamo_backends": {"acme": "acme.compiler:acme"}}
    for heading in ("A format", "A pass", "A backend's adapter", "A suite of programs"):
        points |= tomllib.loads(block(heading, "toml").text)["project"]["entry-points"]
    info = site / "acme_fxminify-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-fxminify\nVersion: 1.0\n")
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in rows.items()) for group, rows in points.items()]
    (info / "entry_points.txt").write_text("\n".join(lines))


def test_the_package_of_the_document_is_one(desk: Desk) -> None:
    install(desk.path / "site")
    with Index.open(str(desk.db), create=True) as index:
        add(index, chain(["sin", "cos"], backend="acme"), failing("compilation failed"))
        minify(index, 1, chain(["sin"], backend="acme"))
    path = {"PYTHONPATH": str(desk.path / "site")}
    (listed,) = [row for row in desk.json("passes", **path) if row["pass"] == "acme-middle"]
    assert listed["from"] == "acme-fxminify"
    (listed,) = [row for row in desk.json("formats", **path)["formats"] if row["name"] == "ticket"]
    assert (listed["package"], listed["file"]) == ("acme", "ticket.txt")
    (listed,) = desk.json("backends", "acme", **path)
    assert (listed["adapter"], listed["problem"]) == ("acme", "")
    unknown = desk.minify("hunt", "acme", "--suite", "nothing", **path)
    assert unknown.stderr == "Error: there is no suite 'nothing'; installed are acme, examples, modules, ops\n"
    ticket = desk.minify("repro", "repro.db", 1, "--format", "ticket", **path)
    assert ticket.returncode == 0, ticket.stderr
    assert "Component: acme" in ticket.stdout
    assert "torch.sin" in ticket.stdout


def test_the_suite_of_the_document_has_two_programs() -> None:
    namespace: dict[str, Any] = {}
    exec(block("A suite of programs", "python").text, namespace)  # noqa: S102  a block of ours
    programs = list(namespace["suite"].programs(Selection(gradient=(True,))))
    assert [program.text() for program in programs] == [
        "acme attention float32 gradient static", "acme attention float32 gradient dynamic",
    ]  # fmt: skip
    prepared = namespace["suite"].prepare(programs[0])
    result = prepared.function(*prepared.calls[0][0])
    assert (result.shape, result.requires_grad) == ((2, 5, 8), True)
