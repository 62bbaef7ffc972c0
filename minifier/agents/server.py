"""The server of `minify mcp`: tools and resources for an agent.

Each tool is a verb of the command line. It is refused, and nothing is run, if a path leads outside the root, or if it
would execute a file and the call has no consent. Captures of this user run without consent, as in the verbs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceError, ToolError, UnexpectedToolError
from mcp.types import CallToolResult, TextContent, ToolAnnotations

from ... import __version__
from ...store.errors import StoreError
from .. import next_step
from . import excerpts
from .places import inside
from .verb_process import VerbFailed, VerbResult, run

INSTRUCTIONS = """\
fxminify turns a torch.compile backend failure into a verified, minimal, standalone script.
A failing program: capture_program, then minify, then get_script with the format comment or issue.
The text of an issue: save it below the root as a .md file, then import_script, then minify.
Wrong results: capture_program with check; if that stores nothing, bisect_program.
Why it fails: explain. What runs on another version: retest.
What a backend fails at: hunt, then minify.
A tool that executes a file needs consent: true, which says that its owner agreed to run it.
Paths are relative to the root. Errors are JSON with error, hint and command."""
_READS = ToolAnnotations(read_only_hint=True)
_NO_CONSENT = "was not run: this call executes it, and has no consent; call again with consent: true if you agree to it"


class Agent:
    """The tools, for the failures of ``db`` and the files below ``root``."""

    def __init__(self, root: Path, db: str) -> None:
        self.root = root.resolve()
        self.db = db

    def place(self, given: str) -> str:
        """Return the path of a file below the root. Raises `ToolError`."""
        try:
            return inside(self.root, given)
        except StoreError as error:
            raise _refusal(str(error)) from error

    def database(self, given: str) -> str:
        """Return the path of an index below the root. Raises `ToolError`, also for a script, which a verb would run."""
        path = self.place(given or self.db)
        if path.endswith(".py"):
            raise _refusal(f"{given or self.db} is a script and no index: give it as `file`")
        return path

    async def verb(self, ctx: Context, words: Sequence[object], modules: Path | None = None) -> VerbResult:
        """Run a verb and report its progress. Raises `ToolError` with the fields of its error.

        ``modules`` is a directory from which a script may import.
        """

        async def progress(seconds: float, line: str) -> None:
            await ctx.report_progress(seconds, message=line[:300])

        try:
            return await run(self.root, [str(word) for word in words], progress, modules=modules)
        except VerbFailed as error:
            raise ToolError(str(error)) from error

    async def capture_program(
        self,
        ctx: Context,
        program: str,
        args: list[str] | None = None,
        check: bool = False,
        consent: bool = False,
        timeout: float = 0,
        db: str = "",
    ) -> dict[str, Any]:
        """Run a Python program and store the failures of its torch.compile backends.

        check: also compare results with eager, for wrong numbers. timeout: seconds after which a compilation or call
        counts as a hang. consent: the program may be executed.
        """
        file, index = self.place(program), self.database(db)
        if not consent:
            raise _refusal(f"{program} {_NO_CONSENT}")
        words = ["capture", "--json", "--db", index, *(["--check"] if check else [])]
        words += ["--timeout", str(timeout)] if timeout > 0 else []
        done = await self.verb(ctx, [*words, file, *(args or [])])
        captured = [excerpts.short(row) for row in done.answer["captured"]]
        return {"exit_code": done.answer["exit_code"], "captured": captured, "printed": done.printed[-2000:]}

    async def bisect_program(
        self,
        ctx: Context,
        program: str,
        args: list[str] | None = None,
        runs: int = 1,
        consent: bool = False,
        db: str = "",
    ) -> dict[str, Any]:
        """Find the compiled graph, and its nodes, with which a program fails whose result alone is wrong.

        The program is run often; its exit code says whether it fails. runs: how often it must pass. A difference from
        eager is stored, for minify. reason: why nothing was found. consent: the program may be executed.
        """
        file, index = self.place(program), self.database(db)
        if not consent:
            raise _refusal(f"{program} {_NO_CONSENT}")
        done = await self.verb(ctx, ["bisect", "--json", "--runs", runs, "--db", index, file, *(args or [])])
        return excerpts.bisected(done.answer) | {"printed": done.printed[-2000:]}

    async def import_script(
        self, ctx: Context, file: str, backend: str = "", consent: bool = False, db: str = ""
    ) -> dict[str, Any]:
        """Capture the failure of an issue's text (.md: its Python code blocks are run) or of a repro.py of PyTorch.

        backend: use it instead of the named one. consent: the file may be executed. tried: each block with its result.
        """
        path, index = self.place(file), self.database(db)
        if not consent:
            raise _refusal(f"{file} {_NO_CONSENT}")
        words = ["import", "--json", "--trust", "--db", index, *(["--backend", backend] if backend else [])]
        done = await self.verb(ctx, [*words, path])
        captured = [excerpts.short(row) for row in done.answer["captured"]]
        return {"captured": captured, "tried": done.answer["tried"], "printed": done.printed[-2000:]}

    async def list_bugs(self, ctx: Context, limit: int = 20, after: int = 0, db: str = "") -> dict[str, Any]:
        """List the failures of an index, limit at a time. The next page begins after the last id."""
        most = min(max(limit, 1), 100)
        words = ["list", "--json", "--limit", most + 1, "--after", max(after, 0), self.database(db)]
        rows = (await self.verb(ctx, words)).answer
        more = rows[most - 1]["id"] if len(rows) > most else None
        return {"failures": [excerpts.short(row) for row in rows[:most]], "next_after": more}

    async def show_bug(
        self, ctx: Context, id: int, everything: bool = False, offset: int = 0, db: str = ""
    ) -> dict[str, Any]:
        """Show one failure: its error, its graph and what was found out. everything: its report as pages of JSON."""
        done = await self.verb(ctx, ["show", "--json", self.database(db), id])
        return excerpts.page(json.dumps(done.answer), offset) if everything else excerpts.detailed(done.answer)

    async def minify(
        self,
        ctx: Context,
        ids: list[int] | None = None,
        budget: float = 0,
        consent: bool = False,
        sandbox: bool = False,
        db: str = "",
    ) -> dict[str, Any]:
        """Minify the pending failures of an index, or these. It can be cancelled, and goes on where it was.

        budget: seconds for one failure. consent: also run captures that were made elsewhere. sandbox: without network
        and files.
        """
        words = ["run", "--json", "-v", *_asked(consent, sandbox), *(["--budget", budget] if budget > 0 else [])]
        done = await self.verb(ctx, [*words, self.database(db), *(ids or [])])
        return {"failures": [excerpts.short(row) for row in done.answer], "all_verified": done.code == 0}

    async def explain(
        self, ctx: Context, id: int, consent: bool = False, sandbox: bool = False, db: str = ""
    ) -> dict[str, Any]:
        """Find the part of the backend in which a failure arises, and a way around it."""
        done = await self.verb(ctx, ["explain", "--json", *_asked(consent, sandbox), self.database(db), id])
        found = excerpts.detailed(done.answer)
        return {name: found[name] for name in ("id", "fails_in", "ways_around", "cause") if name in found}

    async def get_script(
        self,
        ctx: Context,
        id: int,
        format: str = "script",
        offset: int = 0,
        consent: bool = False,
        sandbox: bool = False,
        db: str = "",
    ) -> dict[str, Any]:
        """Return a minified failure as a script, comment (25 lines of Markdown), issue, pytest, notebook or bisect.

        tentative says why a text is not certain, empty if it is. next_offset is null at the end of the text.
        """
        words = ["repro", "--json", "--format", format, *_asked(consent, sandbox), self.database(db), id]
        done = await self.verb(ctx, words)
        about = {name: done.answer[name] for name in ("id", "format", "verified", "runs", "tentative")}
        return about | excerpts.page(done.answer["text"], offset) | {"files": done.answer["files"]}

    async def verify_script(
        self,
        ctx: Context,
        file: str = "",
        ids: list[int] | None = None,
        consent: bool = False,
        sandbox: bool = False,
        db: str = "",
    ) -> dict[str, Any]:
        """Run the stored scripts of these failures again, or the script in a file, which needs consent.

        Such a script may import modules that lie beside it.
        """
        if file:
            path = self.place(file)
            if not consent:
                raise _refusal(f"{file} {_NO_CONSENT}")
            words = ["verify", "--json", *(["--sandbox"] if sandbox else []), path]
            done = await self.verb(ctx, words, Path(path).parent)
        else:
            stored = ["verify", "--json", *_asked(consent, sandbox), self.database(db), *map(str, ids or [])]
            done = await self.verb(ctx, stored)
        return {"results": done.answer, "all_show_it": done.code == 0}

    async def retest(
        self,
        ctx: Context,
        ids: list[int] | None = None,
        backends: list[str] | None = None,
        consent: bool = False,
        sandbox: bool = False,
        db: str = "",
    ) -> dict[str, Any]:
        """Run the minimal cases again with what is installed now, or under other backends: failing, fixed, changed."""
        under = [word for name in backends or [] for word in ("--backend", name)]
        words = ["retest", "--json", *_asked(consent, sandbox), *under, self.database(db), *(ids or [])]
        done = await self.verb(ctx, words)
        names = ("id", "backend", "result", "as_expected", "message", "shown", "runs", "versions", "standing")
        return {"results": [{n: row[n] for n in names if row.get(n) not in (None, "")} for row in done.answer]}

    async def hunt(
        self,
        ctx: Context,
        backend: str,
        module: str = "",
        only: str = "",
        suites: list[str] | None = None,
        dtypes: list[str] | None = None,
        gradients: bool = False,
        budget: float = 300,
        consent: bool = False,
        db: str = "",
    ) -> dict[str, Any]:
        """Run torch's operators under a backend, compare each with eager, and store what fails, one capture a bug.

        backend: a name, or MODULE:ATTRIBUTE. module: it registers the backend. only: a regular expression for names of
        operators. budget: seconds; the same call goes on afterwards, and when it was cancelled. consent: modules below
        the root may be executed.
        """
        index = self.database(db)
        if not consent:
            raise _refusal(f"a hunt of {backend} imports modules below {self.root}; it {_NO_CONSENT}")
        words = ["hunt", "--json", "--db", index, "--only", only, "--budget", budget]
        words += ["--grad"] if gradients else []
        words += ["--import", module] if module else []
        words += ["--suite", ",".join(suites)] if suites else []
        words += ["--dtype", ",".join(dtypes)] if dtypes else []
        return excerpts.hunted((await self.verb(ctx, [*words, "--", backend])).answer)

    async def text(self, ctx: Context, id: int, format: str) -> str:
        """Return a failure in a format, for a resource. Raises `ResourceError`."""
        try:
            done = await self.verb(ctx, ["repro", "--json", "--format", format, self.database(""), id])
        except ToolError as error:
            raise ResourceError(str(error)) from error
        return str(done.answer["text"])


class AgentServer(MCPServer[Any]):
    """A server whose tools answer an error with the fields of an error of a verb, and with nothing around them."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None) -> Any:
        try:
            return await super().call_tool(name, arguments, context)
        except UnexpectedToolError:
            raise
        except ToolError as error:
            text = str(error.__cause__) if isinstance(error.__cause__, ToolError) else _wrong_call(str(error))
            return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def _wrong_call(message: str) -> str:
    """Return the fields of an error about the arguments of a call."""
    hint = "the input schema of the tool lists its arguments"
    return json.dumps({"error": " ".join(message.split()), "hint": hint, "command": "minify mcp --help"})


def _asked(consent: bool, sandbox: bool) -> list[str]:
    return [*(["--trust"] if consent else []), *(["--sandbox"] if sandbox else [])]


def _refusal(message: str) -> ToolError:
    """Return an error with the fields of an error of a verb."""
    fields = next_step.document(message, ["mcp"], ["mcp"])
    error, _, hint = message.rpartition("; ") if "; " in message else message.rpartition(": ")
    return ToolError(json.dumps(fields | {"error": error, "hint": hint}))


def make_server(root: Path, db: str) -> AgentServer:
    """Return a server for the files below ``root``, with failures in ``db`` unless a call names another index."""
    agent = Agent(root, db)
    server = AgentServer("fxminify", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    reading: tuple[Callable[..., Any], ...] = (agent.list_bugs, agent.show_bug)
    working: tuple[Callable[..., Any], ...] = (
        agent.capture_program, agent.bisect_program, agent.import_script, agent.minify, agent.explain, agent.get_script,
        agent.verify_script, agent.retest, agent.hunt,
    )  # fmt: skip
    for tool in reading:
        server.tool(annotations=_READS)(tool)
    for tool in working:
        server.tool()(tool)

    @server.resource("fxminify://scripts/{id}", mime_type="text/x-python")
    async def script(id: int, ctx: Context) -> str:
        """The verified script of a failure."""
        return await agent.text(ctx, id, "script")

    @server.resource("fxminify://reports/{id}", mime_type="text/markdown")
    async def report(id: int, ctx: Context) -> str:
        """The report of a failure as an issue."""
        return await agent.text(ctx, id, "issue")

    return server
