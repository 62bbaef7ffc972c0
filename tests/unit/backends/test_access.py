"""What a process gets of this user: variables that the question named, directories in which a needed module lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from fxminify.backends.provenance import access
from fxminify.backends.provenance.access import ALL, Access
from fxminify.backends.provenance.spec import BackendSpec


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Modules in several directories, and directories in which none lies."""
    for name, text in {
        "one/team.py": "import helper\nfrom team_levels import HIGH\n", "two/helper/__init__.py": "import deep.part\n",
        "three/deep/part.py": "", "four/team_levels.py": "", "five/unrelated.py": "", "keys/id_rsa": "",
        ".ssh/team.py": "",
        "six/libteam.so": "", "seven/native.cpython-311-x86_64-linux-gnu.so": "", "eight/empty/notes.txt": "",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_directory_counts_where_a_needed_module_lies_in_it(tree: Path) -> None:
    everywhere = [str(path) for path in sorted(tree.iterdir())]
    found = access.directories(everywhere, ["team.plugin", "native", "empty"], ["libteam.so"])
    assert {Path(place).name: name for place, name in found.items()} == {
        "six": "libteam.so", "one": "team", "two": "helper", "three": "deep", "four": "team_levels", "seven": "native",
    }  # fmt: skip
    assert access.directories(everywhere, ["gone", "..", "id_rsa", ""]) == {}


def test_links_are_resolved_before_it_is_decided(tree: Path) -> None:
    (tree / "innocent").symlink_to(tree / ".ssh")
    (tree / "harmless").symlink_to(tree / "one")
    assert access.directories([str(tree / "innocent")], ["team"]) == {}
    assert list(access.directories([str(tree / "harmless")], ["team"])) == [str(tree / "one")]


def test_what_a_case_and_what_a_script_imports_is_needed(tree: Path) -> None:
    paths = [str(tree / name) for name in ("one", "two", "three", "four", "five", "six", "keys")]
    backend = {"name": "b", "target": "b", "module": "team", "search_path": paths}
    ops = [{"library": "libteam.so", "search_path": paths}, {"source": "x = 1", "imports": ["import unrelated"]}]
    found = access.of_case(backend, ops)
    assert {Path(place).name for place in found} == {"one", "two", "three", "four", "five", "six"}
    assert {Path(place).name for place in access.of_case({**backend, "module": ""}, [])} == set()
    script = "import team_levels\nlibrary = 'libteam.so'\ntorch.ops.load_library(library)\n"
    assert {Path(place).name for place in access.of_script(script, paths)} == {"four", "six"}
    assert access.of_script("def f(:", paths) == {}


def test_variables_are_those_of_the_capture_and_set_settings_of_its_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHINDUCTOR_MAX_AUTOTUNE", "TORCH_HOME", "OPENVINO_THREADS", "AWS_SECRET_ACCESS_KEY", "TEAM_LEVEL"):
        monkeypatch.setenv(name, "1")
    inductor = BackendSpec(name="inductor", variables=("TEAM_LEVEL", "UNSET"), environment={"TORCH_HOME": "2"})
    given = access.variables(inductor)
    assert set(given) >= {"TEAM_LEVEL", "UNSET", "TORCHINDUCTOR_MAX_AUTOTUNE"}
    assert not {"OPENVINO_THREADS", "AWS_SECRET_ACCESS_KEY", "TORCH_HOME"} & set(given)


def test_an_environment_has_what_is_given_and_what_a_process_needs() -> None:
    mine = {
        "PATH": "/bin",
        "HOME": "/root",
        "LC_TIME": "C",
        "PYTHONPATH": "x",
        "AWS_SECRET_ACCESS_KEY": "s",
        "LEVEL": "2",
    }
    assert ALL.environment(mine) == mine
    assert set(mine) - set(Access(("LEVEL",)).environment(mine)) == {"AWS_SECRET_ACCESS_KEY"}
    assert set(mine) - set(Access(()).environment(mine)) == {"AWS_SECRET_ACCESS_KEY", "LEVEL"}
