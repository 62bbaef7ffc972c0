"""The optional packages of this backend, and the line that installs them."""

from __future__ import annotations

from importlib.util import find_spec

PACKAGES = ("onnx", "onnx_ir", "onnxscript", "onnxruntime")


class MissingPackage(ImportError):
    """An optional package is not installed; the message has the pip line."""


def missing() -> list[str]:
    """Names of the packages that are not installed, as pip spells them."""
    return [name.replace("_", "-") for name in PACKAGES if find_spec(name) is None]


def require() -> None:
    """Raise `MissingPackage` unless everything is installed."""
    if names := missing():
        raise MissingPackage(
            f"the backend fxminify_ort needs {', '.join(names)}: pip install 'fxminify[onnxrt]' "
            f"(or: pip install {' '.join(names)})"
        )
