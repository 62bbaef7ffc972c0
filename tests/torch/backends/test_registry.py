"""The private parts of torch that `registry` and `libraries` lean on: these tests fail first if torch moves."""

from __future__ import annotations

import inspect

import torch
from torch._dynamo.backends import registry as torch_registry
from torch._dynamo.backends.common import AotAutograd, aot_autograd

from fxminify.backends.provenance import registry


def test_the_registry_keeps_names_and_functions_where_we_look() -> None:
    torch_registry._lazy_import()
    assert isinstance(torch_registry._BACKENDS, dict)
    assert torch_registry._COMPILER_FNS["inductor"] is torch_registry.lookup_backend("inductor")


def test_the_wrappers_of_torch_compile_have_the_arguments_we_read() -> None:
    first, others = (names := list(inspect.signature(torch._TorchCompileWrapper).parameters))[:4], names[4:]
    assert first == ["backend", "mode", "options", "dynamic"]
    assert others in ([], ["name"])  # newer ones: a label of the compiled region, which changes nothing
    wrapper = torch._TorchCompileWrapper("eager", "some-mode", {"a": 1}, False)
    assert (wrapper.compiler_name, wrapper.kwargs, wrapper.dynamic) == (
        "eager",
        {"mode": "some-mode", "options": {"a": 1}},
        False,
    )
    inductor = torch._TorchCompileInductorWrapper(None, {"max_autotune": True}, None)
    assert (inductor.config, inductor.dynamic) == ({"max_autotune": True}, None)


def test_aot_autograd_objects_keep_their_keywords() -> None:
    made = aot_autograd(fw_compiler=len)
    assert type(made) is AotAutograd
    assert made.kwargs == {"fw_compiler": len}


def test_wrap_gives_what_torch_compile_uses() -> None:
    assert registry.wrap("eager", {"a": 1}, None, True) == torch._TorchCompileWrapper("eager", None, {"a": 1}, True)
    assert type(registry.wrap("inductor", {"use_aoti": True}, None, None)) is torch._TorchCompileAOTInductorWrapper


def test_places_of_registration_are_where_we_look() -> None:
    from torch._library import custom_ops, simple_registry

    assert hasattr(custom_ops, "OPDEFS")
    assert simple_registry.singleton.find("aten::relu").fake_impl.kernel is None
    assert "registered at " in torch._C._dispatch_dump("aten::relu")
    assert "aten::relu" in torch._C._dispatch_get_all_op_names()
    assert isinstance(torch.ops.loaded_libraries, set)
