"""``chain("openvino", "inductor", "eager")``: try one backend after the other, and hide no failure.

Each backend gets a copy of the graph and the state of Dynamo's tracing as if it came first. One that raises, while
compiling or at a call, or after which Dynamo cannot build guards, is captured like any other failure (into the index
that `fxminify.install` names, or into ``db``), a warning says what happened, and the next one takes over: from then on,
for this graph. What Dynamo asks of a backend, graph breaks and another analysis, goes through. A failing backward pass
cannot be taken over, its forward results are in use: it is captured and raised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..capture import hook, seam
from ..provenance.origin import shown
from ..running.execution import private, version_of
from ..running.tracing_state import TracingState
from .options_reader import InvalidOption, read

NAME = "fxminify_chain"
Backend = str | Callable[..., Any]
log = logging.getLogger("fxminify")


@dataclass(frozen=True)
class Chain:
    """A backend that tries ``backends`` in their order; captures go into ``db`` unless the program names another."""

    backends: tuple[Backend, ...]
    db: str = "repro.db"

    def __post_init__(self) -> None:
        if not self.backends or isinstance(self.backends, str):
            raise InvalidOption(f"{NAME} needs the names of backends to try, such as ('inductor', 'eager')")

    @property
    def __name__(self) -> str:
        return " > ".join(shown(b) for b in self.backends)

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any) -> Callable[..., Any]:
        """Compile ``gm`` with the first backend that can; ``kwargs`` (``options``, ``mode``) go to the first one only.

        Raises what the last backend raises, with a note for each one before it.
        """
        return _Attempts(self, gm, example_inputs, kwargs).callable()


def chain(*backends: Backend, db: str = "repro.db") -> Chain:
    """A backend for `torch.compile` that tries ``backends``, names or callables, in their order.

    The failure of each is captured into ``db``, or where `fxminify.install` said. What the last one raises is raised,
    with a note for each before it. Raises `InvalidOption` without a backend.
    """
    return Chain(backends, db)


@dataclass(frozen=True, slots=True)
class ChainOptions:
    """``backends``: names to try, in order; ``db``: where failures are captured."""

    backends: tuple[Backend, ...] = ("inductor", "eager")
    db: str = "repro.db"


def registered(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """`chain` by name: ``torch.compile(f, backend="fxminify_chain", options={"backends": ["openvino", "eager"]})``.

    ``options`` are the fields of `ChainOptions`. Raises `InvalidOption` for others.
    """
    asked = read(ChainOptions, options, NAME)
    if isinstance(asked.backends, str):
        raise InvalidOption(f"the option 'backends' of {NAME} is a list of names, not {asked.backends!r}")
    return Chain(tuple(asked.backends), asked.db)(gm, example_inputs)


class _Attempts:
    """A graph on its way down the chain."""

    def __init__(
        self, chain: Chain, gm: torch.fx.GraphModule, example_inputs: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        self.pending = list(chain.backends)
        self.db = chain.db
        self.gm = private(gm)
        self.inputs = example_inputs
        self.kwargs = kwargs
        self.failures: list[tuple[str, Exception]] = []
        self.untouched = TracingState()
        self.current: Callable[..., Any] = self.next()

    def next(self) -> Callable[..., Any]:
        """Return the compiled graph of the next backend that can compile it."""
        while True:
            self.trying = self.pending.pop(0)
            kwargs, self.kwargs = self.kwargs, {}
            try:
                return hook.observed(
                    self.trying, private(self.gm), self.inputs, kwargs, db=self.db, without_guards=self.without_guards
                )
            except Exception as exc:
                if seam.is_control_flow(exc):
                    raise
                self.failed(self.trying, exc)
                self.untouched.restore()

    def failed(self, backend: Backend, exc: Exception) -> None:
        """Log that ``backend`` raised ``exc``. Raise it if no backend is left."""
        self.failures.append((shown(backend), exc))
        if not self.pending:
            for name, earlier in self.failures[:-1]:
                exc.add_note(f"{name}, tried before: {type(earlier).__name__}: {_first_line(earlier)}")
            raise exc
        log.warning(
            "fxminify: backend %s failed (%s: %s); trying %s",
            shown(backend), type(exc).__name__, _first_line(exc), shown(self.pending[0]),
        )  # fmt: skip

    def without_guards(self, exc: Exception) -> bool:
        """Whether the next backend has compiled the graph, after one for which Dynamo cannot build guards (``exc``)."""
        if not self.pending:
            return False
        self.failed(self.trying, exc)
        self.untouched.restore()
        self.current = self.next()
        return True

    def callable(self) -> Callable[..., Any]:
        """Return a callable for Dynamo: the present backend's callable, and at its first failure the rest of the
        chain.
        """

        def run(*args: Any) -> Any:
            before = [version_of(a) for a in args] if self.pending else None
            try:
                return self.current(*args)
            except Exception as exc:
                if before is None or seam.is_control_flow(exc):
                    raise
                if before != [version_of(a) for a in args]:
                    exc.add_note(f"{shown(self.pending[0])} was not tried: the inputs are overwritten already")
                    raise
                self.take_over(exc)
            return self.current(*args)

        return run

    def take_over(self, exc: Exception) -> None:
        """The rest of the chain from now on: compiled by `torch.compile`, outside of the compilation that made us."""
        self.failed(self.trying, exc)
        rest, self.pending = Chain(tuple(self.pending), self.db), []
        symbolic = any(isinstance(value, torch.SymInt | torch.SymFloat) for value in self.inputs)
        self.current = torch.compile(self.gm, backend=rest, dynamic=symbolic or None)


def _first_line(exc: Exception) -> str:
    return (str(exc).strip() or "no message").splitlines()[0]
