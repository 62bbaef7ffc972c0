"""Custom operators: what registers them is found, printed, and loaded again in a fresh process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from recreation import run_python

from fxminify.backends.provenance import libraries
from fxminify.backends.provenance.spec import CannotLoad
from fxminify.backends.running import collectives

PROGRAMS = Path(__file__).parents[2] / "programs" / "backends"
LIB = PROGRAMS / "lib"
#: operator: a call of it, and what it prints for ones
CALLS = {
    "team::scale": ("team.scale(x, 3.0)", "[3.0, 3.0, 3.0]\n"),
    "team_lib::shift": ("team_lib.shift(x)", "[2.0, 2.0, 2.0]\n"),
    "team_named::twice": ("team_named.twice(x)", "[2.0, 2.0, 2.0]\n"),
    "script::double": ("script.double(x)", "[2.0, 2.0, 2.0]\n"),
    "script_lib::negate.default": ("script_lib.negate(x)", "[-1.0, -1.0, -1.0]\n"),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `op_user.py` found for its operators."""
    empty = tmp_path_factory.mktemp("empty")
    out: dict[str, Any] = json.loads(run_python(PROGRAMS / "app" / "op_user.py", cwd=empty, path=(LIB,)))
    return out


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory, found: dict[str, Any]) -> dict[str, Any]:
    """What came of loading them in a fresh process."""
    file = tmp_path_factory.mktemp("cases") / "cases.json"
    file.write_text(json.dumps({op: {**found[op], "call": call} for op, (call, _) in CALLS.items()}))
    empty = tmp_path_factory.mktemp("empty")
    out: dict[str, Any] = json.loads(run_python(PROGRAMS / "recorder.py", "operators", file, LIB, cwd=empty))
    return out


@pytest.mark.parametrize("op", CALLS)
def test_operators_come_back_from_source_and_from_json(found: dict[str, Any], called: dict[str, Any], op: str) -> None:
    assert found[op]["problems"] == []
    assert called[op] == {"source": CALLS[op][1], "json": CALLS[op][1]}


def test_imports_say_what_they_register(found: dict[str, Any]) -> None:
    assert found["team::scale"]["lines"] == [
        "import team.ops  # registers torch.ops.team",
        "import team.fakes  # registers torch.ops.team",
    ]
    assert found["team_named::twice"]["lines"] == ["import team.ops  # registers torch.ops.team_named"]
    first, *source = found["script::double"]["executes"]
    assert (len(source), first.startswith("runs 18 lines from "), first.endswith(" that register operators:")) == (
        18, True, True,
    )  # fmt: skip


def test_operators_of_the_script_bring_their_kernels_and_helpers(found: dict[str, Any]) -> None:
    text = "\n".join(found["script::double"]["lines"])
    assert "FACTOR = 2.0" in text
    assert "def helper" in text
    assert "@double.register_fake" in text
    assert "result" not in text


def test_several_operators_share_their_imports(found: dict[str, Any]) -> None:
    imports, problems = found["all"]
    assert [i.get("module", "source") for i in imports] == ["team.ops", "team.fakes", "source"]
    assert imports[2]["ops"] == ["script::double", "script_lib::negate"]
    assert problems == ["operator nobody::knows: no module or library that registers it was found"]


def test_builtin_namespaces_need_nothing() -> None:
    ops = ["aten::relu.default", "prims::add", "higher_order::cond"]
    assert libraries.imports_for(ops) == ([], [])


@pytest.mark.slow
def test_every_namespace_that_torch_registers_is_builtin() -> None:
    import subprocess
    import sys

    code = (
        "import torch, torch._dynamo, torch._inductor.compile_fx\n"
        "print(*{n.partition('::')[0] for n in torch._C._dispatch_get_all_op_names()})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    namespaces = {n for n in done.stdout.split() if not n.endswith("_test")}
    assert namespaces <= libraries.BUILTIN


def test_quantized_decomposed_is_imported_because_not_every_backend_does() -> None:
    imports, problems = libraries.imports_for(["quantized_decomposed::quantize_per_tensor"])
    assert problems == []
    assert libraries.to_source(imports) == [
        "import torch.ao.quantization.fx._decomposed  # registers torch.ops.quantized_decomposed"
    ]


def test_a_shared_library_is_found_by_the_names_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "libteam.so"
    file.write_bytes(b"\x7fELF\x00" + b"team_native\x00launch\x00")
    monkeypatch.setattr(torch.ops, "loaded_libraries", {str(file)})
    imports, problems = libraries.imports_for(["team_native::launch"])
    assert problems == []
    assert imports == [{"library": "libteam.so", "ops": ["team_native::launch"], "search_path": [str(tmp_path)]}]
    lines = libraries.to_source(imports)
    assert lines[-1] == "torch.ops.load_library(path)  # registers torch.ops.team_native"
    assert str(tmp_path) not in "\n".join(lines)
    compile("\n".join(lines), "lines", "exec")


def test_only_imports_that_are_still_needed_stay() -> None:
    imports: list[dict[str, Any]] = [
        {"module": "a", "ops": ["x::f"]},
        {"module": "b", "ops": ["y::g"]},
        {"module": "plugin"},
    ]
    assert libraries.needed(imports, ["y::g.default", "aten::relu.default"]) == imports[1:]


def test_loading_says_what_is_missing() -> None:
    with pytest.raises(CannotLoad, match="json does not register the operator nobody::knows"):
        libraries.load([{"module": "json", "ops": ["nobody::knows"]}])
    with pytest.raises(CannotLoad, match=r"libnone\.so is on none of the directories searched"):
        libraries.load([{"library": "libnone.so"}])


@pytest.mark.parametrize(
    "bad",
    [
        3,
        [3],
        [{}],
        [{"module": "a", "library": "b"}],
        [{"module": "a; b"}],
        [{"library": "../x.so"}],
        [{"module": "a", "surprise": 1}],
        [{"module": "a", "ops": ["a; b"]}],
        [{"source": 1}],
    ],
)
def test_malformed_imports_are_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        libraries.check(bad)


def test_collectives_need_a_fake_group_of_the_same_size() -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    op = "_c10d_functional::all_reduce"
    assert libraries.imports_for([op]) == ([{"processes": {"size": 1, "rank": 0}, "ops": [op]}], [])
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=2, world_size=4)
    try:
        other = torch.distributed.new_group([0, 2])
        imports, problems = libraries.imports_for([op])
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        for name in ("0", "sum", other.group_name):
            graph.call_function(torch.ops._c10d_functional.all_reduce, (x, "sum", name))
        refused = collectives.problems(torch.fx.GraphModule({}, graph))
    finally:
        torch.distributed.destroy_process_group()
    assert (imports, problems) == ([{"processes": {"size": 4, "rank": 2}, "ops": [op]}], [])
    assert refused == [
        f"node 'all_reduce_2' works on the process group {other.group_name!r}; only the default group can be made again"
    ]
    libraries.load(imports)
    try:
        assert (torch.distributed.get_world_size(), torch.distributed.get_rank()) == (4, 2)
        ones = torch.ones(3)
        total = torch.ops._c10d_functional.all_reduce(ones, "sum", "0")
        assert torch.equal(torch.ops._c10d_functional.wait_tensor(total), ones)
    finally:
        torch.distributed.destroy_process_group()
    assert libraries.needed(imports, ["aten::add"]) == []


@pytest.mark.parametrize(
    "bad", [{"size": 2}, {"size": 2, "rank": 2}, {"size": True, "rank": 0}, {"size": 2, "rank": -1}, 3]
)
def test_a_process_group_is_a_size_and_a_rank(bad: object) -> None:
    with pytest.raises(ValueError, match=r"import\.processes"):
        libraries.check([{"processes": bad}])
