"""What an engine's own command line calls a setting of kvcalc, where its values are kvcalc's too: `context` → `--max-model-len`."""

from __future__ import annotations

#: Engine → setting → flag of its server.
SERVER_FLAGS: dict[str, dict[str, str]] = {
    "vllm": {
        "context": "--max-model-len",
        "kv_dtype": "--kv-cache-dtype",
        "tensor_parallel": "--tensor-parallel-size",
        "pipeline_parallel": "--pipeline-parallel-size",
        "utilization": "--gpu-memory-utilization",
    },
    "sglang": {
        "context": "--context-length",
        "tensor_parallel": "--tp-size",
        "pipeline_parallel": "--pp-size",
        "utilization": "--mem-fraction-static",
    },
}
