"""A healthy training of a language model in mixed precision under Inductor."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=256, n_head=4, vocab_size=1000, use_cache=False)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
compiled = torch.compile(model)
tokens = torch.randint(0, 1000, (4, 64), device="cuda")
for _ in range(3):
    with torch.autocast("cuda", torch.bfloat16):
        loss = compiled(tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("trained")
