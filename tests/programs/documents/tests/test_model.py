"""What a test suite has that knows nothing of fxminify: a model, and a failure that it expects."""

import my_backend
import pytest
import torch


def test_a_model_runs():
    assert torch.compile(torch.relu, backend=my_backend.my_backend.__name__)(torch.ones(2)).tolist() == [1, 1]


def test_an_operator_is_not_there_yet():
    with pytest.raises(Exception, match="no kernel for erfinv"):
        torch.compile(lambda x: torch.erfinv(x) + 1, backend=my_backend.my_backend.__name__)(torch.ones(2))
