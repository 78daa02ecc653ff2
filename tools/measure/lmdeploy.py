"""Ask LMDeploy's own PyTorch engine for its blocks: its builders, its cache plan and its executor's arithmetic on a card that is not there.

    python tools/measure/lmdeploy.py PACKAGE REQUESTS.jsonl >ANSWERS.jsonl

PACKAGE is the folder with the unpacked wheel (lmdeploy-0.18.0), REQUESTS holds lines {"id", "config", "card", "tensor_parallel",
"memory", "engine_args"}, where `config` is a config.json, and `memory` the bytes that are free after the weights. Needs torch,
numpy and transformers 5.24. Kernels and drivers are stand-ins (stubs.py), and so is the card: its name, its compute capability and
its free memory are all that the engine asks of it. Index keys and compressed rows come from the engine's own CUDA operators.
"""

from __future__ import annotations

import json
import logging
import sys
import types
from pathlib import Path
from typing import Any

from stubs import stub

#: Absent here, and without a part in any size.
ABSENT = [
    "triton",
    "ray",
    "flash_mla",
    "flash_attn",
    "fla",
    "deep_gemm",
    "fast_hadamard_transform",
    "tile_kernels",
    "causal_conv1d",
    "xgrammar",
    "dlblas",
    "dlslime",
    "fire",
    "openai_harmony",
    "sentencepiece",
    "pydantic",
    "fastapi",
    "uvicorn",
    "aiohttp",
    "zmq",
    "pybase64",
    "mmengine_lite",
    "mmengine",
    "accelerate",
    "peft",
    "torchvision",
    "urllib3",
    "prometheus_client",
    "shortuuid",
    "tiktoken",
    "timm",
    "decord",
    "einops",
    "partial_json_parser",
    "openai",
    "requests",
    "PIL",
    "psutil",
    "rich",
    "protobuf",
    "outlines",
]
#: Name and compute capability of the cards in requests.
CARDS = {
    "h100-80gb": ("NVIDIA H100 80GB HBM3", (9, 0)),
    "h200-141gb": ("NVIDIA H200", (9, 0)),
    "b200-180gb": ("NVIDIA B200", (10, 0)),
    "a100-80gb": ("NVIDIA A100-SXM4-80GB", (8, 0)),
    "l40s-48gb": ("NVIDIA L40S", (8, 9)),
    "rtx4090-24gb": ("NVIDIA GeForce RTX 4090", (8, 9)),
}


def stand_in(card: str) -> None:
    """Let torch speak of a card."""
    import torch

    name, (major, minor) = CARDS[card]
    torch.cuda.get_device_name = lambda *_: name
    torch.cuda.get_device_capability = lambda *_: (major, minor)
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(major=major, minor=minor, name=name)
    torch.cuda.is_available = lambda: True
    torch.cuda.is_bf16_supported = lambda *_a, **_k: major >= 8
    torch.cuda.device_count = lambda: 1
    torch.cuda.current_device = lambda: 0


def measure(asked: dict[str, Any]) -> dict[str, Any]:
    """Blocks, bytes of a block and of a slot, slots, and blocks of one sequence at the lengths of the request. Raises what the engine raises."""
    stand_in(asked["card"])
    from lmdeploy.messages import PytorchEngineConfig
    from lmdeploy.pytorch.config import ModelConfig
    from lmdeploy.pytorch.engine.cache_engine.plan import build_block_cache_plan
    from lmdeploy.pytorch.engine.config_builder import ConfigBuilder
    from lmdeploy.pytorch.engine.executor import _finalize_sparse_mla_cache_policy
    from lmdeploy.pytorch.engine.executor.base import ExecutorBase
    from lmdeploy.pytorch.models.patch import _get_model_class, _raise_if_removed_model

    ranks = asked.get("tensor_parallel", 1)
    engine = ConfigBuilder.update_engine_config(PytorchEngineConfig(tp=ranks, **asked["engine_args"]))
    config = read_config(asked["config"])
    _raise_if_removed_model(config.architectures[0])
    known_class(config.architectures[0])
    del _get_model_class
    model = ModelConfig.from_hf_config(config, dist_config=ConfigBuilder.build_dist_config(engine), device_type="cuda")
    cache = ConfigBuilder.build_cache_config(engine)
    cache.window_size = model.sliding_window
    cache.states_shapes = model.states_shapes
    _finalize_sparse_mla_cache_policy([model], cache)

    class Worker(ExecutorBase):
        """The executor, with a worker that is this process."""

        def gather_free_mem(self) -> list[int]:
            return [asked["memory"]] * ranks

        def _prepare_worker_cache_plans(self, cache_config: Any, _spec: Any = None) -> list[Any]:
            plan = build_block_cache_plan(self.model_config, cache_config, ranks, lambda context: requests(config, model, context))
            self.bytes = plan.logical_block_nbytes
            return [types.SimpleNamespace(total=self.bytes, main=self.bytes, spec=0)] * ranks

        def set_cache_config(self, *_: Any) -> None: ...

        def set_model_config(self, *_: Any) -> None: ...

    executor = object.__new__(Worker)
    executor.__dict__.update(
        model_config=model,
        cache_config=cache,
        specdecode_config=None,
        misc_config=types.SimpleNamespace(memdecode_config=None),
        dist_config=model.dist_config,
        device_type="cuda",
        world_size=ranks,
    )
    executor.update_configs()
    from lmdeploy.pytorch.engine.cache_engine import StateCacheEngine

    slot = StateCacheEngine.get_state_slot_nbytes(model.states_shapes, state_specs=model.state_cache_specs) if model.states_shapes else 0
    return {
        "blocks": cache.num_gpu_blocks,
        "block_bytes": executor.bytes,
        "block_size": cache.block_size,
        "window": cache.window_size,
        "slot_bytes": slot,
        "slots": cache.num_state_caches or 0 if slot else 0,
    }


def read_config(config: dict[str, Any]) -> Any:
    """The config as transformers reads it; Qwen3-Next's interval is put back, which transformers 5 drops and the builder asks for."""
    from transformers import AutoConfig, PretrainedConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if config["model_type"] in CONFIG_MAPPING:
        found = AutoConfig.for_model(**config)
    else:
        found = PretrainedConfig.from_dict(config)
        if isinstance(config.get("text_config"), dict):
            found.text_config = read_config(config["text_config"])
    if config["model_type"] == "qwen3_next":
        found.full_attention_interval = config.get("full_attention_interval", 4)
    for part in (found, getattr(found, "text_config", None)):
        if part is not None:
            for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
                if not hasattr(part, name):
                    setattr(part, name, None)
    return found


def known_class(name: str) -> None:
    """Raise as the engine does where it has no model class of that name."""
    from lmdeploy.pytorch.models.module_map import MODULE_MAP

    if name not in MODULE_MAP:
        raise RuntimeError(f"Can not found rewrite for architectures: {[name]}")


def requests(config: Any, model: Any, context: Any) -> list[Any]:
    """What the model's operators ask of the block cache, layer by layer: by the engine's own implementations."""
    found: list[Any] = []
    if model.mla_index_topk is not None:
        from lmdeploy.pytorch.backends.cuda.nsa import TritonNSAIndexFP8Impl

        types_ = getattr(config, "indexer_types", None) or ["full"] * config.num_hidden_layers
        own = object.__new__(TritonNSAIndexFP8Impl)
        for kind in types_[: config.num_hidden_layers]:
            if kind != "shared":
                found += own.get_block_cache_requests(context.geometry, config.index_head_dim)
    elif config.model_type == "deepseek_v4":
        from lmdeploy.pytorch.backends.cuda.v4_compressor import TritonV4CompressorImpl as Impl
        from lmdeploy.pytorch.configurations.deepseek_v4 import get_v4_compress_ratios

        for ratio in get_v4_compress_ratios(config):
            for indexer, width in ((False, config.head_dim), (True, config.index_head_dim)):
                if ratio and (ratio == 4 or not indexer):
                    own = object.__new__(Impl)
                    own.__dict__.update(compress_ratio=ratio, head_dim=width, is_indexer=indexer)
                    own.block_cache_name = own._resolve_block_cache_name()
                    found += own.get_block_cache_requests(context.geometry)
    return found


def main() -> None:
    """Answer every request line by one line: its id, what the engine counts, or its own words of refusal."""
    sys.path.insert(0, sys.argv[1])
    # Torch itself looks for triton here, and must not find a stand-in.
    import torch.utils.flop_counter  # noqa: F401
    import transformers  # noqa: F401

    stub(*ABSENT)
    logging.disable(logging.WARNING)
    for line in Path(sys.argv[2]).read_text().splitlines():
        asked = json.loads(line)
        try:
            answer = measure(asked)
        except Exception as error:  # noqa: BLE001  whatever the engine raises is its answer
            answer = {"refused": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps({"id": asked["id"], **answer}))


if __name__ == "__main__":
    main()
