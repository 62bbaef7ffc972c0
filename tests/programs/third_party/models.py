"""Small models of transformers with random weights: ``python models.py BACKEND NAME``. It knows nothing of fxminify."""

import sys

import torch
import transformers

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
TEXT = {"vocab_size": 97, **SMALL}
IMAGE = {"image_size": 16, "patch_size": 4, **SMALL}


def tokens():
    return torch.randint(2, 97, (2, 7))


def vit():
    return transformers.ViTModel(transformers.ViTConfig(**IMAGE)), {"pixel_values": torch.randn(1, 3, 16, 16)}


def llama():
    config = transformers.LlamaConfig(num_key_value_heads=1, **TEXT)
    return transformers.LlamaForCausalLM(config), {"input_ids": tokens(), "use_cache": False}


def mixtral():
    config = transformers.MixtralConfig(num_key_value_heads=1, num_local_experts=4, **TEXT)
    return transformers.MixtralForCausalLM(config), {"input_ids": tokens(), "use_cache": False}


def wav2vec():
    config = transformers.Wav2Vec2Config(
        conv_dim=(8, 8), conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2,
        num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, **SMALL,
    )  # fmt: skip
    return transformers.Wav2Vec2Model(config), {"input_values": torch.randn(1, 400)}


class Planted(torch.nn.Module):
    """What a layer gave, through an operator that the backend does not know."""

    def __init__(self, layer, operator) -> None:
        super().__init__()
        self.layer = layer
        self.operator = operator

    def forward(self, x):
        return self.operator(torch.sigmoid(self.layer(x)))


def bert_with_two():
    """A BERT in which two operators fail, one in each layer."""
    model = transformers.BertModel(transformers.BertConfig(**TEXT))
    layers = model.encoder.layer
    layers[0].intermediate.dense = Planted(layers[0].intermediate.dense, torch.lgamma)
    layers[1].intermediate.dense = Planted(layers[1].intermediate.dense, torch.erfinv)
    return model, {"input_ids": tokens()}


def main(backend, name) -> None:
    torch.manual_seed(0)
    model, inputs = globals()[name]()
    with torch.no_grad():
        torch.compile(model.eval(), backend=backend)(**inputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
