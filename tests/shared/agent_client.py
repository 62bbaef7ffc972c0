"""An agent: the client of the SDK, connected to `minify mcp` by a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import anyio
from desks import Desk
from mcp import Client, StdioServerParameters, stdio_client

T = TypeVar("T")


class AgentClient:
    """Calls of tools, and the progress that was reported meanwhile."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.progress: list[str] = []

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Return the answer of a tool that has one."""
        failed, answer = await self.ask(tool, **arguments)
        assert not failed, answer
        return answer

    async def refused(self, tool: str, **arguments: Any) -> dict[str, str]:
        """Return the error of a tool."""
        failed, answer = await self.ask(tool, **arguments)
        assert failed, answer
        return dict(answer)

    async def ask(self, tool: str, **arguments: Any) -> tuple[bool, Any]:
        async def heard(progress: float, total: float | None, message: str | None) -> None:
            self.progress.append(message or "")

        done = await self.client.call_tool(tool, arguments, progress_callback=heard)
        text = getattr(done.content[0], "text", "")
        return bool(done.is_error), json.loads(text)


def finished(main: Callable[[], Awaitable[T]]) -> T:
    """Run ``main`` in a thread of its own, because the thread of the tests may have the loop of a browser."""
    with ThreadPoolExecutor(1) as apart:
        return apart.submit(anyio.run, main).result()


def talk(desk: Desk, conversation: Callable[[AgentClient], Awaitable[None]]) -> None:
    """Start `minify mcp` in the folder of ``desk`` and hold a conversation with it."""

    async def main() -> None:
        args = ["-P", "-m", "fxminify", "mcp"]  # imports nothing from the folder, as the installed command
        server = StdioServerParameters(command=sys.executable, args=args, env=desk.environment(), cwd=desk.path)
        async with Client(stdio_client(server)) as client:
            await conversation(AgentClient(client))

    finished(main)
