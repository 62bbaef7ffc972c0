"""The backend as a person meets it: name, options, errors, storage and report, and what it does when things fail."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, cast

import onnxruntime  # type: ignore[import-untyped]
import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.exc import BackendCompilerFailed

from fxminify.backends.provenance.origin import spec_of
from fxminify.backends.shipped.onnxrt import Storage, compile_fx, exporter, runtime, trust
from fxminify.backends.shipped.onnxrt.options import OnnxrtOptions

from .conftest import Comparison

r = torch.randn
needs_entry_point = pytest.mark.skipif(
    not entry_points(group="torch_dynamo_backends", name="fxminify_ort"), reason="fxminify is not installed with it"
)


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend=compile_fx, options=options)


def perceptron(seed: int = 0) -> torch.nn.Sequential:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))


def losses(model: torch.nn.Module, function: Any) -> torch.Tensor:
    """The losses of three epochs over 23 rows in batches of 5, the last of 3."""
    torch.manual_seed(1)
    x, y = r(23, 10), r(23, 1)
    adam = torch.optim.Adam(model.parameters(), 1e-2)
    out = []
    for start in [*range(0, 23, 5)] * 3:
        loss = F.l1_loss(function(x[start : start + 5]), y[start : start + 5])
        adam.zero_grad()
        loss.backward()
        adam.step()
        out.append(loss.item())
    return torch.tensor(out)


@pytest.mark.process
@pytest.mark.parametrize(("dynamic", "graphs"), [(False, 4), (True, 2)])
def test_training_follows_the_loss_of_eager(dynamic: bool, graphs: int) -> None:
    storage, one, other = Storage(), perceptron(), perceptron()
    options: dict[str, Any] = {"storage": storage, "strict": True}
    fast = torch.compile(other, backend=compile_fx, dynamic=dynamic, options=options)
    torch.testing.assert_close(losses(other, fast), losses(one, one), rtol=0, atol=1e-4)
    assert [report.kind for report in storage.reports] == ["forward", "backward"] * (graphs // 2)
    assert [len(report.parts) for report in storage.reports] == [1] * graphs


@pytest.mark.process
def test_the_public_exporter_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens when torch moves the exporter's private names."""
    monkeypatch.setattr(exporter, "PRIVATE", None)
    one, other, storage = perceptron(), perceptron(), Storage()
    fast = torch.compile(other, backend=compile_fx, dynamic=True, options=cast(Any, {"storage": storage}))
    torch.testing.assert_close(losses(other, fast), losses(one, one), rtol=0, atol=1e-4)
    assert [(len(report.parts), report.islands) for report in storage.reports] == [(1, []), (1, [])]
    x = r(3)
    torch.testing.assert_close(compiled(lambda x: x + torch.tensor([1.0, 2.0, 3.0]))(x), x + torch.arange(1.0, 4.0))


def test_this_torch_has_the_private_exporter() -> None:
    assert exporter.PRIVATE is not None, "torch moved the exporter: see backends/shipped/onnxrt/exporter.py"
    assert runtime._FAST, "onnxruntime moved OrtValueVector: see backends/shipped/onnxrt/runtime.py"


@pytest.mark.process
@needs_entry_point
def test_the_name_works_in_a_fresh_process_that_imports_torch_alone() -> None:
    code = (
        "import sys, torch\n"
        "f = torch.compile(lambda x: x * 2 + 1, backend='fxminify_ort', options={'strict': True})\n"
        "assert 'onnxruntime' not in sys.modules\n"
        "print(f(torch.ones(2)).tolist(), 'onnxruntime' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=200)
    assert done.stdout == "[3.0, 3.0] True\n", done.stderr


@needs_entry_point
def test_a_captured_backend_is_written_as_its_name_and_options() -> None:
    given = {"strict": True, "storage": Storage(), "providers": ["CPUExecutionProvider"]}
    spec = spec_of("fxminify_ort", compile_kwargs={"options": given})
    assert (spec.how, spec.entry_point) == ("entry_point", "fxminify.backends.shipped.onnxrt:compile_fx")
    source = spec.to_source()
    assert source.imports == ["from fxminify.backends.shipped.onnxrt.storage import Storage"]
    assert source.arguments == (
        "backend=\"fxminify_ort\", options={'strict': True, 'storage': Storage(), 'providers': "
        "['CPUExecutionProvider']}"
    ).replace("'", '"')
    assert spec_of("fxminify_ort").to_source().imports == []


def test_storage_has_models_sessions_and_graphs(tmp_path: Path) -> None:
    storage, listed, keyed = Storage(), list[Any](), dict[str, Any]()
    for kept in (storage, listed, keyed):
        torch._dynamo.reset()
        compiled(lambda x: torch.relu(x) + 1, storage=kept, dump_dir=str(tmp_path))(r(3))
    for (stored,) in (storage, listed, keyed["models"]):
        assert [node.op_type for node in stored.onnx.graph.node] == ["Relu", "Constant", "Add"]
        assert stored.session.run(None, {stored.session.get_inputs()[0].name: [-1.0, 0.0, 2.0]})[0].tolist() == [
            1,
            1,
            3,
        ]
        assert "aten.relu" in stored.graph_module.code
        assert "relu: float32[3] = Relu(arg0_1)" in stored.text()
        assert ">Relu</text>" in stored.svg()
        assert stored.report.parts[0].onnx_nodes == 3
    assert listed[0].session is storage[0].session, "equal models share a session"
    for suffix in (".onnx", ".onnx.txt", ".fx.txt"):
        assert len(list(tmp_path.glob(f"*{suffix}"))) == 3


def test_strict_names_node_source_line_and_dtype() -> None:
    def spectrum(x: torch.Tensor) -> object:
        return torch.fft.rfft(x + 1).abs()

    with pytest.raises(BackendCompilerFailed, match="UnsupportedOperator") as caught:
        compiled(spectrum, strict=True)(r(8))
    assert "_fft_r2c = aten._fft_r2c.default (complex64, float32), from test_backend.py:" in str(caught.value)
    assert "return torch.fft.rfft(x + 1).abs(): ONNX Runtime has no kernels for complex64" in str(caught.value)


def test_what_is_known_to_have_no_kernel_is_an_island(compare: Comparison) -> None:
    x = r(2, 4).double()
    with torch.no_grad():
        compare(lambda x: torch.erf(x * 2) + 1, (x,))
    (report,) = compare.storage.reports
    assert report.fallbacks() == ["aten.erf.default: ONNX Runtime has no kernel for Erf"]
    assert report.evictions == []
    assert compare.storage.refused == []
    with pytest.raises(BackendCompilerFailed, match=r"run aten\.erf\.default \(float64\): .*Erf"):
        compiled(lambda x: torch.erf(x * 2) + 1, strict=True)(x)


def test_what_a_session_refuses_is_evicted_and_told(monkeypatch: pytest.MonkeyPatch, compare: Comparison) -> None:
    """As where two translations are right, and not beside each other."""
    monkeypatch.setattr(trust.Trust, "why_not", lambda self, node: "")
    x = r(2, 4).double()
    with torch.no_grad():
        compare(lambda x: torch.erf(x * 2) + 1, (x,))
    (report,) = compare.storage.reports
    assert [(island.target, island.evicted) for island in report.islands] == [("aten.erf.default", True)]
    assert "Could not find an implementation for Erf" in report.evictions[0].reason
    assert "evicted: erf = aten.erf.default (float64)" in report.text()
    (refused,) = compare.storage.refused
    assert (refused.session, refused.error) == (None, report.evictions[0].reason)
    assert "aten_special_erf(mul)" in refused.text()
    with pytest.raises(BackendCompilerFailed, match=r"run aten\.erf\.default \(float64\): .*Erf"):
        compiled(lambda x: torch.erf(x * 2) + 1, strict=True)(x)


@pytest.mark.process
def test_a_failure_at_run_time_is_answered_by_eager_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def gather(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return x.index_select(0, k) * 2

    storage, x, inside, outside = Storage(), r(4, 2), torch.tensor([0, 3]), torch.tensor([0, 9])
    fast = compiled(gather, storage=storage)
    torch.testing.assert_close(fast(x, inside), gather(x, inside))
    assert storage.reports[0].failures == []
    with pytest.raises(IndexError, match="out of range"):
        fast(x, outside)
    assert "indices element out of data bounds" in storage.reports[0].failures[0]
    torch._dynamo.reset()
    strict = compiled(gather, strict=True)
    with pytest.raises(runtime.RUNTIME_ERRORS, match="out of data bounds"):
        strict(x, outside)


def test_frozen_weights_are_constants_of_the_model() -> None:
    model, storage, x = torch.nn.Sequential(perceptron(), torch.nn.BatchNorm1d(1)).eval(), Storage(), r(5, 10)
    with torch.no_grad():
        torch.testing.assert_close(compiled(model, freeze=True, strict=True, storage=storage)(x), model(x))
    assert [value.shape for value in storage[0].session.get_inputs()] == [[5, 10]]


def test_a_buffer_that_the_model_changes_is_not_frozen() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count: torch.Tensor
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x + self.count

    fast = compiled(Counter(), freeze=True)
    with torch.no_grad():
        assert [float(fast(torch.zeros(()))) for _ in range(3)] == [1, 2, 3]


def test_a_model_past_the_limit_of_protobuf_has_its_data_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "EXTERNAL_DATA_BYTES", 1000)
    model, storage, x = perceptron(), Storage(), r(5, 10)
    with torch.no_grad():
        torch.testing.assert_close(compiled(model, freeze=True, storage=storage)(x), model(x))
    assert storage[0].onnx.graph.initializer[0].external_data


@pytest.mark.parametrize("opset", [18, 20, 21, 23])
def test_target_opset(opset: int) -> None:
    storage, x = Storage(), r(5, 10)
    function = torch.nn.Sequential(perceptron(), torch.nn.GELU(), torch.nn.LayerNorm(1))
    with torch.no_grad():
        out = compiled(function, target_opset=opset, optimize=True, strict=True, storage=storage)(x)
        torch.testing.assert_close(out, function(x))
    assert {entry.version for entry in storage[0].onnx.opset_import if not entry.domain} == {opset}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"targetopset": 18}, "the backend 'fxminify_ort' has no option 'targetopset'; did you mean 'target_opset'?"),
        ({"target_opset": 7}, "option 'target_opset' is 18 to 24, not 7"),
        ({"strict": "no"}, "option 'strict' is True or False, not 'no'"),
        ({"storage": 3}, "option 'storage' is a Storage, a list or a dict, not int"),
        ({"decompositions": "cores"}, "has no decomposition table 'cores'; did you mean 'core'?"),
        ({"providers": ["CPUExecutionprovider"]}, "did you mean 'CPUExecutionProvider'?"),
        ({"session_options": {"intra_op_threads": 1}}, "did you mean 'intra_op_num_threads'?"),
    ],
)
def test_a_wrong_option_names_the_right_one(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BackendCompilerFailed, match="InvalidOption") as caught:
        compiled(torch.sin, **options)(r(3))
    assert message in str(caught.value)


def test_session_options_reach_the_session() -> None:
    storage, x = Storage(), r(3)
    for given in (
        {
            "intra_op_num_threads": 1,
            "graph_optimization_level": "ORT_DISABLE_ALL",
            "session.intra_op.allow_spinning": 0,
        },
        onnxruntime.SessionOptions(),
    ):
        torch._dynamo.reset()
        torch.testing.assert_close(compiled(torch.sin, session_options=given, storage=storage)(x), x.sin())
    made = storage[0].session.get_session_options()
    assert (made.intra_op_num_threads, made.get_session_config_entry("session.intra_op.allow_spinning")) == (1, "0")
    assert made.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


@pytest.mark.parametrize("table", ["default", "core", {torch.ops.aten.silu.default: lambda x: x * x.sigmoid()}])
def test_decompositions(table: Any) -> None:
    storage, x = Storage(), r(3)
    torch.testing.assert_close(compiled(F.silu, decompositions=table, storage=storage)(x), F.silu(x))
    assert ("aten.silu" in storage[0].graph_module.code) == (table == "default")


def test_missing_packages_give_the_line_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fxminify.backends.shipped.onnxrt.options.PACKAGES", ("onnx", "onnx_irgendwas"))
    with pytest.raises(
        BackendCompilerFailed, match=r"MissingPackage: .* needs onnx-irgendwas: pip install 'fxminify\[onnxrt\]'"
    ):
        compiled(torch.sin)(r(3))


def test_options_have_the_documented_defaults() -> None:
    assert OnnxrtOptions.parse(None) == OnnxrtOptions.parse({}) == OnnxrtOptions()


@pytest.mark.skipif(
    not torch.cuda.is_available() or "CUDAExecutionProvider" not in onnxruntime.get_available_providers(),
    reason="needs a GPU and onnxruntime-gpu",
)
def test_cuda_tensors_stay_on_the_gpu() -> None:
    model, storage, x = perceptron().cuda(), Storage(), r(5, 10).cuda()
    out = compiled(model, storage=storage)(x)
    assert out.device.type == "cuda"
    torch.testing.assert_close(out, model(x))
    assert storage[0].session.get_providers()[0] == "CUDAExecutionProvider"


def test_a_custom_operator_is_an_island(compare: Comparison) -> None:
    with torch.library._scoped_library("fxminify_ort_test", "FRAGMENT") as library:
        library.define("double(Tensor x) -> Tensor")
        library.impl("double", lambda x: x * 2, "CPU")
        library.impl("double", torch.empty_like, "Meta")
        with torch.no_grad():
            compare(lambda x: torch.ops.fxminify_ort_test.double(x + 1) + 1, (r(3),))
    assert compare.islands == ["fxminify_ort_test.double.default"]
    assert len(compare.storage) == 2


def test_results_survive_the_session_and_belong_to_the_caller() -> None:
    fast, x = compiled(lambda x: (x + 1, x * 2)), r(64)
    kept = fast(x)
    for _ in range(20):
        fast(r(64))
    torch._dynamo.reset()
    torch.testing.assert_close(kept, (x + 1, x * 2))
    kept[0].zero_()
    torch.testing.assert_close(kept[1], x * 2)
