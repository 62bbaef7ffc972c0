"""The pages of `minify serve` in a browser: by mouse, by keyboard, without scripts, as things happen, when hostile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import indexes
import pytest
from pages import CONTRAST, MEASURE, Browse
from serving import OPTIONS, Served, serving

from fxminify.backends.adapters import Illustration
from fxminify.minifier.reporting import illustrations
from fxminify.store.index import BugStatus, TaskState, TokenScope

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Page

SHOWN = ("/bugs", "/bugs/1", "/captures/1", "/tasks?state=all", "/workers", "/bugs/1/merge?into=2", "/sign-in")
CAN = {"backend=planted", "torch=2.13", "trust"}


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    db = tmp_path / "repro.db"
    indexes.small(db)
    with serving(str(db), tmp_path / "uploads") as served:
        served.index.triage.label(1, add=["needs-owner", "a" * 50])
        served.index.tasks.claim(served.index.tasks.join("gpu-3", CAN), CAN)
        yield served


def focus(page: Page, selector: str) -> None:
    """Press Tab until an element like that has the focus, which can be seen there."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("s => document.activeElement.matches(s)", selector):
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
            return
    raise AssertionError(f"Tab does not reach {selector}")


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (400, "light"), (1600, "light"), (1600, "dark")])
def test_pages_fit_and_can_be_read(served: Served, browse: Browse, width: int, scheme: str) -> None:
    page = browse(served.url + "/bugs", viewport={"width": width, "height": 800}, color_scheme=scheme)
    for path in SHOWN:
        page.goto(served.url + path)
        for summary in page.locator("summary").all():
            summary.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        contrast, where = page.evaluate(MEASURE)
        assert contrast >= CONTRAST, (path, where)
    dark = sum(page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")) < 200
    assert dark == (scheme == "dark")


def test_everything_is_done_from_the_keyboard(served: Served, browse: Browse) -> None:
    page = browse(served.url + "/bugs?order=new", viewport={"width": 1600, "height": 900})
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("sin /")
    assert page.locator("#search").input_value() == "sin /"
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    page.keyboard.press("Enter")
    page.wait_for_url("**/bugs?q=sin*")
    assert page.locator(".bug").count() == 2
    focus(page, "a.headline[href='/bugs/1']")
    page.keyboard.press("Enter")
    page.wait_for_url("**/bugs/1")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1600
    focus(page, ".copy")
    focus(page, "a[download]")
    focus(page, "[data-zoom=in]")
    focus(page, ".canvas")
    page.keyboard.press("+")
    page.keyboard.press("Escape")
    page.wait_for_url("**/bugs?q=sin*")  # back to what was searched for
    page.goto(served.url + "/bugs/1")
    focus(page, "form[action='/bugs/1/status'] button")
    page.keyboard.press("Enter")
    page.locator(".said", has_text="It is ignored now.").wait_for()
    assert served.index.bugs.get(1).status is BugStatus.IGNORED
    page.keyboard.press("/")
    page.wait_for_url("**/bugs#search")
    page.wait_for_function("document.activeElement.id === 'search'")


def test_the_script_is_copied_and_downloaded_as_it_is(served: Served, browse: Browse) -> None:
    page = browse(served.url + "/bugs/1", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    stored = served.index.repros.get(1)
    assert stored is not None
    assert page.evaluate("navigator.clipboard.readText()") == stored.text.rstrip("\n")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download repro.py").click()
    assert download.value.suggested_filename == "repro.py"
    assert Path(download.value.path()).read_text() == stored.text


def test_all_works_without_scripts(served: Served, browse: Browse) -> None:
    page = browse(served.url + "/bugs", viewport={"width": 400, "height": 800}, java_script_enabled=False)
    page.get_by_role("link", name="Tasks").click()
    page.get_by_role("button", name="Cancel task 2").click()
    page.locator(".said", has_text="cancelled").wait_for()
    assert served.index.tasks.get(2).state is TaskState.CANCELLED
    page.get_by_role("link", name="Bugs").click()
    page.get_by_label("Search").fill("sin")
    page.get_by_label("Backend").select_option("other")
    page.get_by_role("button", name="Show").click()
    page.locator("a.headline").click()
    assert page.url == f"{served.url}/bugs/2"
    assert page.locator(".tools:visible, .copy:visible").count() == 0
    assert page.locator(".canvas svg g.input").is_visible()
    page.get_by_label("Labels").fill("p1")
    page.get_by_role("button", name="Add").click()
    page.locator("a.label", has_text="p1").click()
    page.wait_for_url("**/bugs?status=all&label=p1")
    assert page.locator("a.headline").get_attribute("href") == "/bugs/2"
    page.locator("a.headline").click()
    page.get_by_role("button", name="Remove p1").click()
    page.locator(".said", has_text="labels were changed").wait_for()
    assert served.index.bugs.get(2).labels == ()
    page.get_by_label("Merge into bug").fill("1")
    page.get_by_role("button", name="Look first").click()
    page.locator("p", has_text="1 capture, seen 1 time, would be counted under bug 1").wait_for()
    page.get_by_role("button", name="Merge").click()
    page.locator(".said", has_text="merged into this one").wait_for()
    assert served.index.bugs.get(1).merged == (2,)
    page.get_by_role("button", name="Split #2").click()
    page.get_by_role("button", name="Split").click()
    assert served.index.bugs.get(1).merged == ()


def test_what_happens_is_seen_at_once_and_the_focus_stays(served: Served, browse: Browse) -> None:
    page = browse(served.url + "/bugs")
    page.locator("#stream", has_text="live").wait_for()
    page.locator("a.headline[href='/bugs/2']").focus()
    indexes.add(served.index, indexes.chain(["erf"]), indexes.failing("no kernel for erf"))
    page.locator(".bug", has_text="no kernel for erf").wait_for()
    assert page.locator(".bug").count() == 4
    assert page.evaluate("document.activeElement.className") == "headline"
    page.goto(served.url + "/bugs/4")
    page.locator("#stream", has_text="live").wait_for()
    page.get_by_label("Merge into bug").fill("7")
    served.index.triage.set(1, BugStatus.IGNORED)  # another bug
    served.index.tasks.cancel(served.index.tasks.newest(bug=4, limit=1)[0].id)
    page.locator("#seen .state.cancelled").wait_for()
    assert page.get_by_label("Merge into bug").input_value() == "7"


def test_a_person_signs_in_at_a_server_with_tokens(tmp_path: Path, browse: Browse) -> None:
    indexes.small(tmp_path / "repro.db")
    with serving(str(tmp_path / "repro.db"), tmp_path / "uploads", replace(OPTIONS, tokens=True)) as served:
        token = served.index.tokens.new("ann", [TokenScope.READ])[1]
        page = browse(served.url + "/sign-in?back=/bugs/1", viewport={"width": 400, "height": 800})
        assert page.evaluate("document.activeElement.id") == "token"
        page.keyboard.type(token)
        page.keyboard.press("Enter")
        page.wait_for_url("**/bugs/1")
        assert page.locator(".who").inner_text().split() == ["ann", "Sign", "out"]
        assert page.evaluate("document.cookie") == ""
        page.locator("#stream", has_text="live").wait_for()
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/sign-in")


def test_hostile_text_is_seen_and_does_nothing(served: Served, browse: Browse) -> None:
    """The page complains to the fixture if anything is run, refused by the policy or asked of another server."""
    hostile = "</title></script><script>alert(1)</script><img src=http://x.invalid/y onerror=alert(2)>"
    case = indexes.chain(["sin", "cos"])
    backend = {**case.backend, "name": hostile, "options": {"dict": [[hostile, hostile]]}}
    id = indexes.add(served.index, replace(case, backend=backend), indexes.failing(hostile, hostile))
    indexes.minify(served.index, id, indexes.chain(["cos"]), script=f"# {hostile}\n")
    svg = "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9' onload='alert(3)'><script>alert(4)</script>"
    shown = Illustration("forward", hostile, f"{svg}</svg>")
    illustrations.keep(served.index, id, illustrations.Illustrations("ONNX models", (shown,)))
    bug = served.index.captures.get(id).bug
    page = browse(f"{served.url}/bugs")
    assert hostile in page.locator(".bug", has_text="alert(1)").inner_text()
    for path in (f"/bugs/{bug}", f"/bugs/{bug}?format=issue", f"/captures/{id}", "/tasks?state=all"):
        page.goto(served.url + path)
        for summary in page.locator("summary").all():
            summary.click()
    page.goto(f"{served.url}/captures/{id}")
    page.locator("summary", has_text="forward").click()
    assert page.locator("img").evaluate("image => image.decode().then(() => image.naturalWidth)") == 9
    assert hostile in page.locator("main code").first.inner_text()
    assert page.locator("img").count() == 1
