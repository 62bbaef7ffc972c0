"""A backend that a factory of an importable module returned is called for, not copied."""

import functools
import json
from typing import Any

import pytest
import vendor_factories as vendor
from torch._dynamo.backends.common import aot_autograd

from fxminify.backends.provenance.origin import spec_of
from fxminify.backends.provenance.spec import BackendSpec

CALLED = {
    "plain": (vendor.plain(2), "plain(2)"),
    "default": (vendor.plain(1), "plain()"),
    "given as keyword": (vendor.plain(level=4), "plain(4)"),
    "keyword-only": (vendor.keywords(2, fuse=True), "keywords(level=2, fuse=True)"),
    "settled": (vendor.settles(names=("a", "b")), 'settles(level=3, names=["a", "b"])'),
    "collected": (vendor.collects("a", "b", limit=3), 'collects("a", "b", limit=3)'),
    "nested": (vendor.nested(5), "nested(5)"),
    "curried": (vendor.curried(6)("z"), 'curried(6)("z")'),
    "by a helper": (vendor.by_helper(1), "by_helper(1)"),
    "derived from an optional argument": (vendor.derives_optional(), "derives_optional()"),
    "partial of a factory": (functools.partial(vendor.plain, 7)(), "plain(7)"),
    "partial of what it made": (functools.partial(vendor.plain(8)), "partial(plain(8))"),
    "aot_autograd inside": (vendor.aot(2), "aot(2)"),
    "decorated inside": (vendor.boxed(2), "boxed(2)"),
    "decorated outside": (vendor.wrapping(vendor.plain(3)), "wrapping(plain(3))"),
    "cached": (vendor.cached(2), "cached(2)"),
    "method": (vendor.Compiler(2).backend(), "Compiler(level=2).backend()"),
    "method with argument": (vendor.Compiler(2).backend("q"), 'Compiler(level=2).backend("q")'),
    "class method": (vendor.Compiler.of_class("c"), 'Compiler.of_class("c")'),
    "static method": (vendor.Compiler.static(3), "Compiler.static(3)"),
    "instance": (vendor.Compiler(4), "Compiler(level=4)"),
    "argument left at its default": (vendor.with_handle(level=2), "with_handle(level=2)"),
    "what it holds cannot be written": (vendor.own_handle(2), "own_handle(2)"),
}


def said(backend: Any) -> str:
    with pytest.raises(RuntimeError) as error:
        backend(None, None)
    return str(error.value)


@pytest.mark.parametrize("name", CALLED)
def test_the_call_is_what_the_program_wrote(name: str) -> None:
    backend, text = CALLED[name]
    spec = spec_of(backend)
    assert spec.problem == ""
    source = spec.to_source()
    written = source.setup[-1].removeprefix("backend = ") if source.setup else source.arguments
    assert written.removeprefix("backend=") == text
    assert "def " not in "\n".join(source.setup)


@pytest.mark.parametrize("name", [name for name in CALLED if "aot" not in name])
def test_the_call_makes_the_same_backend_again(name: str) -> None:
    backend, _ = CALLED[name]
    again = BackendSpec.from_json(json.loads(json.dumps(spec_of(backend).to_json()))).load()
    assert said(again) == said(backend)


@pytest.mark.parametrize(
    "backend",
    [vendor.doubles(2), vendor.derives(2), vendor.with_handle(vendor.Handle(2))],
    ids=lambda b: b.__qualname__,
)
def test_no_call_is_invented(backend: Any) -> None:
    spec = spec_of(backend)
    assert spec.copied is None
    assert spec.how in ("source", "unknown")


def test_the_copy_is_kept_for_the_case_that_the_call_makes_another_backend() -> None:
    called, copied = spec_of(vendor.plain(2)).ways()
    assert (called.how, called.source) == ("factory", None)
    assert copied.how == "source"
    assert "level = 2" in copied.to_source().setup
    assert said(copied.load()) == said(called.load()) == "plain at 2"


def test_what_cannot_be_copied_has_the_call_alone() -> None:
    assert [way.how for way in spec_of(vendor.own_handle(2)).ways()] == ["factory"]


def test_parts_of_a_structure_are_called_for() -> None:
    spec = spec_of(aot_autograd(fw_compiler=vendor.plain(2)))
    assert spec.to_source().setup == ["backend = aot_autograd(fw_compiler=plain(2))"] or (
        spec.to_source().arguments == "backend=aot_autograd(fw_compiler=plain(2))"
    )


def test_a_person_is_asked_about_both() -> None:
    lines = spec_of(vendor.plain(2)).executes()
    assert "imports vendor_factories" in lines
    assert "calls the backend backend: torch.compile(backend=vendor_factories.plain(2))" in lines
    assert lines.index("where that does not show the failure:") < lines.index("| level = 2")
