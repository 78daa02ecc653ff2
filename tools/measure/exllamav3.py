"""Ask ExLlamaV3's own classes for the bytes of a cache: its Config, Model and Cache from a config.json, tensors on the meta device.

    python tools/measure/exllamav3.py PACKAGE REQUESTS.jsonl >ANSWERS.jsonl

PACKAGE is the folder with the unpacked wheel (exllamav3-1.6.5), REQUESTS holds lines of `kvcalc batch` whose model is an inline
`hf_config`. Needs torch, numpy and safetensors; the CUDA extension and all kernels are stand-ins (stubs.py). Nothing is loaded
and nothing computed: the sizes are those of the tensors that the engine's classes would allocate.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from stubs import stub

#: Absent here, and without a part in any size.
ABSENT = [
    "exllamav3_ext",
    "triton",
    "flash_attn",
    "xformers",
    "tokenizers",
    "marisa_trie",
    "PIL",
    "formatron",
    "kbnf",
    "pydantic",
    "rich",
    "ninja",
    "fla",
    "causal_conv1d",
    "flashinfer",
    "llguidance",
    "pyperclip",
    "prompt_toolkit",
]


def without_vision() -> None:
    """Let the classes of models with a vision part read none: it keeps no cache, and its fields are not in a text model's file."""
    import importlib
    import pkgutil

    from exllamav3 import architecture

    for found in pkgutil.iter_modules(architecture.__path__):
        module = importlib.import_module(f"{architecture.__name__}.{found.name}")
        for name in vars(module).copy():
            if name.startswith("read_") and name.endswith(("_vision_config", "_pp_config")):
                setattr(module, name, lambda *_args, **_kwargs: Nowhere())


#: What the classes of Gemma 3 and 4 ask of a file about images.
_IMAGES = dict.fromkeys(
    [
        "do_convert_rgb",
        "do_rescale",
        "do_normalize",
        "image_mean",
        "image_std",
        "resample",
        "rescale_factor",
        "max_soft_tokens",
        "patch_size",
        "pooling_kernel_size",
    ],
    1,
)
_PROCESSOR = {
    "image_mean": [0.5],
    "image_std": [0.5],
    "resample": 2,
    "rescale_factor": 1.0,
    "size": {"longest_edge": 1540},
    "patch_size": 1,
    "image_processor": _IMAGES,
}
#: What they ask of `vision_config`.
_VISION = {
    **dict.fromkeys(
        [
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "head_dim",
            "patch_size",
            "pooling_kernel_size",
            "num_soft_tokens",
            "position_embedding_size",
            "mm_embed_dim",
            "output_proj_dims",
            "model_patch_size",
            "mm_posemb_size",
            "image_size",
            "width",
            "layers",
            "heads",
            "mlp_ratio",
        ],
        1,
    ),
    "rms_norm_eps": 1.0,
    "num_channels": 3,
    "use_ln_pre": True,
    "use_ln_post": False,
    "use_cls_token": False,
}


class Nowhere(dict[str, Any]):
    """A section of a file that nobody has: every key of it is 1, a type of processor is the one that the class asks for."""

    def __missing__(self, key: str) -> Any:
        return 1

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def measure(config: dict[str, Any], args: dict[str, Any]) -> dict[str, int]:
    """Bytes of every cache layer and state by its class: {"CacheLayer_fp16": 1073741824, …}. Raises what the engine raises."""
    import torch
    from exllamav3 import Cache, Config, Model
    from exllamav3.cache import CacheLayer_fp16, CacheLayer_quant

    kind = "PixtralImageProcessor" if config["architectures"] == ["Mistral3ForConditionalGeneration"] else "Gemma3ImageProcessor"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps({**config, "vision_config": {**_VISION, **(config.get("vision_config") or {})}}))
        for name in ("preprocessor_config.json", "processor_config.json"):
            Path(folder, name).write_text(json.dumps({**_PROCESSOR, "image_processor_type": kind}))
        model = Model.from_config(Config.from_directory(folder))
    bits = {name: args[name] for name in ("k_bits", "v_bits") if name in args}
    cache = Cache(
        model,
        args["max_num_tokens"],
        layer_type=CacheLayer_quant if bits else CacheLayer_fp16,
        max_batch_size=args.get("max_batch_size", 16),
        max_history=args.get("max_history", 0),
        recurrent_dtype={"half": torch.half, "float": torch.float}[args.get("recurrent_dtype", "half")],
        **bits,
    )
    found: dict[str, int] = {}
    for layer in cache.layers.values():
        layer.alloc(torch.device("meta"))
    for layer in (*cache.layers.values(), *cache.recurrent_layers.values()):
        tensors = [value for value in vars(layer).values() if isinstance(value, torch.Tensor)]
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if size != layer.storage_size():
            raise AssertionError(f"{type(layer).__name__}: tensors hold {size:,} B, storage_size() says {layer.storage_size():,} B")
        found[type(layer).__name__] = found.get(type(layer).__name__, 0) + size
    return found


def main() -> None:
    """Answer every request line by one line: its id, the bytes by class and in all, or the engine's own words of refusal."""
    sys.path.insert(0, sys.argv[1])
    stub(*ABSENT)
    without_vision()
    for line in Path(sys.argv[2]).read_text().splitlines():
        asked = json.loads(line)
        request = asked.get("request", asked)
        config = asked["config"] if "config" in asked else request["model"]["hf_config"]
        try:
            sizes = measure(config, request["engine_args"])
        except Exception as error:  # noqa: BLE001  whatever the engine raises is its answer
            print(json.dumps({"id": asked["id"], "error": f"{type(error).__name__}: {error}"[:300]}))
        else:
            print(json.dumps({"id": asked["id"], "bytes": sum(sizes.values()), "by_class": sizes}))


if __name__ == "__main__":
    main()
