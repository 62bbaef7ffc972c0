"""The shipped adapters for single compilers: Inductor, OpenVINO, IREE and ONNX Runtime."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ...store.signature_rules import SignatureRules
from ..adapters import BackendAdapter, CompilerCache, Illustration
from ..switches import Switch


def _inductor(part: str, **settings: Any) -> Switch:
    """A switch of settings of Inductor; ``cpp__simdlen`` is ``cpp.simdlen``."""
    return Switch(part, {"torch._inductor.config": {k.replace("__", "."): v for k, v in settings.items()}})


class Inductor(BackendAdapter):
    """Torch's own compiler. `torch.compile` wraps the name ``"inductor"`` in classes of its own."""

    backends = ("inductor",)
    signature = SignatureRules(
        masks=((r"\b(?:cpp|triton_\w+?)_fused\w*", "<kernel>"),),
        numbered=("in_ptr", "out_ptr", "in_out_ptr", "cse_var", "zuf"),
        generic=(r"\bC\+\+ compile error(?=\s*\n)",),
        cache_files=(r"^[a-z2-7]{40,}(?=\.)",),
    )
    config_modules = ("torch._inductor.config",)
    config_groups = tuple(
        f"torch._inductor.config.{group}"
        for group in (
            "aot_inductor", "aot_inductor_mode", "aten_distributed_optimizations", "auto_chunker", "cpp", "cuda",
            "cutlass", "eager_numerics", "halide", "lookup_table", "mtia", "rocm", "test_configs", "triton", "xpu",
        )
    )  # fmt: skip
    environment_variables = ("TORCHINDUCTOR_*", "TRITON_*")
    caches = (
        CompilerCache("TORCHINDUCTOR_CACHE_DIR", "{tmp}/torchinductor_{user}", ("??/*.so", "triton/*/*/*")),
        # Precompiled headers lie in the default place, wherever the cache is.
        CompilerCache("TMPDIR", "{tmp}", ("torchinductor_{user}/precompiled_headers/*",)),
        CompilerCache("TRITON_HOME", "~", (".triton/cache/*/*",)),
    )
    preload = ("torch._inductor.compile_fx", "torch._inductor.codegen.cpp", "torch._inductor.cpu_vec_isa")
    worker_environment: Mapping[str, str] = {
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # Every candidate is compiled: an answer from a cache of graphs would say nothing about the compiler.
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
    }
    sets_variables = ("TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TRITON_")
    lowers_with_aot_autograd = True
    source_directories = ("torch/_inductor/",)
    switches = (
        _inductor("vectorised loop tails", cpp__enable_loop_tail_vec=False),
        _inductor("vectorised C++ code", cpp__simdlen=1),
        _inductor("parallel C++ loops", cpp__threads=1),
        _inductor("packed weights on the CPU", cpp__weight_prepack=False),
        _inductor("precision of fused casts", emulate_precision_casts=True),
        _inductor("random numbers of its own", fallback_random=True),
        _inductor("fusion of epilogues", epilogue_fusion=False),
        _inductor("fusion of kernels", max_fusion_size=1),
        _inductor("recomputation of intermediate values", realize_reads_threshold=0, realize_opcount_threshold=0),
        _inductor("order of fused loops", loop_ordering_after_fusion=False, reorder_for_locality=False),
        _inductor("split reductions", split_reductions=False),
        _inductor("results written into inputs", inplace_buffers=False),
        _inductor("reuse of memory", allow_buffer_reuse=False, reorder_for_peak_memory=False),
        _inductor("choice of layouts", layout_optimization=False),
        _inductor("padding", comprehensive_padding=False, shape_padding=False),
        _inductor("folding of constants", joint_graph_constant_folding=False),
        _inductor("removal of unused nodes", use_dce=False),
        Switch("common subexpressions of AOTAutograd", {"torch._functorch.config": {"cse": False}}),
        _inductor("pre-grad passes", use_pre_grad_passes=False),
        _inductor("joint-graph passes", use_joint_graph_passes=False),
        _inductor("post-grad passes", use_post_grad_passes=False),
        _inductor("pattern matcher", pattern_matcher=False),
        _inductor("lowerings to code of its own", fallback_by_default=True),
    )
    modes = ("reduce-overhead", "max-autotune-no-cudagraphs", "lite")
    subsystems: Mapping[str, str] = {
        "pre_grad_passes": "pre-grad pass",
        "joint_graph_passes": "joint-graph pass",
        "post_grad_passes": "post-grad pass",
        "lowerings": "lowering of",
    }
    tracker_labels = ("oncall: pt2", "module: inductor")
    illustration_heading = "Generated code"
    illustration_module = "torch._inductor.compile_fx"
    missing_tools = (
        "torch._inductor.exc.InvalidCxxCompiler", "torch._inductor.exc.TritonMissing",
        "torch._inductor.exc.GPUTooOldForTriton",
    )  # fmt: skip

    def __init__(self) -> None:
        self._warm = False

    def packager(self, options: Mapping[str, Any]) -> tuple[Callable[..., Any], Mapping[str, Any]]:
        from .aoti import aot_inductor, settings

        return aot_inductor, settings(options)

    def warm(self) -> None:
        """Probe which vector instructions work here. The answer is cached in the process, so workers inherit it.

        Inductor compiles and loads a test in child processes, some seconds for each set of instructions where its
        code cache is empty, so they are probed side by side. Leans on the private ``torch._inductor.cpu_vec_isa``.
        """
        if self._warm or "torch._inductor.codegen.cpp" not in sys.modules:
            return
        self._warm = True
        with contextlib.suppress(Exception):  # no compiler, say: the workers meet it again, where it is a failure
            from torch._inductor import codecache, cpp_builder, cpu_vec_isa  # noqa: F401  before a thread imports them

            with contextlib.suppress(AttributeError):  # another torch: the call below finds out the same, one by one
                known = set(cpu_vec_isa.x86_isa_checker())
                likely = [isa for isa in cpu_vec_isa.supported_vec_isa_list if known.issuperset(str(isa).split())]
                with ThreadPoolExecutor(max(1, len(likely))) as together:
                    list(together.map(bool, likely))
            cpu_vec_isa.valid_vec_isa_list()

    def wrapper(
        self, options: Mapping[str, Any] | None, mode: str | None, dynamic: bool | None
    ) -> Callable[[Any, Any], Any]:
        import torch

        given = dict(options or {})
        ahead_of_time = given.pop("use_aoti", False)
        cls = torch._TorchCompileAOTInductorWrapper if ahead_of_time else torch._TorchCompileInductorWrapper
        return cls(mode, given or None, dynamic)  # type: ignore[no-untyped-call]

    def unwrap(self, obj: Any) -> tuple[Mapping[str, Any] | None, str | None, bool | None] | None:
        import torch

        if not isinstance(obj, torch._TorchCompileInductorWrapper):
            return None
        from torch._inductor import list_mode_options

        config = dict(obj.config)
        if isinstance(obj, torch._TorchCompileAOTInductorWrapper):
            config = {k: v for k, v in config.items() if k not in ("cpp_wrapper", "aot_inductor.package")}
            return {**config, "use_aoti": True}, None, obj.dynamic
        for mode, patches in list_mode_options(dynamic=obj.dynamic).items():
            if config and config == patches:
                return None, mode, obj.dynamic
        return config or None, None, obj.dynamic

    def illustrations(self) -> contextlib.AbstractContextManager[Callable[[], list[Illustration]]]:
        from .inductor_code import collected

        return collected()

    def limited(self, subsystem: str, most: int) -> contextlib.AbstractContextManager[list[str]]:
        from .applications import limited

        return limited(subsystem, most)

    def limit_variables(self, subsystem: str, most: int) -> Mapping[str, str]:
        own = {"BACKEND": "inductor", "SUBSYSTEM": subsystem, "MAX": str(most - 1)}
        return {f"TORCH_BISECT_{name}": value for name, value in own.items()}

    def checks(self) -> Iterator[tuple[str, bool, str]]:
        found = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
        yield "C++ compiler", bool(found), Path(found).name if found else "none found: Inductor on CPU needs g++"


class AotEager(BackendAdapter):
    """Torch's backends for debugging that run the graphs of AOTAutograd in eager."""

    backends = ("aot_eager", "aot_eager_decomp_partition", "aot_eager_default_partitioner")
    lowers_with_aot_autograd = True
    tracker_labels = ("oncall: pt2", "module: aotdispatch")


class OpenVino(BackendAdapter):
    """Intel's compiler. It falls back to eager or to Inductor where it does not support a graph."""

    backends = ("openvino",)
    environment_variables = ("OPENVINO_*", "OV_*")
    caches = (CompilerCache("OPENVINO_TORCH_CACHE_DIR"),)
    switches = (
        Switch("lower precision of inference", options={"config": {"INFERENCE_PRECISION_HINT": "f32"}}),
        Switch("parallel streams", options={"config": {"NUM_STREAMS": "1", "INFERENCE_NUM_THREADS": "1"}}),
    )
    needs: Mapping[str, tuple[str, str]] = {"openvino": ("openvino", "pip install openvino")}


class Iree(BackendAdapter):
    """IREE through iree-turbine. It raises one message for every bug and prints the diagnosis to standard error."""

    backends = ("turbine_cpu", "turbine_mlir")
    signature = SignatureRules(generic=(r"^JIT compilation failed\. See diagnostics\.",))
    environment_variables = ("IREE_*", "TURBINE_*")


class OnnxRuntime(BackendAdapter):
    """The backends ``fxminify_ort`` and ``fxminify_onnx_reference``. A report shows the ONNX models that they make."""

    backends = ("fxminify_ort", "fxminify_onnx_reference")
    not_tried = ("fxminify_onnx_reference",)
    signature = SignatureRules(
        noise=(r"\[[IWV]:",),
        errors=(r"\[[EF]:",),
        prefixes=(r"^\d{4}-\d\d-\d\d [\d:.]+ (?=\[[EF]:)",),
        # The steps of `torch.onnx.export`, for every caller.
        wrappers=(r"^Failed to (?:export the model|decompose the FX graph|convert the exported program)\b",),
    )
    environment_variables = ("ORT_*",)
    needs: Mapping[str, tuple[str, str]] = {
        "fxminify_ort": ("onnxruntime", "pip install 'fxminify[onnxrt]'"),
        "fxminify_onnx_reference": ("onnxscript", "pip install 'fxminify[onnxrt]'"),
    }
    switches = (
        *(
            Switch(f"ONNX Runtime's optimizations above level {level}",
                   options={"session_options": {"graph_optimization_level": f"ORT_{name}"}})
            for level, name in (("extended", "ENABLE_EXTENDED"), ("basic", "ENABLE_BASIC"))
        ),
        Switch("ONNX Runtime's optimizations",
               options={"session_options": {"graph_optimization_level": "ORT_DISABLE_ALL"}}),
        Switch("frozen parameters", options={"freeze": False}),
        Switch("optimizer of onnxscript", options={"optimize": False}),
        Switch("decompositions of fxminify_ort", options={"decompositions": "none"}),
    )  # fmt: skip
    illustration_heading = "ONNX models"
    illustration_module = "fxminify.backends.shipped.onnxrt.compiler"

    @contextlib.contextmanager
    def illustrations(self) -> Iterator[Callable[[], list[Illustration]]]:
        from .onnxrt.storage import StoredModel, watching

        def shown(model: StoredModel) -> Illustration:
            picture = model.svg() if len(model.onnx.graph.node) <= 1000 else ""
            return Illustration(f"{model.report.kind} {model.name}", model.text(), picture, model.error)

        with watching() as seen:
            yield lambda: [shown(model) for model in seen.models]

    @contextlib.contextmanager
    def fallbacks(self) -> Iterator[Callable[[], list[str]]]:
        from .onnxrt.storage import watching

        with watching() as seen:
            yield lambda: [line for report in seen.reports for line in report.fallbacks()]


class RegisteredByTorch(BackendAdapter):
    """Backends whose names torch registers for packages that may be missing."""

    needs: Mapping[str, tuple[str, str]] = {
        "tvm": ("tvm", "pip install apache-tvm"),
        "openxla": ("torch_xla", "pip install torch_xla"),
        "openxla_eval": ("torch_xla", "pip install torch_xla"),
        "tensorrt": ("torch_tensorrt", "pip install torch-tensorrt"),
        "torch_tensorrt": ("torch_tensorrt", "pip install torch-tensorrt"),
        "hpu_backend": ("habana_frameworks", "see the documentation of Intel Gaudi"),
        "ipex": ("intel_extension_for_pytorch", "pip install intel-extension-for-pytorch"),
    }
    backends = tuple(needs)
    fails_on_purpose = (
        "relu_compile_error_TESTING_ONLY", "relu_runtime_error_TESTING_ONLY", "relu_accuracy_error_TESTING_ONLY",
        "non_leaf_compile_error_TESTING_ONLY",
    )  # fmt: skip
    not_tried = ("cudagraphs", "openxla", "openxla_eval", "tvm")


class Own(BackendAdapter):
    """The other backends of fxminify: they print, explain, chain backends or raise."""

    backends = (
        "fxminify_chain", "fxminify_explain", "fxminify_faulty", "fxminify_print_graph", "fxminify_torchscript",
    )  # fmt: skip
    not_tried = backends
    fails_on_purpose = ("fxminify_faulty",)


own = Own()
aot_eager = AotEager()
inductor = Inductor()
openvino = OpenVino()
iree = Iree()
onnxruntime = OnnxRuntime()
registered_by_torch = RegisteredByTorch()
