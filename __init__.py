"""fxminify turns a failure of a ``torch.compile`` backend into a verified, minimal, standalone script.

Importing this package is cheap: nothing here imports torch until one of the functions below is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backends.capture.hook import capture, capturing, install, uninstall
    from .backends.capture.manual import record
    from .backends.shipped.chain import chain
    from .backends.shipped.explain import Explain
    from .minifier.reduce import reduce
    from .minifier.session.minify import minify
    from .minifier.session.options import MinifyOptions
    from .minifier.session.results import MinifyResult, MinifyResults

__version__ = "0.1.0"
__all__ = [
    "Explain", "MinifyOptions", "MinifyResult", "MinifyResults", "__version__", "capture", "capturing", "chain",
    "install", "minify", "record", "reduce", "uninstall",
]  # fmt: skip

_LAZY = {
    "Explain": ".backends.shipped.explain",
    "chain": ".backends.shipped.chain",
    "capture": ".backends.capture.hook",
    "capturing": ".backends.capture.hook",
    "install": ".backends.capture.hook",
    "uninstall": ".backends.capture.hook",
    "record": ".backends.capture.manual",
    "reduce": ".minifier.reduce",
    "minify": ".minifier.session.minify",
    "MinifyOptions": ".minifier.session.options",
    "MinifyResult": ".minifier.session.results",
    "MinifyResults": ".minifier.session.results",
}


def __getattr__(name: str) -> Any:
    """Import the public functions on first use (PEP 562), so that ``import fxminify`` loads no torch."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LAZY[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: Any) -> None:
    """Load the magics. IPython calls this for ``%load_ext fxminify``."""
    from .cli import VERBS
    from .minifier.commands.magics import load

    load(shell, VERBS)


def unload_ipython_extension(shell: Any) -> None:
    """Unload the magics. IPython calls this for ``%unload_ext fxminify``."""
    from .minifier.commands.magics import unload

    unload(shell)
