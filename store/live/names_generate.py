"""Generate the table of names from the installed torch: ``python -m fxminify.store.live.names_generate``.

The rules here decide what enters the table. They are narrow enough to review, and short lists give reasons. With
``--shipped`` the package's own table is written: run it with the newest torch that the project supports, and read the
difference, because a stored file may call every name in it. Otherwise the names are kept for the installed torch, in
this user's cache (`fxminify.store.document.names_cache`).
"""

from __future__ import annotations

import ast
import builtins
import inspect
import json
import math
import operator
import pkgutil
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.overrides
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket, _higher_order_ops

from ..document import names_cache
from ..document.names import SHIPPED, growable
from ..parsing import parse


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


#: Modules of plain tensor functions. The first that holds an object gives it its name.
FUNCTION_MODULES = (
    "torch", "torch.nn.functional", "torch.functional", "torch.linalg", "torch.fft", "torch.special", "torch.nn.init",
    "torch._C._nn", "torch._C._fft", "torch._C._linalg", "torch._C._special", "torch._C._sparse", "torch._C._nested",
    "torch._VF",
)  # fmt: skip

#: Modules whose public functions are all pure: what they define themselves enters, overridable or not.
PURE_MODULES = ("torch.nn.functional", "torch.linalg", "torch.fft", "torch.special")
#: Public callables of torch that have no name in the table, by the reason why. A test walks all others.
EXCLUDED = {
    "reaches files, raw memory or other code": words(
        "torch.compile torch.fork torch.wait torch.from_dlpack torch.to_dlpack torch.from_file torch.from_numpy"
        " torch.frombuffer torch.load torch.save torch.get_file_path torch.import_ir_module"
        " torch.import_ir_module_from_buffer torch.parse_ir torch.parse_schema torch.parse_type_comment"
        " torch.merge_type_from_type_comment torch.unify_type_list torch.prepare_multiprocessing_environment"
        " torch.profiler_allow_cudagraph_cupti_lazy_reinit_cuda12 torch.is_vulkan_available torch.get_device_module"
        " torch.set_printoptions torch.thread_safe_generator torch.classproperty"
    ),
    "reads or changes a setting of the process, which Dynamo does while it traces": words(
        "torch.are_deterministic_algorithms_enabled torch.get_autocast_cpu_dtype torch.get_autocast_dtype"
        " torch.get_autocast_gpu_dtype torch.get_autocast_ipu_dtype torch.get_autocast_xla_dtype"
        " torch.get_default_device torch.get_deterministic_debug_mode torch.get_float32_matmul_precision"
        " torch.get_num_interop_threads torch.get_num_threads torch.init_num_threads"
        " torch.is_anomaly_check_nan_enabled torch.is_anomaly_enabled torch.is_autocast_cache_enabled"
        " torch.is_autocast_cpu_enabled torch.is_autocast_ipu_enabled torch.is_autocast_xla_enabled"
        " torch.is_deterministic_algorithms_warn_only_enabled torch.is_warn_always_enabled torch.set_anomaly_enabled"
        " torch.set_autocast_cpu_dtype torch.set_autocast_cpu_enabled torch.set_autocast_dtype"
        " torch.set_autocast_gpu_dtype torch.set_autocast_ipu_dtype torch.set_autocast_ipu_enabled"
        " torch.set_autocast_xla_dtype torch.set_autocast_xla_enabled torch.set_default_device torch.set_default_dtype"
        " torch.set_default_tensor_type torch.set_deterministic_debug_mode torch.set_float32_matmul_precision"
        " torch.set_flush_denormal torch.set_num_interop_threads torch.set_num_threads torch.set_warn_always"
        " torch.use_deterministic_algorithms"
    ),
    "takes a function: Dynamo puts a higher-order operator into the graph instead": words(
        "torch.cond torch.vmap torch.while_loop"
    ),
    "was removed from torch and only raises": words(
        "torch.eig torch.lstsq torch.matrix_rank torch.solve torch.symeig"
    ),
    "returns no tensor, or forwards to the function of the same name that ends with an underscore": words(
        "torch.nn.init.calculate_gain torch.nn.init.constant torch.nn.init.dirac torch.nn.init.eye"
        " torch.nn.init.kaiming_normal torch.nn.init.kaiming_uniform torch.nn.init.normal torch.nn.init.orthogonal"
        " torch.nn.init.sparse torch.nn.init.uniform torch.nn.init.xavier_normal torch.nn.init.xavier_uniform"
        " torch.nn.functional.assert_int_or_pair"
    ),
}  # fmt: skip
_EXCLUDED = frozenset(name for names in EXCLUDED.values() for name in names)

#: Functions that reach outside tensors: files, raw memory, process-wide caches, self-tests, printing.
FUNCTION_DENY = re.compile(
    r"(from_file|from_numpy|frombuffer|from_dlpack|_from_blob|_print|_foobar|_test_.*|_cufft_.*|_propagate_xla_data"
    r"|_parse_to|_has_compatible_shallow_copy_type|_debug_.*|is_vulkan_available|_nnpack_available)\Z"
)

#: What functorch has under a public and a private module.
_TRANSFORMS = words(
    "_add_batch_dim _remove_batch_dim _vmap_increment_nesting _vmap_decrement_nesting _jvp_increment_nesting"
    " _jvp_decrement_nesting _unwrap_for_grad"
)
#: Seen in real graphs or needed by them, and outside the modules above.
EXTRA_FUNCTIONS = (
    # Symbolic numbers and asserts.
    *(f"torch.sym_{n}" for n in words("float fresh_size int ite max min not sqrt sum")),
    *(f"torch._sym_{n}" for n in words("acos asin atan cos cosh log2 sin sinh sqrt tan tanh")),
    *(f"torch._check{n}" for n in ("", "_index", "_is_size", "_tensor_all", "_value", "_type")),
    "torch.fx.experimental.symbolic_shapes.guard_size_oblivious",
    "torch.fx.experimental.symbolic_shapes.sym_eq",
    "torch.fx.experimental.symbolic_shapes.guard_or_false",
    "torch.fx.experimental.symbolic_shapes.guard_or_true",
    "torch.fx.experimental.symbolic_shapes.cast_symbool_to_symint_guardless",
    # Regions: grad, inference, autocast, saved-tensor hooks, SDPA.
    "torch._C._set_grad_enabled", "torch._C._set_fwd_grad_enabled",
    "torch.autograd.grad_mode._enter_inference_mode", "torch.autograd.grad_mode._exit_inference_mode",
    "torch.amp.autocast_mode._enter_autocast", "torch.amp.autocast_mode._exit_autocast",
    "torch.set_autocast_enabled", "torch.set_autocast_cache_enabled", "torch.is_autocast_enabled",
    "torch.autocast_increment_nesting", "torch.autocast_decrement_nesting", "torch.clear_autocast_cache",
    "torch._C._autograd._get_data_attr",
    "torch._C._autograd._saved_tensors_hooks_disable", "torch._C._autograd._saved_tensors_hooks_enable",
    "torch.nn.attention._sdpa_kernel", "torch.nn.attention._sdpa_kernel_variadic",
    "torch.nn.attention._backend_from_string", "torch._C._set_sdp_use_math",
    "torch.autograd.grad", "torch.autograd.backward",
    "torch._C._log_api_usage_once",
    # functorch.
    *(f"torch._functorch.predispatch.{n}" for n in (
        *_TRANSFORMS, "_make_dual", "_unpack_dual", "_enter_dual_level", "_exit_dual_level", "lazy_load_decompositions",
    )),
    *(f"torch._C._functorch.{n}" for n in (
        *_TRANSFORMS, "_grad_increment_nesting", "_grad_decrement_nesting", "_wrap_for_grad",
        "set_inplace_requires_grad_allowed", "get_inplace_requires_grad_allowed",
    )),
    "torch._C._enter_dual_level", "torch._C._exit_dual_level",  # of torch 2.12, which has no others
    "torch.autograd.forward_ad.enter_dual_level", "torch.autograd.forward_ad.exit_dual_level",
    "torch.autograd.forward_ad.make_dual", "torch.autograd.forward_ad.unpack_dual",
    "torch._functorch.eager_transforms._set_tensor_requires_grad",
    "torch._functorch.eager_transforms._assert_wrapped_functional", "torch._functorch.eager_transforms._autograd_grad",
    "torch.autograd.forward_ad._maybe_load_decompositions",
    # Random numbers.
    "torch.manual_seed", "torch.random.manual_seed", "torch.seed", "torch.random.seed", "torch.initial_seed",
    "torch.random.initial_seed", "torch.get_rng_state", "torch.set_rng_state", "torch.random.get_rng_state",
    "torch.random.set_rng_state",
    # Factories and queries written in Python.
    "torch.get_default_dtype", "torch.is_grad_enabled", "torch.is_inference_mode_enabled", "torch.typename",
    "torch.is_tensor", "torch.is_storage", "torch.compiled_with_cxx11_abi", "torch.broadcast_shapes",
    "torch.nested.nested_tensor_from_jagged", "torch.nested.narrow", "torch.nested.as_nested_tensor",
    "torch.nested.nested_tensor", "torch.nested.to_padded_tensor", "torch.nested.masked_select",
    "torch.nested._internal.nested_tensor.nested_view_from_values_offsets",
    "torch.nested._internal.nested_tensor.nested_view_from_values_offsets_lengths",
    "torch.nested._internal.nested_tensor.nested_from_padded",
    "torch.sparse.mm", "torch.sparse.addmm", "torch.sparse.sum", "torch.sparse.softmax", "torch.sparse.log_softmax",
    "torch.sparse.spdiags", "torch.sparse.spsolve", "torch.sparse.sampled_addmm",
    *(f"torch.masked._ops.{n}" for n in (
        "softmax", "log_softmax", "softmin", "normalize", "sum", "prod", "mean", "var", "std", "amax", "amin",
        "argmax", "argmin", "median", "logsumexp", "logaddexp", "norm", "cumsum", "cumprod",
    )),
    "torch.backends.cuda.can_use_flash_attention", "torch.backends.cuda.can_use_efficient_attention",
    "torch.nn.functional._in_projection_packed", "torch.nn.functional._canonical_mask",
    # Classes that graphs call.
    "torch.Size", "torch.device", "torch.autograd.forward_ad.UnpackedDualTensor",
    "torch.nn.attention.flex_attention.flex_attention", "torch._dynamo._trace_wrapped_higher_order_op.mod_index",
)  # fmt: skip

#: ``operator`` without attrgetter, itemgetter, methodcaller and call, which turn strings into code.
OPERATORS = words(
    "abs add and_ concat contains countOf delitem eq floordiv ge getitem gt iadd iand iconcat ifloordiv ilshift imatmul"
    " imod imul index indexOf inv invert ior ipow irshift is_ is_not isub itruediv ixor le length_hint lshift lt matmul"
    " mod mul ne neg not_ or_ pos pow rshift setitem sub truediv truth xor"
)
BUILTINS = words("abs all any bool complex divmod float getattr int len list max min pow round slice sum tuple")

#: Tensor methods that run user code, hand out memory or pickles, or touch other processes.
METHOD_DENY = frozenset(
    words(
        "apply_ map_ map2_ backward register_hook register_post_accumulate_grad_hook reinforce numpy storage"
        " untyped_storage storage_type data_ptr share_memory_ is_shared module_load set_ resize_as_sparse_ dlpack"
        " record_stream grad_fn refine_names align_to align_as rename rename_ has_names names as_subclass"
        " const_data_ptr mutable_data_ptr tolist_ shm_ from_file"
    )
)
METHOD_DUNDERS = tuple(
    f"__{prefix}{name}__"
    for name in words("add sub mul truediv floordiv mod pow matmul and or xor lshift rshift div")
    for prefix in ("", "r", "i")
) + tuple(
    f"__{n}__"
    for n in words("abs neg pos invert eq ne lt le gt ge getitem setitem len contains bool int float index complex")
)
METHOD_EXTRAS = (
    "_to_dense", "_to_sparse", "_nnz", "_indices", "_values", "_coalesced_", "_conj", "_conj_physical", "_neg_view",
    "_is_view", "_is_zerotensor", "_is_all_true", "_is_any_true", "_addmm_activation", "_lazy_clone",
)  # fmt: skip

GETATTR = words(
    "T mT H mH real imag shape dtype device ndim grad data layout requires_grad is_leaf itemsize nbytes is_sparse"
    " is_sparse_csr is_quantized is_nested is_meta is_cpu is_cuda is_mps is_xpu values indices"
    " primal tangent"  # of an UnpackedDualTensor
)

#: Namespaces of pure computation, and the torch modules that must be imported for all of their operators.
NAMESPACES = (
    "aten", "prims", "quantized", "_quantized", "quantized_decomposed", "onednn", "mkldnn", "mkl", "mkldnn_prepacked",
    "sparse", "inductor", "inductor_prims", "rngprims", "_c10d_functional", "_c10d_functional_autograd", "flex_lib",
    "onnx",
)  # fmt: skip
LIBRARIES = (
    "torch.onnx.ops", "torch.ao.quantization.fx._decomposed", "torch.distributed._functional_collectives",
    "torch._prims.rng_prims", "torch._higher_order_ops", "torch._functorch.autograd_function",
    "torch._inductor.inductor_prims", "torch._inductor.fx_passes.control_dependencies",
    "torch._inductor.kernel.symmetric_mm",  # since torch 2.15
    "torch._dynamo._trace_wrapped_higher_order_op",
)  # fmt: skip
#: Operators that open files, print, take raw memory, re-run autograd or test torch itself.
OP_DENY = re.compile(
    r"aten::(from_file|_from_blob|save|load|set_data|_print|print|warn|Device|_to_cpu|is_shared|_debug.*|_backward"
    r"|record_stream|_cufft_.*|_propagate_xla_data|_test_.*|_foobar|_has_compatible_shallow_copy_type|_share_memory.*"
    r"|set_\.source_(Storage.*|Tensor_storage_offset)|set\.source_(Storage.*|Tensor_storage_offset))(\.|\Z)"
    r"|prims::(device_put_.*|_make_token|_sink_tokens)(\.|\Z)"
)
#: Argument types of an operator that a document cannot give.
TYPE_DENY = re.compile(r"\b(Storage|Stream|__torch__\S*|Capsule)\b")

#: Operators over Python callables, engines of other runtimes, and process-wide tables.
HOP_DENY = frozenset(
    words(
        "call_torchbind inductor_compiled_code invoke_leaf_function executorch_call_delegate aoti_call_delegate"
        " triton_kernel_wrapper_mutation triton_kernel_wrapper_functional inline_asm_elementwise register_hook"
        " custom_function_call flat_apply dynamo_bypassing_wrapper local_map_hop _export_tracepoint"
    )
)

ALIASES = {f"torch._functorch.predispatch.{n}": [f"torch._C._functorch.{n}"] for n in _TRANSFORMS}
#: ``torch.ops`` namespaces that are not in the dispatcher's list but are torch's.
MORE_NAMESPACES = ("prim", "torchbind", "cuda", "fb", "_caffe2", "torch", "higher_order", "loaded_libraries")
ENUMS = {"SDPBackend": "torch.nn.attention"}
#: Higher-order operators that are no class of their own.
_DEFINED_IN = {"hints_wrapper": "torch._higher_order_ops.hints_wrap"}
MODULE_DENY = ("torch.nn.modules.module.Module",)


def functions() -> list[str]:
    """Plain functions by one name each, the most public one."""
    allowed = {id(f) for module, fs in torch.overrides.get_overridable_functions().items() for f in fs}
    allowed |= {id(getattr(torch._C._VariableFunctions, n)) for n in _public(torch._C._VariableFunctions)}
    named: dict[int, str] = {}
    keep: list[Any] = []
    for path in FUNCTION_MODULES:
        module = import_module(path)
        native = path.startswith("torch._C.")
        for name in sorted(vars(module)):
            if name.startswith("__") or FUNCTION_DENY.match(name) or f"{path}.{name}" in _EXCLUDED:
                continue
            obj = getattr(module, name)
            if not callable(obj) or inspect.isclass(obj) or isinstance(obj, ModuleType):
                continue
            own = path in PURE_MODULES and not name.startswith("_") and obj.__module__ == path
            initializer = path == "torch.nn.init" and name.endswith("_")
            if id(obj) in allowed or own or (native and inspect.isbuiltin(obj)) or initializer:
                named.setdefault(id(obj), f"{path}.{name}")
                keep.append(obj)
    # Bound methods of `_VariableFunctions` are made anew at each look-up: torch's own ones are listed by name.
    for name in _public(torch._C._VariableFunctions):
        if hasattr(torch, name) and not FUNCTION_DENY.match(name):
            obj = getattr(torch, name)
            named.setdefault(id(obj), f"torch.{name}")
            keep.append(obj)
    names = set(named.values()) | {q for q in EXTRA_FUNCTIONS if _exists(q)}
    names |= {f"_operator.{n}" for n in OPERATORS if hasattr(operator, n)}
    names |= {f"math.{n}" for n in dir(math) if not n.startswith("_") and callable(getattr(math, n))}
    names |= {f"builtins.{n}" for n in BUILTINS if hasattr(builtins, n)}
    return sorted(names)


def _public(holder: Any) -> list[str]:
    return [n for n in dir(holder) if not n.startswith("__")]


def _exists(name: str) -> bool:
    module, _, leaf = name.rpartition(".")
    try:
        return callable(getattr(import_module(module), leaf))
    except (ImportError, AttributeError):
        print(f"not in this torch: {name}")
        return False


def methods() -> list[str]:
    names = {n for n in dir(torch.Tensor) if not n.startswith("_") and callable(getattr(torch.Tensor, n))}
    names |= {n for n in (*METHOD_DUNDERS, *METHOD_EXTRAS) if hasattr(torch.Tensor, n)}
    return sorted(names - METHOD_DENY)


def operators() -> tuple[list[str], dict[str, str], list[str]]:
    """Overloads of the listed namespaces, the module to import for those not there at first, all namespaces."""
    seen = set(torch._C._dispatch_get_all_op_names())
    libraries: dict[str, str] = {}
    for path in LIBRARIES:
        try:
            package = import_module(path)
        except ImportError:
            print(f"not in this torch: {path}")
            continue
        for info in pkgutil.iter_modules(package.__path__) if path == "torch._higher_order_ops" else ():
            import_module(f"{path}.{info.name}")
        now = set(torch._C._dispatch_get_all_op_names())
        libraries |= {name.partition(".")[0]: path for name in now - seen if name.partition("::")[0] in NAMESPACES}
        seen = now
    found: set[str] = set()
    for full in seen:
        space, _, rest = full.partition("::")
        packet, _, overload = rest.partition(".")
        if space not in NAMESPACES or OP_DENY.match(full):
            continue
        name = overload or "default"
        holder = getattr(getattr(torch.ops, space), packet)
        if not isinstance(holder, OpOverloadPacket) or name not in holder.overloads():
            continue
        op = getattr(holder, name)
        if isinstance(op, OpOverload) and not any(TYPE_DENY.search(str(a.type)) for a in op._schema.arguments):
            found.add(f"{space}::{packet}.{name}")
    spaces = {n.partition("::")[0] for n in seen} | set(MORE_NAMESPACES)
    packets = {op.partition(".")[0] for op in found}
    return sorted(found), {p: m for p, m in sorted(libraries.items()) if p in packets}, sorted(spaces)


def hops() -> dict[str, str]:
    return {
        name: _DEFINED_IN.get(name, type(op).__module__)
        for name, op in sorted(_higher_order_ops.items())
        if isinstance(op, HigherOrderOperator) and name not in HOP_DENY
    }


def modules() -> dict[str, list[str]]:
    """Classes of ``torch.nn`` and the attributes that their code assigns on ``self``, bases included."""
    reserved = set(reserved_attributes())
    out = {}
    for info in pkgutil.iter_modules(torch.nn.modules.__path__):
        module = import_module(f"torch.nn.modules.{info.name}")
        for cls in vars(module).values():
            if not (inspect.isclass(cls) and issubclass(cls, torch.nn.Module) and cls.__module__ == module.__name__):
                continue
            name = f"{cls.__module__}.{cls.__qualname__}"
            if name in MODULE_DENY or "lazy" in name.lower():
                continue
            attrs = {a for base in cls.__mro__ if base is not object for a in _assigned(base)}
            methods_ = {n for n in dir(cls) if callable(getattr(cls, n)) or isinstance(getattr(cls, n), property)}
            out[name] = sorted(a for a in attrs - reserved - methods_ if not a.startswith("__"))
    return dict(sorted(out.items()))


def _assigned(cls: type) -> set[str]:
    tree = parse(inspect.cleandoc("\n" + inspect.getsource(cls)))
    targets = [
        t
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for t in (target.elts if isinstance(target, ast.Tuple) else [target])
    ]
    attributes = [t for t in targets if isinstance(t, ast.Attribute)]
    return {t.attr for t in attributes if isinstance(t.value, ast.Name) and t.value.id == "self"}


def reserved_attributes() -> list[str]:
    """Return the attributes that `torch.fx.GraphModule` itself uses."""
    module = torch.fx.GraphModule(torch.nn.Module(), torch.fx.Graph())
    return sorted(set(dir(module)) | set(vars(module)))


def _torch_objects(kind: type) -> list[str]:
    return sorted({str(v).removeprefix("torch.") for v in vars(torch).values() if isinstance(v, kind)})


def generate() -> dict[str, Any]:
    ops, libraries, namespaces = operators()
    return {
        "torch": torch.__version__.partition("+")[0],
        "aliases": ALIASES,
        "devices": sorted({"cpu", "cuda", "meta", "mps", "xpu", "hpu", "mtia", "xla", "npu", "privateuseone"}),
        "dtypes": {n: getattr(torch, n).itemsize for n in _torch_objects(torch.dtype)},
        "enums": {n: sorted(getattr(import_module(m), n).__members__) for n, m in ENUMS.items()},
        "layouts": _torch_objects(torch.layout),
        "memory_formats": _torch_objects(torch.memory_format),
        "qschemes": _torch_objects(torch.qscheme),
        "return_types": sorted(n for n, v in vars(torch.return_types).items() if inspect.isclass(v)),
        "namespaces": namespaces,
        "libraries": libraries,
        "hops": hops(),
        "getattr": sorted(GETATTR),
        "methods": methods(),
        "modules": modules(),
        "reserved": reserved_attributes(),
        "functions": functions(),
        "ops": ops,
    }


def main(*arguments: str) -> None:
    """``--shipped`` writes the package's own table, ``--to PATH`` another file, no argument the user's cache."""
    content = (json.dumps(generate(), indent=1) + "\n").encode("ascii")
    if arguments == ("--shipped",):
        SHIPPED.write_bytes(content)
    elif path := Path(arguments[1]) if arguments[:1] == ("--to",) else growable():
        names_cache.write(path, content)
    else:
        print(f"the table has the names of torch {torch.__version__} already")


if __name__ == "__main__":
    main(*sys.argv[1:])
