"""The installation that a failure may depend on: torch, the packages that a backend needs, and the system.

The description does not name the machine or its user: it has no path, no host name, no value of the environment. It
has the address of a package that was installed from version control. `describe` runs in a worker that has imported the
backend.
"""

from __future__ import annotations

import ast
import json
import platform
import re
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from ...store import codec
from . import syntax
from .modules import distributions, tree_of

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[A-Za-z0-9!+._-]{1,60}")
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._-]+)")
#: The most modules of a package whose imports are read.
_MOST_MODULES = 300
_ADDRESS = re.compile(r"(?:git|hg|svn|bzr)\+https?://[A-Za-z0-9.-]+(?::\d+)?/[\w./~+-]+@[\w.-]+")


@dataclass(frozen=True, slots=True)
class Package:
    """An installed distribution. ``source`` is the argument for pip to install it again, empty if it was installed from
    a directory, or from a ``file``: a wheel or an archive.

    ``direct`` says that no other package of the list requires it.
    """

    name: str
    version: str
    source: str = ""
    direct: bool = True
    file: bool = False


@dataclass(frozen=True, slots=True)
class Installed:
    """Versions. ``packages`` leaves out torch and what it requires. ``local`` has modules that no package provides
    (``mine``, ``mine 0.3``), ``system`` lines of `torch.utils.collect_env` as ``(label, value)``."""

    torch: str = ""
    python: str = ""
    platform: str = ""
    packages: tuple[Package, ...] = ()
    local: tuple[str, ...] = ()
    system: tuple[tuple[str, str], ...] = ()

    @classmethod
    def load(cls, doc: Any) -> Installed:
        """Inverse of `store.codec.dump`, without malformed packages. Raises `ValueError` if ``doc`` is not valid."""
        found = codec.load(doc, cls)
        return replace(found, packages=tuple(p for p in found.packages if _is_plausible(p)))


def describe(modules: Iterable[str], files: Iterable[str] = ()) -> Installed:
    """Describe the installation of this process.

    It consists of the packages that ``modules``, which this process has loaded, need, of the packages that loaded parts
    of torch need although torch does not require them, and of the packages of ``files``, relative to site-packages, in
    which the failure arose. A package that is only imported in a ``try`` that continues without it is not needed.
    """
    import torch

    owners = distributions()
    modules = list(modules)
    raised = {file.partition("/")[0].removesuffix(".py") for file in files}
    wanted = _needed({name.partition(".")[0] for name in modules}, modules, owners)
    wanted |= {top for top in raised if top in owners}
    own = {_normal("fxminify")} if any(name.partition(".")[0] == "fxminify" for name in modules) else set()
    by_torch = _closure(["torch"])
    wanted |= _of_loaded_torch(owners, by_torch)
    known = (by_torch | _closure(["fxminify"])) - own
    packages = {}
    for top in sorted(wanted):
        for owner in owners.get(top, ()):
            if not _is_vendored(owner) and _normal(owner) not in known:
                packages[_normal(owner)] = _package(owner)
    for name in packages:
        brought = set().union(*(_closure([other]) for other in packages if other != name))
        packages[name] = replace(packages[name], direct=name not in brought)
    return Installed(
        str(torch.__version__),
        platform.python_version(),
        f"{platform.system()} {platform.machine()}",
        tuple(packages[name] for name in sorted(packages)),
        tuple(_local(name) for name in sorted(wanted) if name not in owners and name not in sys.stdlib_module_names),
        tuple(_system()),
    )


def _needed(tops: set[str], modules: Sequence[str], owners: Mapping[str, list[str]]) -> set[str]:
    """``tops``, and the packages and local modules that these import, from one to the next, and cannot do without.

    A package that says what it requires is not read, nor one from an index, which has said it by requiring nothing. Of
    fxminify only the ``modules`` are, which a failure may have kept from being imported to their end.
    """
    found: set[str] = set()
    waiting = sorted(tops)
    while waiting:
        if (top := waiting.pop()) in found or top in {*sys.stdlib_module_names, "torch"}:
            continue
        found.add(top)
        if top != "fxminify" and any(map(_says_what_it_requires, owners.get(top, ()))):
            continue
        for name in _loaded(top, modules):
            if (tree := tree_of(name)) is not None:
                imported = {module.partition(".")[0] for module in syntax.required_modules(tree)}
                waiting += [new for new in sorted(imported) if new in owners or new in sys.modules]
    return found


def _loaded(top: str, modules: Sequence[str]) -> list[str]:
    """The modules of the package ``top`` whose imports count: all that are loaded, of fxminify those beside
    ``modules``."""
    if top != "fxminify":
        return [name for name in sys.modules if name.partition(".")[0] == top][:_MOST_MODULES] or [top]
    own = tuple(f"{name}." for name in modules if name.startswith("fxminify."))
    return [name for name in sys.modules if f"{name}.".startswith(own)]


def _of_loaded_torch(owners: Mapping[str, list[str]], by_torch: Container[str]) -> set[str]:
    """The packages that loaded modules of torch import outside of functions and cannot do without, although torch does
    not require them: `torch.onnx` needs onnxscript."""
    found: set[str] = set()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "torch" or not isinstance(module, ModuleType):
            continue
        held = {
            value.__name__.partition(".")[0] for value in vars(module).values() if issubclass(type(value), ModuleType)
        }
        foreign = {top for top in held - found if any(_normal(owner) not in by_torch for owner in owners.get(top, ()))}
        if foreign and (tree := tree_of(name)) is not None:
            outside = ast.Module([node for node in tree.body if not isinstance(node, syntax.DEFINITIONS)], [])
            found |= foreign & {required.partition(".")[0] for required in syntax.required_modules(outside)}
    return found


def _says_what_it_requires(owner: str) -> bool:
    """Whether the metadata of the distribution ``owner`` can be believed: it lists packages, or is from an index."""
    try:
        found = metadata.distribution(owner)
    except metadata.PackageNotFoundError:
        return False
    return bool(found.requires) or found.read_text("direct_url.json") is None


def _is_vendored(name: str) -> bool:
    """Whether the distribution ``name`` is a copy inside of another package, as setuptools has some."""
    return "_vendor" in Path(str(metadata.distribution(name).locate_file(""))).parts


def _is_plausible(package: Package) -> bool:
    source = not package.source or _ADDRESS.fullmatch(package.source) or package.source == _pinned(package)
    return bool(_NAME.fullmatch(package.name) and _VERSION.fullmatch(package.version) and source)


def _pinned(package: Package) -> str:
    return f"{package.name}=={package.version}"


def _package(name: str) -> Package:
    """The installed distribution, with its source according to its metadata (PEP 610)."""
    found = metadata.distribution(name)
    package = Package(found.metadata["Name"], found.version)
    text = found.read_text("direct_url.json")
    try:
        origin = json.loads(text) if text else None
    except ValueError:
        origin = {}
    if origin is None:
        return Package(package.name, package.version, _pinned(package))
    control = origin.get("vcs_info")
    if not isinstance(control, dict):
        return replace(package, file="dir_info" not in origin)
    address = re.sub(r"(?<=//)[^/@]*@", "", str(origin.get("url", "")))  # no user, no token
    source = f"{control.get('vcs', '')}+{address}@{control.get('commit_id', '')}"
    return Package(package.name, package.version, source if _ADDRESS.fullmatch(source) else "")


def _local(name: str) -> str:
    version = getattr(sys.modules.get(name), "__version__", "")
    return f"{name} {version}" if isinstance(version, str) and _VERSION.fullmatch(version) else name


def _closure(names: Iterable[str]) -> set[str]:
    """Normal names of distributions and of all that they require, without extras."""
    found: set[str] = set()
    waiting = [_normal(name) for name in names]
    while waiting:
        if (name := waiting.pop()) in found:
            continue
        found.add(name)
        try:
            required = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        waiting += [_normal(m[1]) for r in required if "extra ==" not in r and (m := _REQUIREMENT.match(r))]
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _system() -> Iterable[tuple[str, str]]:
    """Lines of `torch.utils.collect_env`, without packages, which take seconds, and without what may contain paths."""
    import torch
    from torch.utils import collect_env as env

    def told(label: str, ask: str, *arguments: Any) -> tuple[str, str]:
        try:
            return label, str(getattr(env, ask)(*arguments) or "N/A")
        except Exception as error:  # noqa: BLE001  the tool of the system failed
            return label, f"not known ({type(error).__name__})"

    yield "PyTorch version", str(torch.__version__)
    yield "Is debug build", str(torch.version.debug)
    yield "CUDA used to build PyTorch", str(torch.version.cuda or "N/A")
    yield "ROCM used to build PyTorch", str(torch.version.hip or "N/A")
    yield told("OS", "get_os", env.run)
    yield told("GCC version", "get_gcc_version", env.run)
    yield told("Clang version", "get_clang_version", env.run)
    yield told("CMake version", "get_cmake_version", env.run)
    yield told("Libc version", "get_libc_version")
    yield "Python version", " ".join(sys.version.split())
    available = torch.cuda.is_available()
    yield "Is CUDA available", str(available)
    if available:
        yield told("GPU models", "get_gpu_info", env.run)
        yield told("Nvidia driver version", "get_nvidia_driver_version", env.run)
        yield "cuDNN version", str(torch.backends.cudnn.version())
    yield "CPU capability", str(torch.backends.cpu.get_cpu_capability())
    model = re.search(r"Model name:\s*(.+)", told("", "get_cpu_info", env.run)[1])
    yield "CPU", model[1].strip() if model else platform.processor() or platform.machine()
