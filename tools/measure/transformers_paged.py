"""Ask transformers' own PagedAttentionCache how many blocks it makes of a free memory: one JSON line a question, for tests/cases.

    python tools/measure/transformers_paged.py QUESTIONS.jsonl > tests/cases/transformers_paged.jsonl        needs torch and transformers 5.24

A question is {"id", "config": a config.json, "free": bytes, "settings": {…}} under kvcalc's names of the settings. The class runs on the
meta device; only the reading of the device's memory is replaced, by the question's free bytes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.generation.continuous_batching import cache as paged


class Alone:
    """One device: no tensor parallelism."""

    tp_size = 1

    def are_kv_heads_tp_ed(self) -> bool:
        """Never."""
        return False


def measured(config: dict[str, Any], free: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Blocks, sectors and bytes of the cache's tensor, or the name of the error that the class raises."""
    try:
        outer = AutoConfig.for_model(**config)
        text = outer.get_text_config()
        text._attn_implementation_internal = settings.get("attn_implementation", "sdpa")  # noqa: SLF001  what from_pretrained sets
        batching = ContinuousBatchingConfig(
            page_size=settings.get("page_size", 256),
            num_blocks=settings.get("num_blocks"),
            max_batch_tokens=settings.get("max_batch_tokens"),
            max_memory_percent=settings.get("max_memory_percent", 0.9),
            use_async_batching=settings.get("use_async_batching", False),
            max_requests_per_batch=settings.get("max_requests_per_batch", 1024),
        )
        paged.get_device_and_memory_breakdown = lambda: (torch.device("meta"), free, 0, 0)
        cache = paged.PagedAttentionCache(
            text,
            batching,
            torch.device("meta"),
            Alone(),
            dtype=torch.bfloat16,
            model_supports_logits_to_keep=settings.get("model_supports_logits_to_keep", True),
        )
    except Exception as error:  # noqa: BLE001  whatever the class raises is its answer
        return {"error": type(error).__name__, "message": str(error)[:120]}
    return {"blocks": cache.num_blocks, "sectors": cache.num_sectors, "bytes": cache.cache_tensor.numel()}


def main() -> None:
    """Answer every question of the file."""
    for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
        question = json.loads(line)
        answer = measured(question["config"], question["free"], question["settings"])
        source = f"transformers {transformers.__version__} PagedAttentionCache on the meta device, torch {torch.__version__}"
        print(json.dumps({**question, "answer": answer, "source": source}))


if __name__ == "__main__":
    main()
