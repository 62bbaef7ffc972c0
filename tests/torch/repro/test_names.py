"""Every name of the shipped table prints as an expression that a fresh process can evaluate."""

from __future__ import annotations

import pytest

from fxminify.repro_templates.source.naming import identifier, input_names


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("self___param_groups_0__params___0", "self_param_groups_0_params_0"),
        ("self___state_list_dict_keys_L__self___state___1___exp_avg", "state_1_exp_avg"),
        ("L__self___layers_3", "l_self_layers_3"),
        ("__ABS__", "ABS"),
        ("3d", "v3d"),
        ("___", "v"),
    ],
)
def test_identifiers_have_no_more_underscores_than_words(given: str, name: str) -> None:
    assert identifier(given) == name


@pytest.mark.parametrize(
    ("targets", "names"),
    [
        (["input_14"], ["x"]),
        (["l_x_", "args_0"], ["x", "x"]),
        (["fft_fftn__part0__to_copy"], ["x"]),
        (["l_self_modules_fc_parameters_weight_", "hidden_states_3"], ["weight", "hidden_states"]),
        (["mask_1", "mask_2"], ["mask_1", "mask_2"]),
        (["filter_1"], ["filter_1"]),  # `filter` is a builtin
    ],
)
def test_numbers_that_tell_no_inputs_apart_are_left_out(targets: list[str], names: list[str]) -> None:
    assert input_names(targets) == names


def test_public_spellings_are_the_objects_dynamo_records() -> None:
    import torch

    from fxminify.repro_templates.source.expressions import _PUBLIC

    for private, (public, only) in _PUBLIC.items():
        holder = _resolve(torch, private.rpartition(".")[0])
        prefix = private.rpartition(".")[2]
        for name in only or [n.removeprefix(prefix) for n in dir(holder) if n.startswith(prefix)]:
            assert getattr(holder, prefix + name) is _resolve(torch, public + name)


def test_functions_that_hand_their_arguments_on_print_as_themselves() -> None:
    import torch
    from torch import fx

    from fxminify.repro_templates.source.expressions import _WRAPPERS, Expressions

    calls = {"torch._C._nn.pad": lambda f: lambda x: f(x, (1, 2), "replicate", None)}
    assert set(calls) == set(_WRAPPERS)
    for private, public in _WRAPPERS.items():
        traced: list[list[str]] = []

        def backend(gm: fx.GraphModule, inputs: object, *, traced: list[list[str]] = traced) -> object:
            traced.append([str((n.target, n.args, n.kwargs)) for n in gm.graph.nodes if n.op == "call_function"])
            return gm.forward

        for name in (private, public):
            torch.compile(calls[private](_resolve(torch, name)), backend=backend)(torch.ones(1, 2, 3))
        assert traced[0] == traced[1]
        assert Expressions(str).target({"fn": private}) == public


def _resolve(torch: object, dotted: str) -> object:
    found = torch
    for part in dotted.split(".")[1:]:
        found = getattr(found, part)
    return found
