"""Tensors of a class of the program or of a package: stored, built, copied and printed in their class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import vendor_classes as vendor
from torch.testing._internal.two_tensor import TwoTensor

import fxminify
from fxminify.backends.provenance import libraries, tensor_classes
from fxminify.backends.running.execution import copy_inputs
from fxminify.repro_templates.source.inputs import print_inputs
from fxminify.store.document.case import Blobs, Case, Graph, Node, to_json
from fxminify.store.document.decode import InvalidDocument, validate
from fxminify.store.index import Index
from fxminify.store.live import subclasses
from fxminify.store.live.build import build
from fxminify.store.live.encode import encode


def with_unit() -> torch.Tensor:
    tensor = torch.arange(4.0).reshape(2, 2).t().as_subclass(vendor.Unit)
    tensor.unit = "m"
    tensor.steps = (1, [2.5, None])  # type: ignore[attr-defined]
    return tensor


def case_of(*inputs: torch.Tensor) -> tuple[Case, Blobs]:
    class Sum(torch.nn.Module):
        def forward(self, *args: torch.Tensor) -> tuple[Any, ...]:
            return (torch.relu(args[0]),)

    imports = tensor_classes.imports_for(inputs)
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"x{i}") for i in range(len(inputs))]
    graph.output((graph.call_function(torch.relu, (nodes[0],)),))
    found = encode(torch.fx.GraphModule({}, graph), inputs)
    backend = {"name": "eager", "how": "registered", "target": "eager"}
    return Case(found.graph, found.inputs, found.tensors, backend=backend, imports=tuple(imports)), found.blobs


def test_a_class_of_a_package_is_imported_and_comes_back_with_its_attributes() -> None:
    case, blobs = case_of(with_unit())
    assert [(item["module"], item["class"]) for item in case.imports] == [("vendor_classes", "vendor_classes.Unit")]
    read = validate(to_json(case))
    assert read == case
    _, (built,) = build(read, blobs)
    assert type(built) is vendor.Unit
    assert vars(built) == {"unit": "m", "steps": (1, [2.5, None])}
    assert built.stride() == (1, 2)
    assert torch.equal(built.as_subclass(torch.Tensor), torch.arange(4.0).reshape(2, 2).t())


def test_a_parameter_of_a_class_of_its_own_stays_a_leaf_that_requires_a_gradient() -> None:
    weight = vendor.Weight(torch.ones(3))
    weight.shard = 2
    case, blobs = case_of(weight)
    _, (built,) = build(validate(to_json(case)), blobs)
    assert (type(built), built.requires_grad, built.is_leaf, built.shard) == (vendor.Weight, True, True, 2)


def test_copies_keep_class_attributes_and_shared_memory() -> None:
    tensor = with_unit()
    first, second, third = copy_inputs([tensor, tensor.as_subclass(torch.Tensor), tensor])
    assert type(first) is vendor.Unit
    assert first is third
    assert vars(first) == vars(tensor)
    assert type(second) is torch.Tensor
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    assert first.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr()
    assert type(copy_inputs([tensor], wide=True)[0]) is torch.Tensor


def test_no_method_of_the_class_is_called() -> None:
    tensor = torch.ones(2).as_subclass(vendor.Loud)
    case, blobs = case_of(tensor)
    _, (built,) = build(case, blobs)
    (copy,) = copy_inputs([built])
    assert {type(built), type(copy)} == {vendor.Loud}


def test_a_class_that_wraps_other_tensors_is_none_of_these() -> None:
    assert not subclasses.has_own_class(TwoTensor(torch.ones(2), torch.ones(2)))
    assert subclasses.has_own_class(with_unit())
    assert not subclasses.has_own_class(torch.nn.Parameter(torch.ones(2)))


def test_the_script_makes_the_tensor_in_its_class() -> None:
    case, blobs = case_of(with_unit())
    printed = print_inputs(case, blobs, ["x"])
    assert [statement.layout() for statement in printed.statements] == [
        "x = torch.tensor([[0.0, 1.0], [2.0, 3.0]]).t().as_subclass(vendor_classes.Unit)",
        'x.unit = "m"',
        "x.steps = (1, [2.5, None])",
    ]
    assert libraries.to_source(case.imports) == ["import vendor_classes"]


def test_an_import_of_a_class_is_needed_as_long_as_a_tensor_has_it() -> None:
    case, _ = case_of(with_unit())
    assert libraries.needed_by(case) == case.imports
    plain = Case(case.graph, case.inputs, tuple(t.__class__(t.dtype, t.shape, t.stride) for t in case.tensors))
    assert libraries.needed(case.imports, [], {spec.subclass for spec in plain.tensors} - {""}) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"subclass": "no name"},
        {"subclass": "a.B", "attributes": {"__class__": 1}},
        {"subclass": "a.B", "attributes": {"x": {"ref": "y"}}},
        {"attributes": {"x": 1}},
    ],
)
def test_a_document_with_another_class_or_attribute_is_refused(changes: dict[str, Any]) -> None:
    tensor = {"dtype": "float32", "shape": [1], "stride": [1], "init": {"fn": "randn"}, **changes}
    graph = Graph((Node("x", "placeholder", "x"), Node("output", "output", "output", ({"ref": "x"},))))
    doc = {**to_json(Case(graph, ({"tensor": 0},))), "tensors": [tensor]}
    with pytest.raises(InvalidDocument):
        validate(doc)


def test_a_failure_that_needs_the_class_is_captured_at_the_level_of_dynamo(tmp_path: Path) -> None:
    def refuses(gm: Any, inputs: Any) -> Any:
        if any(type(value) is vendor.Unit for value in inputs):
            raise RuntimeError("no units")
        return gm.forward

    db = str(tmp_path / "repro.db")
    torch._dynamo.reset()
    with fxminify.capturing(db), pytest.raises(Exception, match="no units"):
        torch.compile(lambda x: torch.relu(x), backend=refuses)(with_unit())
    with Index.open(db) as index:
        case = index.captures.case(1)
    assert [spec.subclass for spec in case.tensors] == ["vendor_classes.Unit"]
