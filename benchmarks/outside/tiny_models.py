"""Architectures of transformers, built tiny from their configurations, and of torchvision where that can be imported.

Weights are random. Nothing is downloaded. torchvision is built for one torch, and beside another one its import fails.
"""

import torch
from transformers import AutoModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

#: What a configuration is given of these, where it has such a field.
SIZES = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "hidden_dim", "emb_dim"), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "decoder_ffn_dim", "encoder_ffn_dim", "d_ff", "n_inner"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "rotary_dim", "embedding_size"), 8),
    **dict.fromkeys(("vocab_size", "max_position_embeddings", "n_positions", "max_seq_len"), 128),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk"), 2),
    "image_size": 32, "patch_size": 8, "num_channels": 3, "use_cache": False, "pad_token_id": 0,
}  # fmt: skip
TEXT = (
    "albert", "arcee", "bert", "bert-generation", "biogpt", "bitnet", "bloom", "camembert", "codegen", "cohere",
    "cohere2", "convbert", "ctrl", "data2vec-text", "deberta", "deberta-v2", "diffllama", "distilbert", "electra",
    "ernie", "ernie4_5", "exaone4", "flaubert", "fnet", "fsmt", "gemma", "gemma2", "glm", "glm4", "gpt2", "gpt_bigcode",
    "gpt_neox", "gptj", "granite", "helium", "ibert", "layoutlm", "llama", "megatron-bert", "mistral", "mobilebert",
    "modernbert", "mpnet", "mpt", "nanochat", "nystromformer", "olmo", "olmo2", "openai-gpt", "opt", "persimmon", "phi",
    "phi3", "qwen2", "qwen3", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "seed_oss",
    "smollm3", "stablelm", "starcoder2", "xglm", "xlm", "xlm-roberta",
)  # fmt: skip
PAIRS = (
    "bart", "blenderbot", "m2m_100", "marian", "mbart", "mvp", "pegasus", "plbart", "t5",
)  # fmt: skip
IMAGES = (
    "beit", "data2vec-vision", "deit", "dinov2", "focalnet", "ijepa", "mobilenet_v1", "mobilenet_v2", "mobilevit",
    "poolformer", "pvt_v2", "regnet", "resnet", "segformer", "vit", "vit_mae", "vit_msn",
)  # fmt: skip
#: Of torchvision, with the side of the image that a model takes.
VISION = {
    **dict.fromkeys(("convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "mnasnet0_5"), 64),
    **dict.fromkeys(("mobilenet_v3_small", "regnet_x_400mf", "resnet18", "shufflenet_v2_x0_5", "squeezenet1_1"), 64),
    **dict.fromkeys(("deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large", "swin_t", "swin_v2_t"), 64),
    "inception_v3": 96, "maxvit_t": 224, "vit_b_32": 224,
}  # fmt: skip
try:
    import torchvision
except (ImportError, RuntimeError):  # without it, or built for another torch: then an operator of its is missing
    VISION = {}
ARCHITECTURES = (*TEXT, *PAIRS, *IMAGES, *(f"torchvision/{name}" for name in VISION))


class Tiny(torch.nn.Module):
    """The model, called with tensors alone; it returns its first result."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *tensors):
        return self.model(**dict(zip(self.names, tensors, strict=True)), return_dict=False)[0]


def build(name):
    """``(model, tensors)`` of an architecture."""
    torch.manual_seed(0)
    if name.startswith("torchvision/"):
        return of_torchvision(name.partition("/")[2])
    known = CONFIG_MAPPING[name]()
    config = CONFIG_MAPPING[name](**{k: v for k, v in SIZES.items() if isinstance(getattr(known, k, None), int)})
    model = AutoModel.from_config(config).eval()
    if name in IMAGES:
        size = config.image_size if isinstance(getattr(config, "image_size", None), int) else 32
        inputs = {"pixel_values": torch.randn(2, 3, size, size)}
    else:
        tokens = torch.randint(3, 100, (2, 16))
        inputs = {"input_ids": tokens}
        if name in PAIRS:
            inputs["decoder_input_ids"] = tokens.clone()
    return Tiny(model, tuple(inputs)), tuple(inputs.values())


class First(torch.nn.Module):
    """A model of torchvision that returns a tensor: of a dictionary the values ``out``, of a tuple the first one."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, image):
        result = self.model(image)
        if isinstance(result, dict):
            return result["out"]
        return result[0] if isinstance(result, tuple) else result


def of_torchvision(name):
    made = {} if "lab" in name or "lraspp" in name else {"num_classes": 10}
    if name in ("googlenet", "inception_v3"):
        made["init_weights"] = False
    if made == {}:
        made["weights_backbone"] = None
    model = torchvision.models.get_model(name, weights=None, **made).eval()
    return First(model), (torch.randn(2, 3, VISION[name], VISION[name]),)
