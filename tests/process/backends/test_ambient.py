"""Ambient state: what is recorded, put back and printed."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
import torch

from fxminify.backends.running import ambient, devices
from fxminify.store.document import context as context_checks


def test_a_fresh_process_has_an_empty_context() -> None:
    code = "import torch; torch.set_num_threads(2)\n"
    code += "from fxminify.backends.running import ambient; print(ambient.snapshot())"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "{}\n"


def test_importing_ambient_loads_no_torch() -> None:
    code = "import sys, fxminify.backends.running.ambient; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "False\n"


CONTEXTS: list[dict[str, object]] = [
    {"grad": False},
    {"inference": True},
    {"default_dtype": "float64"},
    {"autocast": {"cpu": {"dtype": "bfloat16"}}},
    {"autocast": {"cpu": {"dtype": "float16", "cache": False}}, "grad": False},
    {"deterministic": {"warn_only": True}},
    {"matmul_precision": "medium"},
    {"sdp": {"flash": False, "math": False}},
    {"config": {"torch._inductor.config": {"fallback_random": True}}},
]


def test_what_is_printed_is_what_is_read() -> None:
    """Each context in a fork of one process, which has imported torch and changed nothing."""
    code = "import json, os, sys, torch, torch._inductor.config\nfrom fxminify.backends.running import ambient\n"
    code += "torch.set_num_threads(2)\n"
    for context in CONTEXTS:
        source = ambient.to_source(context)
        lines = [*source.setup, *[f"m{i} = {m}; m{i}.__enter__()" for i, m in enumerate(source.managers)]]
        lines += ["print(json.dumps(ambient.snapshot()), flush=True)", "os._exit(0)"]
        code += "if os.fork() == 0:\n" + "".join(f"    {line}\n" for line in lines) + "os.wait()\n"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in out.stdout.splitlines()] == CONTEXTS, out.stderr


@pytest.mark.parametrize("context", CONTEXTS)
def test_what_is_applied_is_what_is_read(context: dict[str, object]) -> None:
    before = ambient.snapshot()

    with ambient.applied(context):
        inside = ambient.snapshot()
    inside.pop("threads", None)
    assert inside == context
    assert ambient.snapshot() == before


def test_one_thread_is_recorded_because_backends_generate_other_code_for_it() -> None:
    before = torch.get_num_threads()
    try:
        with ambient.applied({"threads": 1}):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == before
    finally:
        torch.set_num_threads(before)
    assert ambient.to_source({"threads": 1}).setup == ["torch.set_num_threads(1)"]


def test_settings_that_name_this_machine_are_left_out() -> None:
    import torch._inductor.config as config

    fused = config.epilogue_fusion

    with config.patch({"fx_graph_cache": False, "compile_threads": 3, "epilogue_fusion": not fused}):
        assert ambient.snapshot()["config"] == {"torch._inductor.config": {"epilogue_fusion": not fused}}


def test_settings_of_a_group_are_recorded_and_set_again() -> None:
    import torch._inductor.config as config

    width = 7 if config.cpp.simdlen is None else None
    with config.patch({"cpp.simdlen": width}):
        context = ambient.snapshot()
    assert context["config"] == {"torch._inductor.config": {"cpp.simdlen": 7}}
    assert ambient.to_source(context).setup[-1] == "torch._inductor.config.cpp.simdlen = 7"
    with ambient.applied(context):
        assert config.cpp.simdlen == 7


def test_every_group_of_settings_is_one_of_torch() -> None:
    from torch._inductor import config

    there = {key.rpartition(".")[0] for key in config.get_config_copy() if "." in key}
    ours = {name.rpartition(".")[2] for name in context_checks.config_groups()}
    assert ours - there == set()
    assert there - ours == {"_collective", "autoheuristic_collect", "autoheuristic_use", "trace"}


@pytest.mark.parametrize("key", ["no_such_setting", "cpp.no_such_setting", "is_fbcode"])
def test_a_setting_that_this_torch_has_not_is_refused(key: str) -> None:
    context = {"config": {"torch._inductor.config": {key: 1}}}
    with (
        pytest.raises(ValueError, match=rf"the installed torch._inductor.config has no setting {re.escape(key)}$"),
        ambient.applied(context),
    ):
        raise AssertionError


def test_the_generator_state_is_put_back() -> None:
    from fxminify.store.live.encode import Encoder

    encoder = Encoder()
    torch.manual_seed(7)
    index = encoder.tensor(devices.generators([])["cpu"])
    tensors, blobs = encoder.finish()
    expected = torch.rand(3)
    torch.manual_seed(8)
    state = torch.get_rng_state()
    with ambient.applied({"rng": {"cpu": {"tensor": index}}}, tensors, blobs):
        assert torch.equal(torch.rand(3), expected)
    assert torch.equal(torch.get_rng_state(), state)
