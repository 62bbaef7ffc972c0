"""`minify mcp`, with the client of the SDK over a real pipe."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import indexes
import psutil
import pytest
from agent_client import AgentClient, talk
from desks import Desk, MakeDesk
from mcp import MCPError

pytestmark = pytest.mark.slow

FIELDS = ["error", "hint", "command"]
TOOLS = {
    "capture_program", "list_bugs", "show_bug", "minify", "explain", "get_script", "verify_script", "retest",
    "import_script", "hunt", "bisect_program",
}  # fmt: skip


def test_what_is_refused_runs_nothing_and_says_what_to_do(desk: Desk, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    indexes.small(elsewhere / "other.db")
    indexes.small(desk.db)
    (desk.path / "link.db").symlink_to(elsewhere / "other.db")
    evil = "import pathlib\npathlib.Path('evil').touch()\n"
    (desk.path / "evil.py").write_text(evil)
    (desk.path / "evil.md").write_text(f"```python\n{evil}```\n")
    (elsewhere / "evil.py").write_text(evil)
    for module in ("click.py", "sqlalchemy.py", "torch.py"):  # would be imported by `python -m` in this folder
        (desk.path / module).write_text(evil)

    async def conversation(agent: AgentClient) -> None:
        tools = (await agent.client.list_tools()).tools
        assert {tool.name for tool in tools} == TOOLS
        assert all(tool.description for tool in tools)
        for tool, arguments in (
            ("list_bugs", {"db": "../other.db"}),
            ("list_bugs", {"db": str(elsewhere / "other.db")}),
            ("list_bugs", {"db": "link.db"}),
            ("show_bug", {"id": 1, "db": "postgresql://host/x"}),
            ("capture_program", {"program": str(elsewhere / "evil.py"), "consent": True}),
            ("verify_script", {"file": "../evil.py", "consent": True}),
            ("import_script", {"file": "/etc/passwd", "consent": True}),
        ):
            error = await agent.refused(tool, **arguments)
            assert [*error] == FIELDS
            assert f"{desk.path}" in error["error"], error
        for tool, arguments in (
            ("capture_program", {"program": "evil.py"}),
            ("import_script", {"file": "evil.md"}),
            ("verify_script", {"file": "evil.py"}),
        ):
            error = await agent.refused(tool, **arguments)
            assert error["error"].endswith("was not run: this call executes it, and has no consent")
            assert error["hint"] == "call again with consent: true if you agree to it"
        assert (await agent.refused("hunt", backend="evil:backend"))["error"].endswith("and has no consent")
        assert not (desk.path / "evil").exists()
        unknown = await agent.refused("show_bug", id=99)
        assert unknown["error"].endswith("repro.db has no capture 99")
        assert unknown["command"].startswith("minify list ")
        assert "no script yet" in (await agent.refused("get_script", id=2, format="comment"))["error"]
        assert "validation error" in (await agent.refused("show_bug", id="x"))["error"]
        assert "Unknown tool" in (await agent.refused("nothing"))["error"]
        (desk.path / "new.db").write_text("{}")
        assert [*await agent.refused("list_bugs", db="new.db")] == FIELDS

    talk(desk, conversation)


def test_lists_and_texts_come_in_pages(desk: Desk) -> None:
    indexes.small(desk.db)

    async def conversation(agent: AgentClient) -> None:
        first = await agent.call("list_bugs", limit=3)
        assert [row["id"] for row in first["failures"]] == [1, 2, 3]
        rest = await agent.call("list_bugs", limit=3, after=first["next_after"])
        assert ([row["id"] for row in rest["failures"]], rest["next_after"]) == ([4], None)
        shown = await agent.call("show_bug", id=1)
        assert (shown["headline"], shown["graph"].startswith("def forward(x):")) == (
            "RuntimeError: no kernel for sin", True,
        )  # fmt: skip
        page = await agent.call("show_bug", id=1, everything=True)
        assert len(page["text"]) == min(page["characters"], 8000)
        templates = (await agent.client.list_resource_templates()).resource_templates
        assert {t.uri_template for t in templates} == {"fxminify://scripts/{id}", "fxminify://reports/{id}"}
        script = await agent.client.read_resource("fxminify://scripts/1")
        assert getattr(script.contents[0], "text", "").startswith('"""It fails."""\n')
        with pytest.raises(MCPError, match="no script yet"):
            await agent.client.read_resource("fxminify://scripts/2")

    talk(desk, conversation)


def test_an_agents_whole_way_from_a_failing_program_to_a_comment(desk: Desk) -> None:
    async def conversation(agent: AgentClient) -> None:
        done = await agent.call("capture_program", program="program.py", args=["raises"], consent=True)
        (captured,) = done["captured"]
        assert captured["state"] == "pending"
        minified = await agent.call("minify", ids=[captured["id"]])
        assert minified["all_verified"]
        assert len(agent.progress) > 1
        comment = await agent.call("get_script", id=captured["id"], format="comment")
        assert comment["next_offset"] is None
        lines = comment["text"].splitlines()
        assert len(lines) <= 25
        assert lines[0].startswith("Reproduced on torch ")
        assert "in 3 of 3 fresh runs" in lines[0]
        assert "```python" in lines
        script = await agent.call("get_script", id=captured["id"])
        (desk.path / "repro.py").write_text(script["text"])
        verified = await agent.call("verify_script", file="repro.py", consent=True)
        assert verified["all_show_it"], verified
        (again,) = (await agent.call("retest", ids=[captured["id"]]))["results"]
        assert again["result"] == "still failing"
        report = await agent.client.read_resource(f"fxminify://reports/{captured['id']}")
        assert "### Describe the bug" in getattr(report.contents[0], "text", "")

    talk(desk, conversation)


def test_a_call_that_is_cancelled_ends_and_goes_on_later(make_desk: MakeDesk) -> None:
    desk = make_desk("raises")

    async def conversation(agent: AgentClient) -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(agent.ask, "minify")
                while not agent.progress:
                    await anyio.sleep(0.1)
                scope.cancel()
        with anyio.fail_after(60):
            while _verbs(desk.path):
                await anyio.sleep(0.2)
        (row,) = (await agent.call("list_bugs"))["failures"]
        assert row["state"] in ("pending", "reducing")
        assert (await agent.call("minify"))["all_verified"]

    talk(desk, conversation)


def _verbs(folder: Path) -> list[int]:
    """The processes of `minify run` in a folder."""
    processes = psutil.process_iter(["cwd", "cmdline"])
    return [p.pid for p in processes if p.info["cwd"] == str(folder) and "run" in (p.info["cmdline"] or [])]


def test_a_foreign_capture_is_not_run_without_consent(desk: Desk) -> None:
    """`indexes.small` signs nothing, so its captures count as made elsewhere."""
    indexes.small(desk.db)

    async def conversation(agent: AgentClient) -> None:
        (result,) = (await agent.call("verify_script", ids=[1]))["results"]
        assert "not trusted" in json.dumps(result)
        assert "not trusted" in (await agent.refused("explain", id=1))["error"]

    talk(desk, conversation)


def test_a_hunt_finds_what_a_backend_refuses(desk: Desk) -> None:
    pytest.importorskip("expecttest", reason="torch's operator database imports it")
    (desk.path / "no_sin.py").write_text(
        "def compiler(gm, inputs):\n"
        "    if 'sin' in gm.code:\n        raise NotImplementedError('no sin')\n    return gm.forward\n"
    )

    async def conversation(agent: AgentClient) -> None:
        found = await agent.call("hunt", backend="no_sin:compiler", only="^(sin|add)$", consent=True)
        assert (found["totals"]["ok"], found["totals"]["fails"], found["stopped"]) == (1, 1, "")
        (bug,) = found["bugs"]
        assert (bug["headline"], bug["operators"]) == ("NotImplementedError: no sin", ["sin"])
        (row,) = (await agent.call("list_bugs"))["failures"]
        assert (row["id"], row["state"]) == (bug["capture"], "pending")

    talk(desk, conversation)


def test_a_program_whose_result_is_wrong_is_bisected(desk: Desk) -> None:
    (desk.path / "half.py").write_text(
        "import torch\n\n\ndef compiler(gm, inputs):\n"
        "    for node in gm.graph.nodes:\n        if node.target is torch.exp:\n            node.target = torch.exp2\n"
        "    gm.recompile()\n    return gm.forward\n"
    )
    (desk.path / "train.py").write_text(
        "import half, torch\n\n\ndef model(x):\n    y = x.sin() + 1\n    print('a break')\n"
        "    return torch.exp(y).sum()\n\n\n"
        "x = torch.ones(3)\nassert abs(torch.compile(model, backend=half.compiler)(x) - model(x)) < 1, 'wrong'\n"
    )

    async def conversation(agent: AgentClient) -> None:
        assert "has no consent" in (await agent.refused("bisect_program", program="train.py"))["error"]
        found = await agent.call("bisect_program", program="train.py", consent=True)
        assert (found["graphs"], found["reason"]) == (2, "")
        (graph,) = found["found"]
        assert [node["operator"] for node in graph["compiled"]] == ["exp"]
        (row,) = found["captured"]
        done = await agent.call("minify", ids=[row["id"]])
        assert done["all_verified"]

    talk(desk, conversation)
