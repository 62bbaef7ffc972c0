"""A small Mixtral of Hugging Face, compiled by a backend that exports to ONNX. Nothing here knows of fxminify."""

import ort_export  # noqa: F401  registers the backend: tests/failures/ort_export.py
import torch
from transformers import MixtralConfig, MixtralForCausalLM

config = MixtralConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2)
model = torch.compile(MixtralForCausalLM(config).eval(), backend="ort_export")
print(model(torch.tensor([[1, 2, 3]]), use_cache=False).logits)
