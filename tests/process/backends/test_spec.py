"""A backend given in every way there is comes back in a fresh process, from its source alone and from its JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recreation import Recreated

from fxminify.backends.provenance.embedded_source import EmbeddedSource
from fxminify.backends.provenance.spec import BackendSpec, CannotLoad

LIB = Path(__file__).parents[2] / "programs" / "backends" / "lib"

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
    "closure": ([], "backend=inner"),
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
    assert library["registered"]["executes"] == ["imports team.plugin", "calls the backend team_plain"]
    assert library["entry"]["executes"] == [
        "imports team.entry",
        "loads the entry point team.entry:compile_entry of team",
        "calls the backend team_entry",
    ]
    assert script["decorated"]["executes"] == [
        "runs 7 lines of source embedded from train.py",
        "calls the backend decorated",
    ]


def test_json_round_trip_keeps_everything() -> None:
    spec = BackendSpec(
        name="b",
        how="source",
        target={"embedded": "b"},
        options={"dict": [["level", 2], ["dtype", {"import": ["torch", "float32"]}]]},
        dynamic=False,
        source=EmbeddedSource(("import torch",), "b = None", "train.py"),
        search_path=("/somewhere",),
    )
    again = BackendSpec.from_json(json.loads(json.dumps(spec.to_json())))
    assert (again, again.search_path) == (spec, spec.search_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("module", "os; import x"),
        ("module", 3),
        ("entry_point", "a:b:c d"),
        ("target", {"import": ["os", "system('x')"]}),
        ("target", {"call": {"func": 1}}),
        ("target", {"eval": "1"}),
        ("target", {"embedded": "a b"}),
        ("target", float("nan")),
        ("options", [1]),
        ("mode", 1),
        ("dynamic", 1),
        ("search_path", "/x"),
        ("source", {"text": "x"}),
        ("surprise", 1),
    ],
)
def test_malformed_json_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        BackendSpec.from_json({"name": "b", field: value})


def test_deep_nesting_is_refused() -> None:
    target: Any = 1
    for _ in range(50):
        target = [target]
    with pytest.raises(ValueError, match="nested too deeply"):
        BackendSpec.from_json({"target": target})


def test_a_problem_is_raised_on_use() -> None:
    spec = BackendSpec(name="b", problem="backend 'b' cannot be re-created: no reason")
    for use in (spec.load, spec.callable, spec.to_source):
        with pytest.raises(CannotLoad, match="no reason"):
            use()


def test_a_module_that_cannot_be_imported_is_said() -> None:
    spec = BackendSpec(name="b", how="registered", target="b", module="no_such_module_of_ours")
    with pytest.raises(CannotLoad, match="No module named 'no_such_module_of_ours'"):
        spec.load()


def test_a_module_that_does_not_register_is_said() -> None:
    spec = BackendSpec(name="nobody", how="registered", target="nobody", module="json")
    with pytest.raises(CannotLoad, match="importing json registers no backend called 'nobody'"):
        spec.load()


def test_options_are_fresh_each_time() -> None:
    spec = BackendSpec(name="inductor", target="inductor", options={"dict": [["max_autotune", False]]})
    first = spec.options_dict()
    assert first == {"max_autotune": False}
    assert spec.options_dict() is not first


def test_names_already_used_are_imported_under_another() -> None:
    spec = BackendSpec(name="forward", how="attribute", target={"import": ["team.impl", "forward"]})
    source = spec.to_source(reserved={"forward"})
    assert source.imports == ["from team.impl import forward as impl_forward"]
    assert source.arguments == "backend=impl_forward"
    assert source.names == {"backend", "impl_forward"}
