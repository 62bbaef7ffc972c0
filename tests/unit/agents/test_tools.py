"""The tools of an agent: what they refuse, and what the documents say. The client is in this process."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from agent_client import finished
from mcp import Client

import fxminify
from fxminify.cli import main as verbs
from fxminify.minifier.agents import server as servers
from fxminify.minifier.agents.excerpts import PAGE, page
from fxminify.minifier.agents.places import OutsideRoot, inside

ROOT = Path(fxminify.__file__).parent


def test_paths_below_the_root_are_absolute(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    assert inside(tmp_path, "repro.db") == str(tmp_path / "repro.db")
    assert inside(tmp_path, "in/../x.py") == str(tmp_path / "x.py")
    assert inside(tmp_path, str(tmp_path / "in" / "x.py")) == str(tmp_path / "in" / "x.py")


@pytest.mark.parametrize("given", ["../x", "/etc/passwd", "", "out/x", "sqlite:///x.db", "in/../../x", "a\0b"])
def test_other_paths_are_refused(tmp_path: Path, given: str) -> None:
    (tmp_path / "out").symlink_to(tmp_path.parent)
    with pytest.raises(OutsideRoot, match=r"name a (file there|path below it)"):
        inside(tmp_path, given)


@pytest.mark.parametrize(
    ("tool", "arguments", "error"),
    [
        ("capture_program", {"program": "x.py"}, "x.py was not run: this call executes it, and has no consent"),
        ("bisect_program", {"program": "x.py"}, "x.py was not run: this call executes it, and has no consent"),
        ("import_script", {"file": "x.md"}, "x.md was not run: this call executes it, and has no consent"),
        ("verify_script", {"file": "x.py"}, "x.py was not run: this call executes it, and has no consent"),
        (
            "hunt",
            {"backend": "x:y"},
            "a hunt of x:y imports modules below ROOT; it was not run: this call executes it, and has no consent",
        ),
        ("verify_script", {"db": "x.py"}, "x.py is a script and no index"),
        ("verify_script", {"db": "in/../x.py"}, "in/../x.py is a script and no index"),
        ("capture_program", {"program": "../x.py", "consent": True}, "../x.py is outside ROOT"),
        ("minify", {"db": "/x.db"}, "/x.db is outside ROOT"),
        ("retest", {"db": "http://host/"}, "'http://host/' is no path below ROOT"),
    ],
)
def test_no_verb_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, arguments: dict[str, Any], error: str
) -> None:
    monkeypatch.setattr(servers, "run", None)

    async def main() -> Any:
        async with Client(servers.make_server(tmp_path, "repro.db")) as client:
            return await client.call_tool(tool, arguments)

    done = finished(main)
    assert done.is_error
    fields = json.loads(done.content[0].text)
    assert [*fields] == ["error", "hint", "command"]
    assert fields["error"] == error.replace("ROOT", str(tmp_path.resolve()))


def test_the_page_about_agents_has_the_tools_and_a_configuration(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "agents.md").read_text()
    _, _, table = text.partition("| tool | what it does | consent |")
    listed = {name for row in re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE) for name in re.findall(r"\w+", row)}

    async def main() -> set[str]:
        async with Client(servers.make_server(tmp_path, "repro.db")) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    assert listed == finished(main)
    config = json.loads(text.partition("```json\n")[2].partition("```")[0])["mcpServers"]["fxminify"]
    assert (config["command"], config["args"][0]) == ("minify", "mcp")
    assert verbs.commands["mcp"].make_context("mcp", config["args"][1:]).params["root"] == Path()


def test_pages_cover_a_text() -> None:
    text = "".join(map(str, range(6000)))
    parts, offset = [], 0
    while offset is not None:
        found = page(text, offset)
        parts.append(found["text"])
        offset = found["next_offset"]
    assert "".join(parts) == text
    assert [len(part) for part in parts[:-1]] == [PAGE] * (len(parts) - 1)
