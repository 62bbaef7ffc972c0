"""The HTML report in a browser: paging, search, pictures, keyboard, dark mode, and that nothing hostile runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import indexes
import pytest
from pages import CONTRAST, MEASURE, OpenPage

from fxminify.backends.adapters import Illustration
from fxminify.minifier.reporting import illustrations
from fxminify.store.index import Index

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import FloatRect, Locator


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "repro.db"
    indexes.small(path)
    return path


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 bugs, and one in 250 graphs."""
    path = tmp_path_factory.mktemp("many") / "many.db"
    with Index.open(str(path), create=True) as index:
        for number in range(250):
            case = indexes.chain(["sin"] * (number // 16 + 1) + ["cos"] * (number % 16))
            indexes.add(index, case, indexes.failing("in every graph"))
        for number in range(120):
            words = f"the {'abcdefghijklmnopqrstuvwxyz'[number % 26] * (number // 26 + 2)} went wrong"
            indexes.add(index, indexes.chain(["cos"]), indexes.failing(words))
    return path


def box(locator: Locator) -> FloatRect:
    """Where an element that is shown stands on the page."""
    found = locator.bounding_box()
    assert found is not None
    return found


def test_a_failure_opens_from_the_list_and_closes_with_the_back_button(open_page: OpenPage, db: Path) -> None:
    page = open_page(db)
    assert page.locator(".group").count() == 3
    page.locator("summary").first.click()
    page.get_by_role("link", name="#1", exact=True).click()
    page.locator("#list").wait_for(state="hidden")
    assert page.locator("#view h2").inner_text() == "#1 planted: sin: RuntimeError: no kernel for sin"
    assert page.locator("#view .picture").count() == 2
    assert page.locator(".picture .culprit").count() == 1
    page.go_back()
    page.locator("#list").wait_for()
    assert page.locator("#view").is_hidden()


def test_everything_can_be_done_from_the_keyboard(open_page: OpenPage, db: Path) -> None:
    page = open_page(db)

    def focus(selector: str) -> None:
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("s => document.activeElement.matches(s)", selector):
                return
        raise AssertionError(f"Tab does not reach {selector}")

    focus("summary")
    page.keyboard.press("Enter")
    focus("td a")
    page.keyboard.press("Enter")
    page.locator("h2:focus").wait_for()
    focus(".copy")
    focus("[data-zoom=in]")
    focus(".canvas")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    svg = page.locator(".picture svg").first
    width = box(svg)["width"]
    page.keyboard.press("1")
    full = box(svg)["width"]
    page.keyboard.press("+")
    assert box(svg)["width"] == pytest.approx(full * 1.3, rel=0.01)
    page.keyboard.press("-")
    page.keyboard.press("0")
    assert box(svg)["width"] == pytest.approx(width, rel=0.01)
    page.keyboard.press("Shift+Tab")
    focus("a[href='#all']")
    page.keyboard.press("Enter")
    page.locator("#list").wait_for()


def test_the_script_is_copied_as_it_is(open_page: OpenPage, db: Path) -> None:
    page = open_page(db, fragment="#1", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    with Index.open(str(db), readonly=True) as index:
        stored = index.repros.get(1)
    assert stored is not None
    assert page.evaluate("navigator.clipboard.readText()") == stored.text.rstrip("\n")


def test_a_click_on_a_node_shows_its_neighbours(open_page: OpenPage, db: Path) -> None:
    page = open_page(db, fragment="#1")
    page.locator(".picture").nth(1).locator("g[data-n='2']").click()
    near = page.locator("path.near")
    assert sorted(str(near.nth(i).get_attribute("data-e")) for i in range(near.count())) == ["1 2", "2 3"]


def test_pages_and_rows_are_shown_a_part_at_a_time_and_all_are_searched(open_page: OpenPage, many: Path) -> None:
    page = open_page(many)
    assert page.locator("#page").inner_text() == "Page 1 of 3"
    first = page.locator(".group").first
    first.locator("summary").click()
    assert first.locator("tbody tr").count() == 100
    first.get_by_role("button", name="Show 100 more").click()
    assert first.locator("tbody tr").count() == 200
    first.get_by_role("button", name="Show 100 more").click()
    assert first.locator("tbody tr").count() == 250
    assert first.locator(".show-more").count() == 0
    page.get_by_role("button", name="Next").click()
    page.get_by_role("button", name="Next").click()
    assert page.locator("#page").inner_text() == "Page 3 of 3"
    assert page.locator(".group").count() == 21
    assert page.get_by_role("button", name="Next").is_disabled()
    page.get_by_label("Filter").fill("THE ZZZZZ WENT")
    page.locator("#found", has_text="1 of 121 bugs").wait_for()
    assert page.locator(".headline").all_inner_texts() == ["planted: RuntimeError: the zzzzz went wrong"]
    page.get_by_label("Filter").fill("#250")
    page.locator(".headline", has_text="every graph").wait_for()
    assert page.locator(".group").count() == 1
    page.get_by_label("Filter").fill("")
    page.get_by_label("State").select_option("pending")
    assert page.locator("#found").inner_text() == ""


def test_hostile_text_is_seen_and_does_nothing(open_page: OpenPage, tmp_path: Path) -> None:
    """The page complains to the fixture if anything is run or asked for."""
    hostile = "</template></script><script>alert(1)</script><img src=http://x.invalid/y onerror=alert(2)>"
    path = tmp_path / "hostile.db"
    with Index.open(str(path), create=True) as index:
        case = indexes.chain(["sin", "cos"])
        backend = {**case.backend, "name": hostile, "options": {"dict": [[hostile, hostile]]}}
        id = indexes.add(index, replace(case, backend=backend), indexes.failing(hostile, hostile))
        indexes.minify(index, id, indexes.chain(["cos"]), script=f"# {hostile}\n")
        svg = "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9' onload='alert(3)'><script>alert(4)</script>"
        shown = Illustration("forward", hostile, f"{svg}</svg>")
        illustrations.keep(index, id, illustrations.Illustrations("ONNX models", (shown,)))
    page = open_page(path)
    page.locator("summary", has_text="forward").click()
    assert page.locator("img").evaluate("image => image.decode().then(() => image.naturalWidth)") == 9
    assert hostile in page.locator("#view").inner_text()
    assert hostile in page.locator("#view code").first.inner_text()
    assert page.locator("img").count() == 1
    page.goto(page.url.partition("#")[0] + "#1'],x</script>")
    page.locator("#list").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(open_page: OpenPage, db: Path, scheme: str) -> None:
    page = open_page(db, color_scheme=scheme)
    page.locator("summary").first.click()
    contrast, where = page.evaluate(MEASURE)
    assert contrast >= CONTRAST, where
    page.get_by_role("link", name="#1", exact=True).click()
    for summary in page.locator("#view summary").all():
        summary.click()
    contrast, where = page.evaluate(MEASURE)
    assert contrast >= CONTRAST, where
    dark = sum(page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")) < 200
    assert dark == (scheme == "dark")


def test_the_script_is_one_click_away(open_page: OpenPage, db: Path) -> None:
    page = open_page(db)
    links = page.locator("a.script")
    assert links.count() == 1  # one bug has a script
    links.press("Enter")
    page.locator("#list").wait_for(state="hidden")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Script"
    script = page.locator("#view .code pre")
    assert box(script)["y"] + box(script)["height"] <= page.evaluate("innerHeight")
    page.keyboard.press("Escape")
    page.locator("#list").wait_for()
    assert not page.locator("details").first.evaluate("details => details.open")


def test_bugs_are_found_by_kind_and_by_backend(open_page: OpenPage, db: Path) -> None:
    page = open_page(db)
    assert page.locator("#kind option").all_inner_texts() == ["all", "compile error"]
    assert page.locator("#kind option").last.get_attribute("value") == "compile_error"
    assert page.locator("#backend option").all_inner_texts() == ["all", "", "other", "planted"]
    page.get_by_label("Backend").select_option("other")
    headlines = page.locator(".headline")  # text_contents: what is out of view is not laid out and has no inner text
    assert headlines.all_text_contents() == ["other: RuntimeError: no kernel for sin"]
    assert page.locator("#found").inner_text() == "1 of 3 bugs"
    page.get_by_label("State").select_option("verified")
    assert page.locator(".group").count() == 0
    page.get_by_label("Backend").select_option("all")
    assert headlines.all_text_contents() == ["planted: sin: RuntimeError: no kernel for sin"]
    page.get_by_label("Kind").select_option("compile_error")
    assert page.locator(".group").count() == 1


@pytest.mark.parametrize("width", [400, 1600])
def test_copy_covers_no_text(open_page: OpenPage, db: Path, width: int) -> None:
    page = open_page(db, fragment="#1", viewport={"width": width, "height": 900})
    copy, code, note = (box(page.locator(selector)) for selector in (".copy", ".code pre", ".code p span"))
    assert copy["y"] + copy["height"] <= code["y"] + 0.5
    assert note["x"] + note["width"] <= copy["x"] or note["y"] + note["height"] <= copy["y"]


@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("fragment", ["", "#1"])
def test_a_window_need_not_be_scrolled_sideways(open_page: OpenPage, db: Path, fragment: str, width: int) -> None:
    page = open_page(db, fragment=fragment, viewport={"width": width, "height": 700})
    for summary in page.locator("summary:visible").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [400, 1600])
def test_a_graph_of_fifteen_nodes_is_seen_whole_at_once(open_page: OpenPage, tmp_path: Path, width: int) -> None:
    path = tmp_path / "fifteen.db"
    with Index.open(str(path), create=True) as index:
        case = indexes.chain(["sin", "cos", "exp"] * 5)
        indexes.minify(index, indexes.add(index, case, indexes.failing("no exp")), case)
    page = open_page(path, viewport={"width": width, "height": 900})
    for picture in page.locator(".picture").all():
        frame = box(picture.locator(".canvas"))
        boxes = [box(node) for node in picture.locator("g[data-n]").all()]
        assert len(boxes) == 17
        for each in boxes:
            assert frame["y"] <= each["y"] + 1
            assert each["y"] + each["height"] <= frame["y"] + frame["height"] + 1
        assert page.evaluate("(svg) => svg.width.baseVal.value / svg.viewBox.baseVal.width",
                             picture.locator("svg").element_handle()) <= 1  # fmt: skip


def test_escape_leads_back_and_a_slash_to_the_filter(open_page: OpenPage, db: Path) -> None:
    page = open_page(db, fragment="#1")
    page.locator("h2").wait_for()
    page.keyboard.press("Escape")
    page.locator("#list").wait_for(timeout=5000)
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "filter"
    page.keyboard.type("/")
    assert page.locator("#filter").input_value() == "/"


def test_a_graph_of_a_thousand_nodes_opens_at_the_culprit_and_zooms(open_page: OpenPage, tmp_path: Path) -> None:
    path = tmp_path / "big.db"
    operations = [("sin", "cos", "tanh", "relu")[n % 4] for n in range(1000)]
    operations[700] = "exp"
    with Index.open(str(path), create=True) as index:
        case = indexes.chain(operations)
        id = indexes.add(index, case, indexes.failing("cannot lower exp"))
        x, exp, output = case.graph.nodes[0], case.graph.nodes[701], case.graph.nodes[-1]
        nodes = (x, replace(exp, args=({"ref": "x"},)), replace(output, args=({"tuple": [{"ref": exp.name}]},)))
        indexes.minify(index, id, replace(case, graph=replace(case.graph, nodes=nodes)))
    page = open_page(path, viewport={"width": 1300, "height": 900})
    large = page.locator(".picture").nth(1)
    assert large.locator("g[data-n]").count() == 1002
    frame, culprit = box(large.locator(".canvas")), box(large.locator(".culprit"))
    assert frame["y"] <= culprit["y"] <= frame["y"] + frame["height"] - culprit["height"]
    large.locator(".canvas").press("f")
    page.keyboard.type("EXP")
    assert large.locator(".matches").inner_text() == "1 of 1"
    assert large.locator("g.match text").first.text_content() == "exp"
    page.keyboard.press("Control+a")
    page.keyboard.type("tanh")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    page.keyboard.press("Shift+Enter")
    assert large.locator(".matches").inner_text() == "2 of 250"
    frame, found = box(large.locator(".canvas")), box(large.locator("g.at"))
    assert frame["y"] <= found["y"] <= frame["y"] + frame["height"] - found["height"]
    page.keyboard.press("Escape")
    assert large.locator("g.match").count() == 0
    page.locator("#view").wait_for(timeout=5000)
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.className") == "canvas"
    for key in "++-01c":
        large.locator(".canvas").press(key)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert large.locator("g[data-n]").count() == 1002


def test_of_ten_thousand_failures_a_part_is_shown_at_a_time(open_page: OpenPage, tmp_path: Path) -> None:
    path = tmp_path / "many.db"
    indexes.small(path)
    with Index.open(str(path)) as index:
        for number in range(30):
            case = indexes.chain([("sin", "cos", "tanh", "relu")[n * number % 4] for n in range(50 + 40 * number)])
            indexes.add(index, case, indexes.failing(f"cannot lower {chr(97 + number % 26) * (number // 26 + 4)}"))
    indexes.multiply(path, 10_000)
    page = open_page(path)
    assert (tmp_path / "report.html").stat().st_size < 25_000_000
    assert "10,000 failures" in page.locator("header").inner_text()
    assert "40 of 10,000 failures are here in full" in page.locator(".note").inner_text()
    assert page.locator("#page").inner_text() == "Page 1 of 21"
    for _ in range(2):
        assert page.locator(".headline:visible").count() == 50
        page.locator("#next").click()
    assert page.evaluate("document.querySelectorAll('*').length") < 50_000
    page.get_by_label("Filter").fill("#9990")
    page.locator("#found", has_text="1 of 1").wait_for(timeout=5000)
    assert page.locator(".headline").all_inner_texts() == ["planted: RuntimeError: cannot lower xxxx in place 9990"]
