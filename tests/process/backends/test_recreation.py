"""A backend given in every way there is comes back in a fresh process, from its source alone and from its JSON."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import pytest
from real_failures import skip_if_gone
from recreation import PROGRAMS, run_python

pytestmark = pytest.mark.slow

LIB = PROGRAMS / "lib"


class Recreated(Protocol):
    """``recreated(program, *path)``: every backend of ``program``, its spec, and what came of re-creating it."""

    def __call__(self, program: str, *path: Path) -> dict[str, Any]: ...


@pytest.fixture(scope="module")
def recreated(tmp_path_factory: pytest.TempPathFactory) -> Recreated:
    """Each program runs once."""

    @cache
    def get(program: str, *path: Path) -> dict[str, Any]:
        empty = tmp_path_factory.mktemp("empty")
        recorded = json.loads(run_python(PROGRAMS / "app" / program, cwd=empty, path=(PROGRAMS, *path)))
        file = tmp_path_factory.mktemp("cases") / "cases.json"
        file.write_text(json.dumps({n: c for n, c in recorded.items() if not c["problem"]}))
        again = json.loads(run_python(PROGRAMS / "recorder.py", "backends", file, *path, cwd=empty))
        return {name: {**case, **again.get(name, {})} for name, case in recorded.items()}

    return get


#: name in programs/app/library_user.py: (import lines, arguments of torch.compile)
PRINTED = {
    "registered": (
        ['import team.plugin  # registers the backend "team_plain"'],
        'backend="team_plain", options={"fuse": True, "names": ["a"]}, dynamic=True',
    ),
    "registered_object": (
        ['import team.plugin  # registers the backend "team_plain"'],
        'backend="team_plain", dynamic=False',
    ),
    "indirect": (
        ['import team.registers  # registers the backend "team_indirect"'],
        'backend="team_indirect", mode="reduce-overhead"',
    ),
    "instance_by_name": (
        ['import team.registers  # registers the backend "team_instance"'],
        'backend="team_instance"',
    ),
    "late": (["from team.impl import decorated"], "backend=decorated"),
    "inductor": ([], 'backend="inductor", options={"max_autotune": False, "epilogue_fusion": True}, dynamic=True'),
    "inductor_mode": ([], 'backend="inductor", mode="max-autotune-no-cudagraphs"'),
    "eager": ([], 'backend="eager"'),
    "aot_eager": ([], 'backend="aot_eager"'),
    "entry": ([], 'backend="team_entry"'),
    "entry_or_module": ([], 'backend="team_either"'),
    "both": (['import team.both  # registers the backend "team_both"'], 'backend="team_both"'),
    "function": (
        ["from team.impl import with_option", "from team.impl import tuned", "import torch"],
        'backend=with_option, options={"tune": tuned, "dtype": torch.float16, "limit": float("inf")}',
    ),
    "decorated": (["from team.impl import decorated"], "backend=decorated"),
    "closure_global": (["from team.impl import made"], "backend=made"),
    "closure": (["from team.impl import make"], "backend=make(6)"),
    "shared": (['import team.registers  # registers the backend "team_instance"'], 'backend="team_instance"'),
    "stateless": (["from team.objects import Stateless"], "backend=Stateless()"),
    "dataclass": (["from team.objects import Settings"], 'backend=Settings(level=3, names=("a", "b"))'),
    "class": (["from team.objects import AsClass"], "backend=AsClass"),
    "method": (["from team.objects import shared"], "backend=shared.method"),
    "method_of_anonymous": (["from team.objects import Stateless"], "backend=Stateless().__call__"),
    "partial": (["from team.objects import part"], "backend=part"),
    "partial_anonymous": (
        ["from functools import partial", "from team.impl import decorated"],
        "backend=partial(decorated, flag=(1, 2.5))",
    ),
    "partial_dtype": (
        ["from functools import partial", "from team.impl import compile_graph", "import torch"],
        "backend=partial(compile_graph, level=2, dtype=torch.bfloat16)",
    ),
    "aot": (["from team.objects import aot"], "backend=aot"),
    "aot_anonymous": (
        [
            "from torch._dynamo.backends.common import aot_autograd",
            "from team.objects import forward_compiler",
            "from team.objects import backward_compiler",
        ],
        "backend=backend",
    ),
    "aot_decompositions": (
        [
            "from torch._dynamo.backends.common import aot_autograd",
            "from team.objects import forward_compiler",
            "from torch._decomp import get_decompositions",
            "import torch",
        ],
        "backend=backend",
    ),
}


@pytest.mark.parametrize("name", PRINTED)
def test_source_is_what_a_person_would_write(recreated: Recreated, name: str) -> None:
    case = recreated("library_user.py", LIB)[name]
    assert (case["imports"], case["arguments"]) == PRINTED[name]


@pytest.mark.parametrize("name", PRINTED)
def test_backend_comes_back(recreated: Recreated, name: str) -> None:
    case = recreated("library_user.py", LIB)[name]
    assert case["here"].endswith("[2.0, 2.0, 2.0]\n")
    assert case["source"] == case["here"]
    assert case["callable"] == case["here"]
    assert case["compile"] == case["here"]


@pytest.mark.parametrize("name", [*PRINTED, "ts", "openxla"])
def test_what_dynamo_holds_gives_the_same_spec(recreated: Recreated, name: str) -> None:
    case = recreated("library_user.py", LIB)[name]
    assert case["unwrapped_spec"] == case["spec"]


@pytest.mark.parametrize(("name", "error"), [("ts", "cannot be used as a value"), ("openxla", "torch_xla")])
def test_backend_that_fails_fails_alike(recreated: Recreated, name: str, error: str) -> None:
    if name == "ts":
        skip_if_gone("026_ts_any_graph")
    case = recreated("library_user.py", LIB)[name]
    assert all(error in case[way] for way in ("here", "source", "callable", "compile"))


def test_backends_needing_no_path_have_none(recreated: Recreated) -> None:
    cases = recreated("library_user.py", LIB)
    assert "search_path" not in cases["inductor"]["spec"]
    assert cases["registered"]["spec"]["search_path"] == [str(LIB)]


def test_no_path_is_printed(recreated: Recreated) -> None:
    cases = [*recreated("library_user.py", LIB).values(), *recreated("train.py").values()]
    scripts = [c["script"] for c in cases if not c["problem"]]
    assert not [s for s in scripts if str(LIB.parent) in s]
    assert all(s.isascii() for s in scripts)


def test_executes_names_imports_entry_points_and_carried_source(recreated: Recreated) -> None:
    library, script = recreated("library_user.py", LIB), recreated("train.py")
    assert library["registered"]["executes"] == [
        f"puts {LIB} in front of sys.path",
        "imports team.plugin",
        'calls the backend team_plain: torch.compile(backend="team_plain", '
        'options={"fuse": True, "names": ["a"]}, dynamic=True)',
    ]
    assert library["entry"]["executes"][1:] == [
        "imports team.entry",
        "loads the entry point team.entry:compile_entry of team",
        'calls the backend team_entry: torch.compile(backend="team_entry")',
    ]
    first, *source, last = script["decorated"]["executes"]
    assert first == "runs 7 lines from train.py that define the backend:"
    assert len(source) == 7
    assert all(line.startswith("| ") for line in source)
    assert last == "calls the backend decorated: torch.compile(backend=decorated)"


LIB = Path(__file__).parents[2] / "programs" / "backends" / "lib"


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("registered", "registered"),
        ("late", "attribute"),
        ("entry", "entry_point"),
        ("entry_or_module", "entry_point"),
        ("both", "registered"),
        ("function", "attribute"),
        ("closure", "factory"),
        ("stateless", "instance"),
        ("instance", "instance"),
        ("method", "method"),
        ("partial", "attribute"),
        ("partial_dtype", "partial"),
        ("aot", "attribute"),
        ("aot_anonymous", "aot_autograd"),
    ],
)
def test_how_a_backend_is_had_back(recreated: Recreated, name: str, how: str) -> None:
    assert recreated("library_user.py", LIB)[name]["spec"]["how"] == how


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("unknown", "no backend is registered as 'no_such_backend'"),
        ("option_unwritable", "the option 'stream' cannot be written down"),
    ],
)
def test_what_cannot_be_had_back_says_why(recreated: Recreated, name: str, reason: str) -> None:
    assert reason in recreated("library_user.py", LIB)[name]["problem"]


EMBEDDED = [
    "function", "registered", "registered_object", "decorated", "instance", "dataclass", "named_lambda", "lambda",
    "closure", "partial", "class_from_script", "aot", "aot_global",
]  # fmt: skip


@pytest.mark.parametrize("name", EMBEDDED)
def test_backend_of_the_script_comes_back(recreated: Recreated, name: str) -> None:
    case = recreated("train.py")[name]
    assert case["here"].endswith("[2.0, 2.0, 2.0]\n")
    assert case["source"] == case["here"]
    assert case["callable"] == case["here"]
    assert case["compile"] == case["here"]
    assert case["unwrapped_spec"] == case["spec"]


def test_a_registered_backend_of_the_script_keeps_its_name(recreated: Recreated) -> None:
    case = recreated("train.py")["registered"]
    assert case["imports"] == ["from torch._dynamo import register_backend"]
    assert case["arguments"] == 'backend="in_script", mode="max-autotune"'


def test_what_the_script_guards_can_be_imported(recreated: Recreated) -> None:
    case = recreated("train.py")["unwritable_global"]
    assert case["imports"] == ["from train import unwritable"]
    assert case["callable"] == case["compile"] == case["here"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("unwritable_cell", "the closure cell 'extra' of make.<locals>.inner, a Handle, cannot be written down"),
    ],
)
def test_the_reason_of_a_refusal_names_the_culprit(recreated: Recreated, name: str, reason: str) -> None:
    assert reason in recreated("train.py")[name]["problem"]
