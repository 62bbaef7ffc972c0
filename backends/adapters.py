"""Adapters: all that fxminify knows about single backends, found by the entry point group ``fxminify.backends``.

fxminify works with any backend of `torch.compile` without an adapter. An adapter adds what can only be known of one
compiler: which of its words change from run to run, which settings and environment variables change its results, what
a worker can import beforehand, and what a report may show of its work. Modules that hold adapters are imported in the
user's program and in processes without torch, so they import nothing beyond the standard library and fxminify itself.
The adapters that fxminify brings are in `fxminify.backends.shipped.adapters`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from ..store import extensions
from ..store.signature_rules import SignatureRules
from .switches import Switch


@dataclass(frozen=True, slots=True)
class Illustration:
    """Something that a backend made of a case, for a report: an intermediate representation, say.

    ``text`` shows it, ``picture`` is SVG or empty, ``error`` says why the compiler refused it, if it did.
    """

    name: str
    text: str
    picture: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class CompilerCache:
    """A directory in which a compiler keeps what it compiled, named by an environment variable.

    ``default`` is the user's directory if the ``variable`` is not set, empty if the compiler has no default. In it
    ``{tmp}`` is the directory for temporary files, ``{user}`` the name of the user, ``~`` the home. ``takes`` are
    patterns, relative to the directory, of files that another process can use as they are:
    `fxminify.backends.running.compiler_caches` takes them over and keeps them.
    """

    variable: str
    default: str = ""
    takes: tuple[str, ...] = ()


class BackendAdapter:
    """The additions of one backend, or a family of backends. Each default adds nothing: a subclass sets its own.

    The instance is registered: ``my_compiler = "my_package.adapter:adapter"`` under ``fxminify.backends``.
    """

    #: Names under which `torch.compile` knows the backends that this adapter is about.
    backends: tuple[str, ...] = ()
    #: Rules for the signatures of failures.
    signature = SignatureRules()

    #: Modules of settings, made with ``torch.utils._config_module.install_config_module``. A capture records each
    #: setting that the program changed, and workers and scripts set it again.
    config_modules: tuple[str, ...] = ()
    #: The groups of settings in these modules that a capture records, too: classes there (``acme.config.tiling``).
    config_groups: tuple[str, ...] = ()
    #: Names of environment variables that the backend reads. A name that ends with ``*`` stands for all that begin so.
    environment_variables: tuple[str, ...] = ()

    #: Modules whose import belongs to a first compilation. The zygote imports them once, for all of its workers.
    preload: tuple[str, ...] = ()
    #: Environment variables for processes in which candidates are compiled, set before anything is imported: they turn
    #: off threads, pools of processes, and caches that would answer for the compiler.
    worker_environment: Mapping[str, str] = {}
    #: Beginnings of the names of environment variables that the compiler sets for itself when it first compiles.
    sets_variables: tuple[str, ...] = ()

    #: Directories in which the compiler keeps what it compiled. Workers and runs of scripts get others.
    caches: tuple[CompilerCache, ...] = ()

    #: Names of backends that an ablation does not try: they need a device, print, or call other backends.
    not_tried: tuple[str, ...] = ()

    #: The modes of `torch.compile` that the backend knows: `minify explain` tries the failure under each.
    modes: tuple[str, ...] = ()
    #: Parts of the compiler that can be turned off, the smallest effect first: `minify explain` tries them.
    switches: tuple[Switch, ...] = ()
    #: What the compiler applies one by one and `limited` can count, such as passes: a name, and one of them in words.
    subsystems: Mapping[str, str] = {}

    #: Labels of PyTorch's tracker for each failure of the backend; the last one is the owner of its tests there.
    tracker_labels: tuple[str, ...] = ()

    #: Names of backends that fail on purpose, for tests. A chain does not capture their failures.
    fails_on_purpose: tuple[str, ...] = ()

    #: Whether the compiler is given graphs of AOTAutograd, whatever operators the program calls.
    lowers_with_aot_autograd: bool = False
    #: Directories of the compiler's source, relative to site-packages, that only a compilation passes through.
    source_directories: tuple[str, ...] = ()
    #: For names of backends whose package may be missing: a module that is there if it is not, and how to install it.
    needs: Mapping[str, tuple[str, str]] = {}
    #: Types of exceptions with which the compiler says that a tool is missing, such as a C++ compiler.
    missing_tools: tuple[str, ...] = ()

    #: The heading of `illustrations` in a report, and a module that a worker has imported once there may be some for
    #: another backend.
    illustration_heading: str = ""
    illustration_module: str = ""

    def warm(self) -> None:
        """Find out, once per process, what the first compilation would find out about the machine.

        It is called in the zygote after the imports, and in workers. It may run programs, but must not compile in
        this process, start threads that stay, or raise. It must cost nothing where the backend was not imported.
        """

    def wrapper(
        self, options: Mapping[str, Any] | None, mode: str | None, dynamic: bool | None
    ) -> Callable[[Any, Any], Any] | None:
        """The callable that `torch.compile` makes of the backend's name, where it makes a special one."""
        return None

    def unwrap(self, obj: Any) -> tuple[Mapping[str, Any] | None, str | None, bool | None] | None:
        """The options, mode and dynamic of a callable that `wrapper` describes, None for any other object."""
        return None

    def packager(self, options: Mapping[str, Any]) -> tuple[Callable[..., Any], Mapping[str, Any]] | None:
        """Return the backend that compiles a graph ahead of time as the compiler's own function does with ``options``,
        and the options of that backend. None if the compiler has no such function."""
        return None

    def checks(self) -> Iterator[tuple[str, bool, str]]:
        """Rows for `minify doctor`: what is checked, whether it is in order, what was found or is to be done."""
        return iter(())

    def illustrations(self) -> AbstractContextManager[Callable[[], list[Illustration]]]:
        """Collect what the backend makes inside the block. What is entered gives it, in the order it was made."""
        return nullcontext(list)

    def fallbacks(self) -> AbstractContextManager[Callable[[], list[str]]]:
        """Collect what the backend leaves to eager inside the block: a line for each operation, with the reason."""
        return nullcontext(list)

    def limited(self, subsystem: str, most: int) -> AbstractContextManager[list[str]]:
        """Let the compiler do the first ``most`` applications of ``subsystem``. What is entered lists all by name."""
        return nullcontext([])

    def limit_variables(self, subsystem: str, most: int) -> Mapping[str, str]:
        """Return the environment variables that have the effect of `limited` in a process of its own."""
        return {}


def adapters() -> dict[str, BackendAdapter]:
    """Every installed adapter by the name of its entry point."""
    found = extensions.load(extensions.BACKENDS)
    return {name: adapter for name, adapter in found.items() if isinstance(adapter, BackendAdapter)}


def broken() -> dict[str, str]:
    """Entry points of adapters that cannot be used, by name, with the reason."""
    reasons = {e.name: e.problem or _fault(e.object) for e in extensions.installed(extensions.BACKENDS)}
    return {name: reason for name, reason in reasons.items() if reason}


def _fault(adapter: object) -> str:
    return "" if isinstance(adapter, BackendAdapter) else f"it is a {type(adapter).__name__}, not a BackendAdapter"


def fails_on_purpose(backend: object) -> bool:
    """Whether the backend that is registered as ``backend`` fails on purpose."""
    return any(backend in adapter.fails_on_purpose for adapter in adapters().values())


def adapter_of(backend: object) -> BackendAdapter:
    """Return the adapter of the backend that is registered as ``backend``, or an adapter that adds nothing."""
    return next((a for a in adapters().values() if backend in a.backends), _NONE)


_NONE = BackendAdapter()
