"""The house keeps its floors: an import that runs upwards fails here, and so does a torch import where none may be."""

import ast
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import fxminify

ROOT = Path(fxminify.__file__).parent
FLOORS = ["store", "backends", "repro_templates", "minifier", "cli"]


def modules() -> list[Path]:
    return [
        path
        for floor in FLOORS
        for path in ([ROOT / f"{floor}.py"] if floor == "cli" else sorted((ROOT / floor).rglob("*.py")))
    ]


def imported_floors(path: Path) -> set[str]:
    """Floors that a module imports, at module level or inside functions."""
    package = ["fxminify", *path.relative_to(ROOT).parts[:-1]]
    out = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{stem}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "fxminify" and len(parts) > 1 and parts[1] in FLOORS:
                out.add(parts[1])
    return out


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down_only(path: Path) -> None:
    floor = path.relative_to(ROOT).parts[0].removesuffix(".py")
    above = FLOORS[FLOORS.index(floor) + 1 :]
    assert not imported_floors(path) & set(above)


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


HELP = """
from click.testing import CliRunner
from fxminify.cli import main
assert CliRunner().invoke(main, '--help').exit_code == 0
"""


@pytest.mark.parametrize(
    "code",
    [
        "import fxminify",
        HELP,
    ],
    ids=["import", "help"],
)
def test_starts_without_torch(code: str) -> None:
    done = python(f"import sys\n{code}\nassert 'torch' not in sys.modules, 'torch was imported'")
    assert done.returncode == 0, done.stderr


def test_help_is_fast() -> None:
    """`minify --help` costs at most 0.3 s of a processor more than an empty interpreter (best of five)."""

    def best(code: str) -> float:
        times = []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert python(code).returncode == 0
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(times)

    command = "import sys; sys.argv = ['minify', '--help']; from fxminify.cli import main; main(standalone_mode=False)"
    assert best(command) - best("pass") < 0.3


def test_no_vague_module_names() -> None:
    assert not [p for p in modules() if p.stem in {"util", "utils", "helper", "helpers", "misc", "common"}]
