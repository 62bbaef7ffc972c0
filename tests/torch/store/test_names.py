"""The shipped table: what is in it, what is not, and that it is torch's own."""

from __future__ import annotations

import importlib
import inspect

import pytest
import torch

from fxminify.store.document.names import UnknownName, check_target, is_attribute_path, is_node_name, namespace, table
from fxminify.store.live.names_generate import EXCLUDED, METHOD_DENY, OP_DENY, TYPE_DENY
from fxminify.store.live.resolve import describe, resolve

TEXT = """
os.system posix.system subprocess.run builtins.eval builtins.exec builtins.__import__ builtins.open builtins.compile
builtins.setattr builtins.type builtins.range builtins.vars operator.attrgetter _operator.attrgetter
_operator.itemgetter _operator.methodcaller _operator.call operator.add torch.load torch.save torch.hub.load
torch.compile torch.jit.load torch.from_file torch._C._VariableFunctions.from_file torch.serialization.load
torch.os.system torch.sys.exit torch.frombuffer torch.from_numpy torch._from_blob torch.set_default_dtype
torch.set_num_threads torch.nn.functional.torch.os.system torch.nn.functional.importlib.import_module
torch.nn.functional.warnings.warn torch.functional.itertools.chain torch.utils.cpp_extension.load_inline
torch._C._cuda_jiterator_compile_and_launch_kernel torch._C._construct_storage_from_data_pointer
torch._C._profiler._add_execution_trace_observer torch.cuda._memory_viz._write_blocks
torch._weights_only_unpickler.load torch.ops.load_library torch.classes.load_library torch._refs.__builtins__
torch.__builtins__ torch.nn.functional.__loader__ torch.autograd.function.FunctionMeta
torch.fx.experimental.symbolic_shapes.eval_guards torch.fx.experimental.proxy_tensor.make_fx
torch._disable_dynamo torch._C._initExtension torch.Tensor.__reduce_ex__ torch.Tensor.register_hook
torch.Tensor.numpy torch.Tensor.apply_ torch.Tensor.__class__ torch._C._nn.__class__ math.__loader__
torch._C._jit_clear_class_registry torch._print torch._import_dotted_name torch.typing
"""
REFUSED_FUNCTIONS = TEXT.split()


@pytest.mark.parametrize("name", [*REFUSED_FUNCTIONS, "builtins.sum\n", "torch.ones\0", "torch.\u043enes", "", "torch"])
def test_functions_that_reach_outside_tensors_have_no_name(name: str) -> None:
    for target in ({"fn": name}, {"op": name}, {"packet": name}, {"hop": name}):
        with pytest.raises(UnknownName):
            check_target(target, custom=True)


@pytest.mark.parametrize(
    "name",
    [
        "aten::from_file", "aten::from_file.default", "aten::save.default", "aten::add.__class__", "aten::__class__",
        "__class__::mro", "aten::set_.source_Storage", "aten::set_.source_Storage_storage_offset", "prim::Print",
        "prim::RaiseException.default", "c10d::allreduce_.default", "profiler::_record_function_enter.default",
        "torchbind::x.default", "aten::add.Tensor\n", "aten::set_data.default", "debugprims::load_tensor.default",
        "aten::_backward.default", "static_runtime::permute_copy.default", "aten::not_there.default",
    ],
)  # fmt: skip
def test_dangerous_operators_have_no_name_even_with_custom_libraries(name: str) -> None:
    for target in ({"op": name}, {"packet": name}):
        with pytest.raises(UnknownName):
            check_target(target, custom=True)


@pytest.mark.parametrize("name", ["call_torchbind", "invoke_leaf_function", "triton_kernel_wrapper_mutation", "nope"])
def test_higher_order_operators_over_process_tables_have_no_name(name: str) -> None:
    with pytest.raises(UnknownName):
        check_target({"hop": name})


@pytest.mark.parametrize(
    "name",
    [
        "__reduce_ex__",
        "__class__",
        "register_hook",
        "apply_",
        "numpy",
        "storage",
        "backward",
        "__torch_function__",
        "__setstate__",
        "__dict__",
        "data_ptr",
        "set_",
        "share_memory_",
        "map_",
        "untyped_storage",
        "tofile",
        "__dlpack__",
        "record_stream",
    ],
)
def test_dangerous_methods_have_no_name(name: str) -> None:
    assert name not in table().methods


def test_a_custom_operator_passes_only_where_libraries_are_imported() -> None:
    check_target({"op": "mylib::thing.default"}, custom=True)
    check_target({"packet": "mylib::thing"}, custom=True)
    assert namespace({"op": "mylib::thing.default"}) == "mylib"
    assert namespace({"op": "aten::add.Tensor"}) is None
    for target in ({"op": "mylib::thing.default"}, {"packet": "mylib::thing"}):
        with pytest.raises(UnknownName, match="mylib::thing"):
            check_target(target)
    for name in ("mylib::__class__.default", "mylib::thing.__class__", "my.lib::thing.default", "mylib::thing\n"):
        with pytest.raises(UnknownName):
            check_target({"op": name}, custom=True)


def test_every_listed_function_resolves_to_a_callable_that_has_a_name() -> None:
    missing = []
    for name in sorted(table().functions):
        try:
            assert describe(resolve({"fn": name}))["fn"] in table().functions
        except UnknownName:
            missing.append(name)
    # A table made for another torch may list a few names this one lacks, never many.
    assert len(missing) < (1 if table_is_for_this_torch() else 60), missing


def test_every_listed_operator_resolves_to_itself() -> None:
    missing = []
    for kind, names in (("op", table().ops), ("hop", table().hops)):
        for name in sorted(names):
            try:
                assert describe(resolve({kind: name})) == {kind: name}
            except UnknownName:
                missing.append(name)
    assert len(missing) < (1 if table_is_for_this_torch() else 200), missing


def table_is_for_this_torch() -> bool:
    import json
    from pathlib import Path

    import fxminify.store.document.names as names

    made_with = json.loads(Path(names.__file__).with_name("names.json").read_text())["torch"]
    return bool(made_with == torch.__version__.partition("+")[0])


def test_public_spellings_win() -> None:
    assert describe(torch._C._nn.gelu) == {"fn": "torch.nn.functional.gelu"}
    assert describe(torch._C._linalg.linalg_inv) == {"fn": "torch.linalg.inv"}  # type: ignore[attr-defined]  # not in torch's stubs
    assert describe(torch.Tensor.add) == {"fn": "torch.Tensor.add"}
    assert describe(torch.ops.aten.add) == {"packet": "aten::add"}
    assert describe(torch.ops.aten.add.Tensor) == {"op": "aten::add.Tensor"}
    assert describe(torch.ops.higher_order.cond) == {"hop": "cond"}


def test_a_function_whose_name_lies_is_found_by_identity() -> None:
    # Its module carries the compiler's ABI.
    hooks = torch._C._autograd._saved_tensors_hooks_disable
    assert describe(hooks) == {"fn": "torch._C._autograd._saved_tensors_hooks_disable"}


def test_an_impostor_has_no_name() -> None:
    def relu(x: torch.Tensor) -> torch.Tensor:
        return x

    relu.__module__, relu.__qualname__ = "torch", "relu"
    with pytest.raises(UnknownName, match=r"function torch\.relu"):
        describe(relu)


def test_a_name_that_torch_lacks_here_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    names = table()
    monkeypatch.setattr("fxminify.store.document.names.table", lambda: names)
    with pytest.raises(UnknownName, match="no packet 'mylib::absent'"):
        resolve({"packet": "mylib::absent"})


def test_an_alias_serves_where_a_name_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._functorch.predispatch as predispatch

    from fxminify.store.live import resolve as module

    monkeypatch.delattr(predispatch, "_vmap_increment_nesting")
    module.forget()
    try:
        found = resolve({"fn": "torch._functorch.predispatch._vmap_increment_nesting"})
        assert found is torch._C._functorch._vmap_increment_nesting
    finally:
        module.forget()


@pytest.mark.parametrize(
    "name", ["x\n", "x y", "x=f()", "class", "self", "torch", "\uff45val", "", "9x", "x" * 600, "a.b", None, 3, ["x"]]
)
def test_bad_node_names(name: object) -> None:
    assert not is_node_name(name)


@pytest.mark.parametrize(
    "path",
    [
        "forward", "_modules", "_modules.x", "a._parameters", "training", "__class__", "_graph", "_code", "a.__class__",
        "a..b", ".a", "a.", "x\n", "_forward_hooks", "_call_impl", "to", "", None,
    ],
)  # fmt: skip
def test_attribute_paths_cannot_shadow_a_module(path: object) -> None:
    assert not is_attribute_path(path)


WALKED = ("torch", "torch.nn.functional", "torch.nn.init", "torch.special", "torch.linalg", "torch.fft")


@pytest.mark.parametrize("path", WALKED)
def test_every_public_function_of_torch_has_a_name_or_a_reason(path: str) -> None:
    """What a module imports from elsewhere for its own use is not its public function."""
    module = importlib.import_module(path)
    excluded = {name for names in EXCLUDED.values() for name in names}
    without = []
    for name, obj in sorted(vars(module).items()):
        if name.startswith("_") or not callable(obj) or inspect.isclass(obj) or inspect.ismodule(obj):
            continue
        home = getattr(obj, "__module__", None) or "torch"
        foreign = not home.startswith("torch") or (path != "torch" and home in ELSEWHERE)
        if foreign or f"{path}.{name}" in excluded:
            continue
        try:
            check_target(describe(obj))
        except UnknownName:
            without.append(f"{path}.{name}")
    assert without == []


#: Where `torch.nn.functional` has its own tools from.
ELSEWHERE = ("torch._C", "torch._jit_internal", "torch.overrides")


def test_what_is_excluded_has_no_name_and_exists() -> None:
    for names in EXCLUDED.values():
        for name in names:
            assert name not in table().functions
            if table_is_for_this_torch():
                module, _, leaf = name.rpartition(".")
                assert callable(getattr(importlib.import_module(module), leaf)), name


def test_every_public_method_of_a_tensor_has_a_name_or_is_denied() -> None:
    names = {n for n in dir(torch.Tensor) if not n.startswith("_") and callable(getattr(torch.Tensor, n))}
    assert names - table().methods - METHOD_DENY == set()


@pytest.mark.parametrize("space", ["aten", "prims", "quantized", "mkldnn", "_c10d_functional", "inductor"])
def test_every_operator_of_torch_has_a_name_or_is_denied(space: str) -> None:
    without = []
    for full in torch._C._dispatch_get_all_op_names():
        if not full.startswith(f"{space}::") or OP_DENY.match(full):
            continue
        packet, _, overload = full.partition("::")[2].partition(".")
        holder = getattr(getattr(torch.ops, space), packet)
        if not isinstance(holder, torch._ops.OpOverloadPacket) or (overload or "default") not in holder.overloads():
            continue
        op = getattr(holder, overload or "default")
        if any(TYPE_DENY.search(str(argument.type)) for argument in op._schema.arguments):
            continue
        if f"{space}::{packet}.{overload or 'default'}" not in table().ops:
            without.append(full)
    assert without == []
