"""Adapters: what single compilers add, brought by an installed package, and that the core knows no compiler by name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fxminify.backends.adapters import BackendAdapter, adapter_of, adapters
from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.signature import signature

ROOT = Path(__file__).parents[3]

ADAPTER = """
from fxminify.backends.adapters import BackendAdapter
from fxminify.store.signature_rules import SignatureRules

class Acme(BackendAdapter):
    backends = ("acme",)
    signature = SignatureRules(
        masks=((r"\\bacme_kernel_\\w+", "<kernel>"),), numbered=("slot",), noise=(r"^acme info:",),
        generic=(r"^compilation failed$",),
    )
    config_modules = ("acme.config",)
    worker_environment = {"ACME_THREADS": "1"}
    needs = {"acme": ("acme_runtime", "pip install acme-runtime")}

    def checks(self):
        yield "acme", True, "found"

adapter = Acme()
"""

PROGRAM = """
import json, sys
from fxminify.backends.adapters import adapter_of, adapters, broken
from fxminify.minifier.sandbox.prepare import worker_environment
from fxminify.store.document import context
from fxminify.store.failure import Failure, FailureKind, Phase
from fxminify.store.masking import mask
from fxminify.store.signature import signature

failure = Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", "compilation failed",
                  diagnostics="acme info: an error is near\\ncannot lower slot3\\nmore")
context.check({"config": {"acme.config": {"level": 2}}})
print(json.dumps({
    "broken": broken(), "adapters": list(adapters()),
    "masked": mask("acme_kernel_ab12: slot7"), "torch": "torch" in sys.modules,
    "diagnosis": signature(failure).diagnostics, "threads": worker_environment()["ACME_THREADS"],
    "needs": adapter_of("acme").needs["acme"][1], "checks": list(adapter_of("acme").checks()),
}))
"""


@pytest.fixture
def acme(tmp_path: Path) -> dict[str, Any]:
    """What a process says that has a package with an adapter installed, and one whose adapter does not import."""
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "__init__.py").write_text(ADAPTER)
    about = tmp_path / "acme-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    entries = "[fxminify.backends]\nacme = acme:adapter\nbroken = acme.nowhere:adapter\ntext = acme:__name__\n"
    (about / "entry_points.txt").write_text(entries)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    return {"warned": done.stderr, **json.loads(done.stdout)}


@pytest.mark.process
def test_a_package_adds_an_adapter_and_a_broken_one_is_only_reported(acme: dict[str, Any]) -> None:
    assert acme["adapters"] == sorted(["acme", *adapters()])
    assert acme["broken"] == {
        "broken": "acme.nowhere:adapter does not load: ModuleNotFoundError: No module named 'acme.nowhere'",
        "text": "it is a str, not a BackendAdapter",
    }
    assert acme["masked"] == "<kernel>: slot"
    assert acme["diagnosis"] == "cannot lower slot"
    assert (acme["threads"], acme["needs"]) == ("1", "pip install acme-runtime")
    assert acme["checks"] == [["acme", True, "found"]]
    assert "the extension broken of fxminify.backends cannot be loaded" in acme["warned"]
    assert not acme["torch"]


def test_a_backend_without_an_adapter_has_one_that_adds_nothing() -> None:
    assert type(adapter_of("eager")) is BackendAdapter
    assert type(adapter_of(print)) is BackendAdapter


def test_one_message_for_every_bug_is_told_apart_by_the_diagnosis_alone() -> None:
    def failed(diagnostics: str, message: str = "JIT compilation failed. See diagnostics.") -> Failure:
        return Failure(FailureKind.COMPILE_ERROR, Phase.COMPILE, "RuntimeError", message, diagnostics=diagnostics)

    assert signature(failed("unknown op 'torch.aten.foo'")).diagnostics == "unknown op 'torch.aten.foo'"
    assert signature(failed("unknown op 'torch.aten.foo'", "cannot lower relu")).diagnostics == ""


def test_the_core_knows_no_compiler_by_name() -> None:
    """Names of torch's operator libraries, of its modules, and comments about examples are no such knowledge.

    The seam patches an entrance of torch that leads to one compiler.
    """
    name = re.compile(
        r"(?i)[\"'/._](inductor|openvino|iree|turbine_cpu|onnxruntime|halide|cudagraphs|openxla|tvm|fxminify_ort)\b"
    )
    allowed = {
        "backends/provenance/libraries.py", "store/live/names_generate.py", "backends/capture/foreign_run.py",
        "backends/capture/seam.py",
    }  # fmt: skip
    found = []
    for floor in ("store", "backends", "repro_templates", "minifier", "service"):
        for path in sorted((ROOT / floor).rglob("*.py")):
            where = path.relative_to(ROOT).as_posix()
            if where.startswith("backends/shipped/") or where in allowed:
                continue
            found += [f"{where}: {line.strip()}" for line in path.read_text().splitlines() if name.search(line)]
    assert found == []
