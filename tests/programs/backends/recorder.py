"""What both sides of a re-creation share: recording specs where backends live, and compiling a function with one."""

import contextlib
import io
import json
import os
import sys
import traceback

import torch


def forward(x):
    return torch.relu(x) + 1


def output_of(compiled) -> str:
    """What the backend prints while a function is compiled with it, and the result."""
    torch._dynamo.reset()
    with contextlib.redirect_stdout(io.StringIO()) as out:
        print(compiled(torch.ones(3)).tolist())
    return out.getvalue()


def in_child(work) -> str:
    """``work()`` in a forked child that has torch and nothing else of ours; its text, or the traceback."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            text = work()
        except BaseException:  # noqa: BLE001  reported to the parent
            text = traceback.format_exc()
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


def record(cases, kwargs) -> None:
    """Print, for every backend, its spec, its source, and what it does here."""
    from fxminify.backends.provenance import origin

    output_of(torch.compile(forward, backend=lambda gm, inputs: gm.forward))
    out = {}
    for name, backend in cases.items():
        given = kwargs.get(name, {})
        spec = origin.spec_of(backend, compile_kwargs=given)
        out[name] = {"spec": spec.to_json(), "problem": spec.problem, "executes": spec.executes()}
        if spec.problem:
            continue
        source = spec.to_source()
        script = [*source.imports, "import torch", "from recorder import forward, output_of", *source.setup]
        script.append(f"compiled = torch.compile(forward, {source.arguments})")
        wrapped = torch.compile(forward, backend=backend, **_copy(given))
        unwrapped = origin.spec_of(_seam(wrapped))
        out[name] |= {
            "imports": source.imports,
            "setup": source.setup,
            "arguments": source.arguments,
            "script": "\n".join(script),
            "here": in_child(lambda wrapped=wrapped: output_of(wrapped)),
            "unwrapped": unwrapped == spec,
            "unwrapped_spec": unwrapped.to_json(),
        }
    json.dump(out, sys.stdout)


def _seam(compiled):
    """The object Dynamo calls as the backend of a compiled function."""
    cells = [c.cell_contents for c in compiled.__closure__]
    return next(c for c in cells if hasattr(c, "_torchdynamo_orig_backend"))


def _copy(given):
    return {k: dict(v) if isinstance(v, dict) else v for k, v in given.items()}


def recreate(cases, path) -> None:
    """Get every backend back: from its source alone, and from its JSON by each method. Each in its own child."""
    _warm()
    out = {}
    for name, case in cases.items():
        out[name] = {
            "source": in_child(lambda case=case: _run(case["script"], path)),
            "callable": in_child(lambda case=case: _called(case["spec"])),
            "compile": in_child(lambda case=case: _compiled(case["spec"])),
        }
    json.dump(out, sys.stdout)


def _warm() -> None:
    """Pay once for what the first compilation of a process costs; the registry stays as it is in a fresh one."""
    import torch._inductor.config
    from torch._dynamo.backends import registry

    torch._inductor.config.compile_threads = 1  # no thread that a fork would lose
    output_of(torch.compile(forward))
    registry._lazy_import.cache_clear()
    registry._discover_entrypoint_backends.cache_clear()
    for name in [n for n, point in registry._BACKENDS.items() if point is not None]:
        del registry._BACKENDS[name]


def _run(script, path) -> str:
    sys.path[:0] = path
    namespace = {"__name__": "__main__"}
    exec(compile(script, "repro.py", "exec"), namespace)  # noqa: S102
    return namespace["output_of"](namespace["compiled"])


def _spec(doc):
    from fxminify.backends.provenance.spec import BackendSpec

    return BackendSpec.from_json(json.loads(json.dumps(doc)))


def _called(doc) -> str:
    spec = _spec(doc)
    return output_of(torch.compile(forward, backend=spec.callable(), dynamic=spec.dynamic))


def _compiled(doc) -> str:
    return output_of(_spec(doc).compile(forward))


def call_operators(cases, path) -> None:
    """Load what registers each operator, from source and from JSON, and compile a call of it. Each in its own child."""
    _warm()
    out = {}
    for name, case in cases.items():
        out[name] = {
            "source": in_child(lambda case=case: _operator(case["call"], "\n".join(case["lines"]), path)),
            "json": in_child(lambda case=case: _operator(case["call"], case["imports"], [])),
        }
    json.dump(out, sys.stdout)


def _operator(call, load, path) -> str:
    sys.path[:0] = path
    namespace = {"__name__": "__main__", "torch": torch}
    if isinstance(load, str):
        exec(compile(load, "repro.py", "exec"), namespace)  # noqa: S102
    else:
        from fxminify.backends.provenance import libraries

        libraries.load(load)
    exec(f"def call(x):\n    return torch.ops.{call}", namespace)  # noqa: S102
    return output_of(torch.compile(namespace["call"], backend="eager"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    with open(sys.argv[2]) as file:
        {"backends": recreate, "operators": call_operators}[sys.argv[1]](json.load(file), sys.argv[3:])
