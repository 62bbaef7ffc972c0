"""The results of `fxminify.minify`, and the sentence about a minified capture."""

from __future__ import annotations

from dataclasses import dataclass

from ...repro_templates.report.phrases import code, fence, markdown
from ...store.index import CaptureInfo, State
from ...store.text import count
from ..printable import shown

#: How the reason of a capture begins whose search the budget ended.
STOPPED = "stopped by its budget"


@dataclass(frozen=True, slots=True, repr=False)
class MinifyResult:
    """The result of one capture. A notebook shows it with its script.

    ``capture`` is its row in the index, ``script`` the text of its script, or empty. ``others`` are the ids of
    other failures that were found on the way and stored as captures of their own. ``skipped`` is true for a capture
    that was done before and left as it is.
    """

    capture: CaptureInfo
    script: str = ""
    others: tuple[int, ...] = ()
    skipped: bool = False

    @property
    def id(self) -> int:
        """The id of the capture."""
        return self.capture.id

    @property
    def state(self) -> State:
        """The state of the capture after the call."""
        return self.capture.state

    @property
    def reason(self) -> str:
        """The reason why the state is not better. It may be empty."""
        return self.capture.reason

    @property
    def verified(self) -> bool:
        """Whether at least one run of the script, in a process of its own, showed the failure."""
        return self.capture.state is State.VERIFIED

    def __repr__(self) -> str:
        row = self.capture
        return f"<MinifyResult {row.id}: {shown(row.backend)}: {shown(row.headline)}: {shown(outcome(row))}>"

    def _repr_markdown_(self) -> str:
        row = self.capture
        title = (
            f"**{row.id}** {code(row.backend)} {markdown(row.headline)}  \n{markdown(outcome(row).replace('→', 'to'))}"
        )
        return f"{title}\n\n{fence(self.script.rstrip(), 'python')}\n" if self.script else f"{title}\n"


class MinifyResults(list[MinifyResult]):
    """The results of one call, sorted by id. A notebook shows each with its script."""

    def _repr_markdown_(self) -> str:
        return "\n".join(result._repr_markdown_() for result in self) or "Nothing to minify."


def outcome(row: CaptureInfo) -> str:
    """Describe a minified capture in one line."""
    if row.state in ("verified", "unverified") and row.nodes_after is not None:
        shown = f"{row.verified} of {row.runs} fresh runs of the script show it"
        if row.nodes_before == row.nodes_after and STOPPED in row.reason:
            kept = f"{count(row.nodes_after, 'node')}, not minified to the end"
        elif row.nodes_before == row.nodes_after:
            kept = "its only node is needed" if row.nodes_after == 1 else f"none of its {row.nodes_after} nodes can go"
        else:
            kept = f"{row.nodes_before} → {row.nodes_after} nodes"
        text = f"{kept}, {count(row.queries, 'query')}, {shown}"
        return f"{row.state}: {text}" + (f"; {row.reason}" if row.reason else "")
    return f"{row.state}: {row.reason}" if row.reason else str(row.state)
