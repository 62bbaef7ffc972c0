"""The audit: no operator gives other numbers than eager in silence, outside `partition.WRONG`.

An operator that fails here belongs in ``WRONG`` or ``WRONG_WHEN``; ``python tests/shared/audit.py`` lists them all.
"""

from __future__ import annotations

import pytest
import torch
from audit import audit, everything, unlisted
from operators import recorded

from fxminify.backends.shipped.onnxrt import decompositions, partition

pytest.importorskip("expecttest", reason="torch's operator database imports it")

#: Entries of the database whose operators are audited by default: where mistakes were found, or would hurt most.
SAMPLED = (
    "addmm", "nn.functional.layer_norm", "nn.functional.nll_loss", "index_select", "scatter_add", "var_mean", "nonzero",
    "floor_divide",
)  # fmt: skip


@pytest.mark.process
def test_sampled_operators_agree_with_eager() -> None:
    calls = recorded(SAMPLED)
    assert {op for op in calls if torch.ops.aten.nll_loss_forward in (op, op.overloadpacket)}
    assert len(calls) > 15
    assert audit(calls, decompositions.table("default")) == {}


@pytest.mark.slow
def test_every_operator_agrees_with_eager() -> None:
    calls = everything()
    assert len(calls) > 150
    assert audit(calls, decompositions.table("default")) == {}


def test_what_is_wrong_can_be_listed_again() -> None:
    """Without the lists, operators on them go wrong, and the lists are whole again afterwards."""
    before = dict(partition.WRONG), dict(partition.WRONG_WHEN)
    assert list(unlisted(["nn.functional.nll_loss"])) == ["aten::nll_loss_forward"]
    assert before == (partition.WRONG, partition.WRONG_WHEN)
