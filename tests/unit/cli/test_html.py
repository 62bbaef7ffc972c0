"""`minify report`: one HTML file, complete in itself, whatever the database holds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import indexes
import pytest
from desks import Desk

from fxminify.backends.adapters import Illustration
from fxminify.minifier.oracle import ablation
from fxminify.minifier.oracle.ablation import Ablation, AblationRow
from fxminify.minifier.reporting import illustrations
from fxminify.minifier.reporting import overview as overviews
from fxminify.minifier.reporting.overview import overview
from fxminify.repro_templates.report.html import render
from fxminify.store.document.case import Graph, Node
from fxminify.store.failure import Failure, FailureKind, Frame, Phase
from fxminify.store.index import Index, RetestResult

HOSTILE = (
    "</script><script>alert(1)</script>", "</template><img src=x onerror=alert(1)>", "]]></style><svg onload=alert(1)>",
    "\"'><a href=javascript:alert(1)>", "{{ 7 * 7 }}{% raw %}", "</textarea></title>\x1b[2J\u202e\0", "&lt;script&gt;",
)  # fmt: skip


class Elements(HTMLParser):
    """Every element with its attributes, and the text of each tag; the content of a template counts, too."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.said: list[str] = []
        self.stack: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "img"):
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack:
            self.texts.setdefault(self.stack[-1], []).append(data)
            self.said.append(data)


def page_of(db: Path, *ids: int) -> str:
    with Index.open(str(db), readonly=True) as index:
        return render(overview(index, ids))


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", "".join(Elements(page).said))


def test_failures_are_grouped_by_backend_and_signature_with_one_of_each_in_full(desk: Desk) -> None:
    indexes.small(desk.db)
    with Index.open(str(desk.db), readonly=True) as index:
        report = overview(index)
    assert [(g.headline, [r.id for r in g.rows]) for g in report.groups] == [
        ("RuntimeError: no kernel for sin", [1, 2]), ("RuntimeError: no kernel for sin", [3]),
        ("RuntimeError: cannot store", [4]),
    ]  # fmt: skip
    assert [detail.row.id for detail in report.details] == [1, 3, 4, 2]
    first = report.details[0]
    assert first.before is not None
    assert first.after is not None
    assert (first.before.total, first.before.marked, first.after.total, first.after.marked) == (6, 0, 3, 1)
    assert report.notes == ()


def test_the_steps_are_told_with_what_they_changed_and_drawn_as_a_curve(desk: Desk) -> None:
    indexes.small(desk.db)
    with Index.open(str(desk.db), readonly=True) as index:
        detail = overview(index, [1]).details[0]
    assert [(s.pass_name, s.nodes, s.queries, s.difference) for s in detail.steps] == [
        ("slices", 2, 3, "- gone = f(x)"), ("nodes", 1, 7, ""),
    ]  # fmt: skip
    page = page_of(desk.db, 1)
    svg = page[page.index('<svg class="curve"') :]
    said = "From 4 to 1 compute node in 2 steps"
    assert f'aria-label="{said}"' in svg
    titles = Elements(svg[: svg.index("</svg>") + 6]).texts["title"]
    assert titles == ["4 nodes, 0 queries", "2 nodes, 3 queries", "1 node, 7 queries"]
    assert "slices 2 nodes, 1 input after 3 queries, 0.5 s" in text_of(page)
    assert '<span class="c-gd">- gone = f(x)</span>' in page


def test_the_figures_of_a_divergence_are_a_table(desk: Desk) -> None:
    beside = {"class": "value", "where": "output 1", "error": 0.25, "eager_error": 1e-9, "elements": 1, "of": 2}
    detail = {"class": "value", "where": "output 0", "dtype": "float32", "error": 0.5, "eager_error": 3e-8}
    detail |= {"elements": 4, "of": 8, "allowed": 1e-5, "others": [beside]}
    wrong = Failure(FailureKind.DIVERGENCE, Phase.FORWARD, message="output 0 is off", detail=detail)
    with Index.open(str(desk.db), create=True) as index:
        indexes.add(index, indexes.chain(["sin"]), wrong)
    page = page_of(desk.db, 1)
    assert "allowed" not in text_of(page)
    cells = Elements(page).texts["td"]
    assert cells[cells.index("output 0") :][:6] == ["output 0", "value", "float32", "4 of 8", "0.5", "3e-08"]
    assert "output 1" in cells


def test_the_legend_names_only_what_is_in_the_pictures(desk: Desk) -> None:
    indexes.small(desk.db)
    with Index.open(str(desk.db), readonly=True) as index:
        minified, _, not_stored, pending = overview(index).details
    needed, kept = ("culprit", "what the failure needs"), ("kept", "in the minimized graph under the same name")
    both = [("input", "input"), ("output", "output")]
    assert minified.legend == [needed, kept, *both]
    assert (pending.legend, not_stored.legend) == (both, [])
    said = re.findall(r'<p class="legend">(.*?)</p>', page_of(desk.db, 2))
    assert [re.sub(r"\s+", " ", re.sub("<.*?>", "", text)).strip() for text in said] == ["input output"]


def test_retests_and_what_other_backends_show_are_told(desk: Desk) -> None:
    indexes.small(desk.db)
    rows = (AblationRow("eager", "Dynamo", ablation.PASSES), AblationRow("planted", "backend", ablation.SAME))
    with Index.open(str(desk.db)) as index:
        for torch, result in (("2.13.0", RetestResult.FAILING), ("2.14.0", RetestResult.FIXED)):
            index.retests.add(1, "planted", result, shown=0, runs=2, seconds=1.0, versions={"torch": torch})
        index.artifacts.save(1, ablation.ARTIFACT, Ablation(rows, "the backend").to_json())
    said = Elements(page_of(desk.db, 1)).texts
    retested = "planted: fixed in torch 2.14.0 (failed with 2.13.0), first seen "
    assert [text[: len(retested)] for text in said["dd"] if text.startswith("planted: ")] == [retested]
    assert ("Retested" in said["dt"], "Under other backends" in said["h3"]) == (True, True)
    first = said["td"].index("eager")
    assert said["td"][first : first + 6] == ["eager", "Dynamo", "passes", "planted", "backend", "same failure"]
    assert "Ablation points to the backend." in said["p"]
    other = Elements(page_of(desk.db, 2)).texts
    assert ("Retested" in other["dt"], "Under other backends" in other["h3"]) == (False, False)


def test_the_choice_of_a_kind_is_in_words(desk: Desk) -> None:
    indexes.small(desk.db)
    page = page_of(desk.db)
    assert '<option value="compile_error">compile error</option>' in page
    assert page.count('data-kind="compile_error"') == 3
    assert "compile error in compile" in text_of(page)


def test_the_page_is_one_file_that_loads_nothing(desk: Desk) -> None:
    indexes.small(desk.db)
    done = desk.invoke("report", "repro.db")
    assert done.exit_code == 0, done.output
    page = (desk.path / "repro.html").read_text()
    assert done.output == f"repro.html: 4 failures, 3 bugs, 4 in full, {len(page.encode()):,} bytes\n"
    elements = Elements(page)
    assert elements.stack == []
    assert {tag for tag, _ in elements.found} & {"link", "img", "iframe", "object", "embed", "base", "form"} == set()
    assert [v for _, attrs in elements.found for k, v in attrs.items() if k in ("src", "srcset", "style")] == []
    assert [v for _, a in elements.found for k, v in a.items() if k == "href" and not str(v).startswith("#")] == []
    assert re.findall(r"https?://", page) == []
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page


def test_what_the_policy_names_is_what_stands_in_the_page(desk: Desk) -> None:
    import base64
    import hashlib

    indexes.small(desk.db)
    page = page_of(desk.db)
    policy = next(a["content"] for t, a in Elements(page).found if a.get("http-equiv") == "Content-Security-Policy")
    for tag in ("style", "script"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in str(policy)


def test_nothing_of_a_capture_becomes_markup(tmp_path: Path) -> None:
    """Messages, names, options, scripts, causes, frames, provenance: what is in them is text."""

    def build(name: str, texts: Sequence[str]) -> str:
        with Index.open(str(tmp_path / name), create=True) as index:
            for text in texts:
                failure = Failure(
                    FailureKind.RUNTIME_ERROR, Phase.FORWARD, f"Error{text}", text, ((f"Cause{text}", text),),
                    (Frame(text, text, 3),), diagnostics=text,
                )  # fmt: skip
                case = indexes.chain(["sin", "cos"])  # a context or a mode like that is refused when it is read
                backend = {**case.backend, "name": f"b{text}", "options": {"dict": [[text, text]]}}
                id = index.captures.add(
                    case=replace(case, backend=backend), blobs={}, failure=failure, signature=None,
                    provenance={"program": text, text: text},
                )  # fmt: skip
                indexes.minify(index, id, indexes.chain(["cos"]), script=f'"""{text}"""\n{text}')
                index.captures.set_state(id, index.captures.get(id).state, text)
                indexes.add(index, None, failure, reason=text, graph_text=text)
        return page_of(tmp_path / name)

    page = build("hostile.db", HOSTILE)
    harmless = build("harmless.db", [f"harmless {number}" for number in range(len(HOSTILE))])
    assert [c for c in "\0\x1b\u202e" if c in page] == []
    assert [text for text in HOSTILE if text.partition("\x1b")[0] not in text_of(page)] == []
    found, wanted = (Counter((tag, *sorted(attrs)) for tag, attrs in Elements(p).found) for p in (page, harmless))
    assert found.keys() == wanted.keys()
    del found["span", "class"], wanted["span", "class"]  # how many words of code are coloured differs
    assert found == wanted


def test_names_of_nodes_from_a_hostile_file_are_text_in_the_picture() -> None:
    from fxminify.repro_templates.report.picture import picture

    node = Node("x", "placeholder", "<script>alert(1)</script>", meta={"stack": "</title><script>", "module": "<b>"})
    svg = picture(Graph((node, Node("output", "output", "output", ({"ref": "x"},)))), label="<i>").svg
    assert {tag for tag, _ in Elements(svg).found} == {"svg", "path", "g", "title", "rect", "text"}


def test_no_path_of_this_machine_gets_in(tmp_path: Path) -> None:
    db = tmp_path / "repro.db"
    with Index.open(str(db), create=True) as index:
        failure = indexes.failing("no file /home/maria/secret/x.cpp", diagnostics="in /opt/maria/y.so")
        case = indexes.chain(["sin"])
        options = {"dict": [["cache", "/home/maria/c"]]}
        backend = {**case.backend, "search_path": ["/home/maria/project"], "options": options}
        indexes.add(index, replace(case, backend=backend), failure)
    page = page_of(db)
    assert "maria" not in page
    assert str(tmp_path) not in page
    assert "no file x.cpp" in page


def test_what_does_not_fit_is_left_out_and_said(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    indexes.small(desk.db)
    monkeypatch.setattr(overviews, "MOST_CHARACTERS", 100)
    with Index.open(str(desk.db), readonly=True) as index:
        report = overview(index)
    assert [row.id for group in report.groups for row in group.rows if row.embedded] == [1]
    assert report.notes == (
        "1 of 4 failures are here in full, one of each bug first; minify report repro.db ID makes a "
        "report of the others.",
    )
    assert report.notes[0] in text_of(render(report))


def test_a_report_of_some_failures_has_those(desk: Desk) -> None:
    indexes.small(desk.db)
    found = desk.invoke("report", "repro.db", 2, 3, "-o", "two.html", "--json")
    assert '"in_full": [\n    2,\n    3\n  ]' in found.output
    missing = desk.invoke("report", "repro.db", 77)
    assert (missing.exit_code, missing.stderr) == (
        2, "Error: repro.db has no capture 77: `minify list repro.db` shows what it has; the nearest is 4\n"
    )  # fmt: skip


def test_a_report_is_not_overwritten_unasked(desk: Desk) -> None:
    indexes.small(desk.db)
    (desk.path / "repro.html").write_text("mine")
    refused = desk.invoke("report", "repro.db")
    assert (refused.exit_code, refused.stderr) == (2, "Error: repro.html exists; add --force to overwrite it.\n")
    assert (desk.path / "repro.html").read_text() == "mine"
    assert desk.invoke("report", "repro.db", "--force").exit_code == 0
    mixed = desk.invoke("report", "repro.db", 1, "-o", "x.html", "--bundle", "x.zip")
    assert (mixed.exit_code, mixed.stderr.splitlines()[0]) == (
        2, "Error: -o is for the HTML report; it does not go with --bundle or --to."
    )  # fmt: skip


def test_an_empty_database_has_a_report_that_says_what_to_do(tmp_path: Path) -> None:
    Index.open(str(tmp_path / "new.db"), create=True).close()
    assert "There are no failures in this database." in text_of(page_of(tmp_path / "new.db"))


def test_the_page_of_one_database_is_one_page(desk: Desk) -> None:
    indexes.small(desk.db)
    assert page_of(desk.db) == page_of(desk.db)


def test_a_picture_of_what_a_compiler_made_is_an_image_in_which_nothing_runs(desk: Desk) -> None:
    indexes.small(desk.db)
    hostile = "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'><script>alert(2)</script></svg>"
    with Index.open(str(desk.db)) as index:
        items = (Illustration("<b>forward", "<x>ir_version", hostile, "no </details>kernel"),
                 Illustration("huge", "", "x" * (illustrations.MOST_PICTURE + 1)))  # fmt: skip
        illustrations.keep(index, 1, illustrations.Illustrations("ONNX models", items))
    page = page_of(desk.db, 1)
    images = [attrs for tag, attrs in Elements(page).found if tag == "img"]
    assert [str(a["src"]).partition(",")[0] for a in images] == ["data:image/svg+xml;base64"]
    assert "alert(" not in page
    assert "<b>forward, refused: no </details>kernel" in text_of(page)
