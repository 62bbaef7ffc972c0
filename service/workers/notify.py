"""Tells targets what happens: each of each bug and event once (`fxminify.store.index.deliveries`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from ... import __version__
from ...minifier.printable import shown, shown_json
from ...minifier.reporting.export import stored_repro
from ...minifier.reporting.gathering import gather
from ...store.errors import StoreError
from ...store.index import BugInfo, DeliveryInfo, DeliveryState, Index
from .targets import MaybeSent, Notice, NotSent, Target

#: Seconds between two looks.
_LOOK = 5.0
#: Bugs that a digest names.
_NAMED = 100
_TITLES = {
    "new": "new failure", "verified": "minimal script", "fixed": "fixed", "regressed": "fails again",
}  # fmt: skip

Tell = Callable[[str, str], None]


class Notifier:
    """Tells ``targets`` what happens in ``index``. ``page`` is where its pages are, ``tell`` is given a word and a
    sentence for the log."""

    def __init__(self, index: Index, targets: Sequence[Target], page: str, tell: Tell) -> None:
        self._index, self._targets, self._page, self._tell = index, targets, page, tell
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def step(self) -> int:
        """Tell all that is due. Returns how many messages were tried. Raises `StoreError`."""
        tried = 0
        for target in self._targets:
            self._index.deliveries.settle(target.name, can_be_asked=target.can_be_asked)
            while self._index.deliveries.collect(target.name, target.events):
                pass
            while taken := self._index.deliveries.take(target.name, per_day=target.per_day):
                tried += 1
                self._send(target, taken)
                if self._ending.is_set():
                    return tried
        return tried

    def start(self) -> None:
        """Do so in a thread from now on."""
        if not self._targets:
            return
        for target in self._targets:  # events from now on are sent, however late the thread starts
            self._index.deliveries.collect(target.name, target.events)
        self._thread = threading.Thread(target=self._run, name="fxminify notifier", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Tell what is due, and end."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        self._ending.clear()
        self._safely()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._safely()
            self._ending.wait(_LOOK)

    def _safely(self) -> None:
        try:
            self.step()
        except StoreError as error:  # the index is away; it is tried again
            self._tell("away", f"notifications wait: {error}")

    def _send(self, target: Target, taken: Sequence[DeliveryInfo]) -> None:
        first, about = taken[0], _about(taken)
        try:
            notice = self._notice(taken)
            before = self._index.deliveries.answer(target.name, first.bug) if len(taken) == 1 else ""
            answer = target.tell(notice, key=f"fxminify-{first.message}", before=before, doubtful=first.attempts > 1)
        except NotSent as error:
            state = DeliveryState.WAITING if error.later else DeliveryState.FAILED
            self._index.deliveries.done(taken, state, str(error))
            self._tell("unsent", f"not sent to {target.name}: {about}: {error}")
        except MaybeSent as error:
            state = DeliveryState.WAITING if target.can_be_asked else DeliveryState.UNKNOWN
            self._index.deliveries.done(taken, state, str(error))
            self._tell("unsent", f"perhaps not sent to {target.name}: {about}: {error}")
        else:
            self._index.deliveries.done(taken, DeliveryState.SENT, answer)
            self._tell("sent", f"sent to {target.name}: {about}{f': {answer}' * bool(answer)}")

    def _notice(self, taken: Sequence[DeliveryInfo]) -> Notice:
        about = [self._content(one) for one in taken[:_NAMED]]
        marks = tuple(f"fxminify {one.id} {one.created}" for one in taken)
        if len(taken) == 1:
            (only,) = about
            title = f"[{only['backend']}] {_TITLES.get(only['what'], only['what'])}: {only['headline']}"[:200]
            return _notice(title, self._text(taken[0], only), marks, {"fxminify": __version__, **only})
        title = f"{len(taken)} bugs of torch.compile backends"
        lines = [f"- bug {one['bug']}, {one['what']}: {_line(one)}" for one in about]
        if len(taken) > _NAMED:
            lines.append(f"- and {len(taken) - _NAMED} more")
        content = {"fxminify": __version__, "what": "digest", "bugs": about, "left_out": len(taken) - len(about)}
        return _notice(title, "\n".join(lines), marks, content)

    def _content(self, one: DeliveryInfo) -> dict[str, Any]:
        """Return the facts about a bug as JSON values."""
        content: dict[str, Any] = {"what": one.what, "bug": one.bug, "text": one.text}
        content["page"] = f"{self._page}/bugs/{one.bug}" if self._page else ""
        try:
            found: BugInfo = self._index.bugs.get(one.bug)
        except StoreError as error:
            return content | {"backend": "", "headline": str(error), "layer": "", "fixed_in": None}
        known = {name: getattr(found, name) for name in ("backend", "kind", "phase", "headline", "comes_from")}
        counts = {"occurrences": found.occurrences, "status": found.status.value, "fixed_in": found.fixed_in}
        return content | known | counts | {"layer": self._layer(one.bug)}

    def _layer(self, bug: int) -> str:
        try:
            capture = self._index.bugs.with_script(bug)
            layer = None if capture is None else gather(self._index, capture).layer
        except StoreError:
            return ""
        return "" if layer is None else layer.layer or ""

    def _text(self, one: DeliveryInfo, content: dict[str, Any]) -> str:
        """A message about one bug, for people: of a verified script the text of an issue."""
        lines = [one.text] if one.what != "verified" else []
        if one.what == "verified":
            try:
                capture = self._index.bugs.with_script(one.bug)
                if capture is not None:
                    lines.append(stored_repro(self._index, capture, "issue")[0])
            except StoreError as error:
                lines.append(f"{one.text}\n\nIts script cannot be shown: {error}")
        if content["layer"]:
            lines.append(f"The failure enters at: {content['layer']}.")
        if content["page"]:
            lines.append(content["page"])
        return "\n\n".join(lines)


def _notice(title: str, text: str, marks: tuple[str, ...], content: dict[str, Any]) -> Notice:
    """A message without what is private; the script in it has passed the door already, and the page is an address."""
    page = content.get("page", "")
    return Notice(shown(title), text, marks, {**shown_json(content), **({"page": page} if page else {})})


def _line(content: dict[str, Any]) -> str:
    head = f"[{content['backend']}] {content['headline']}"
    return f"{head} {content['page']}".rstrip()


def _about(taken: Sequence[DeliveryInfo]) -> str:
    first = taken[0]
    return f"bug {first.bug} ({first.what})" if len(taken) == 1 else f"{len(taken)} bugs in one message"
