"""`sglang serve` and `python -m sglang.launch_server`, as of SGLang 0.5.23.

Every flag of its parser (server_args.py, arg_groups/fields/) stands in one of the tables below. Prefixes of flags, which argparse would
complete, are not guessed, but for --tp and --dp, which everybody writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import UsageError
from kvcalc.engines.base.config_file import with_file
from kvcalc.engines.base.flags import (
    IDLE,
    Syntax,
    apply,
    asks,
    doubted,
    go_through,
    keeps,
    lists,
    perhaps,
    quantized,
    refused,
    settings,
    switches,
    values,
    weights,
)
from kvcalc.engines.base.reading import Reading, model, name, whole
from kvcalc.engines.sglang.settings import SERVER_FLAGS

if TYPE_CHECKING:
    from kvcalc.engines.base.launcher import Found

_DTYPES = {"auto": None, "half": "fp16", "float16": "fp16", "bfloat16": "bf16", "float": "fp32", "float32": "fp32"}
#: `--quantization` → the type of the weights; `fp8` and its like are made so at start, the others name what the files hold.
_QUANTIZED = {
    **dict.fromkeys(("awq", "awq_marlin", "gptq", "gptq_marlin", "moe_wna16"), "int4"),
    **dict.fromkeys(("modelopt", "modelopt_fp8", "w8a8_fp8"), "fp8"),
    **dict.fromkeys(("modelopt_fp4", "petit_nvfp4"), "nvfp4"),
    "mxfp4": "mxfp4",
    "w8a8_int8": "int8",
}
_REQUANTIZED = {"fp8": "fp8", "nvfp4_online": "nvfp4"}
#: `--speculative-algorithm` → the setting; all others run a second model.
_SPECULATION = {"EAGLE": "EAGLE", "NEXTN": "NEXTN"}
_STEPS, _BRANCHES, _DRAFTS = "--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens"


def _dtype(reading: Reading, flag: str, text: str) -> None:
    if text not in _DTYPES:
        raise UsageError(f"{flag}: its value is not one of {', '.join(_DTYPES)}", "SGLang reads these")
    reading.dtype = _DTYPES[text]


def _speculation(reading: Reading, flag: str, text: str) -> None:
    word = name(flag, text).upper()
    if word not in _SPECULATION:
        raise UsageError(f"{flag}: kvcalc has no rule for this algorithm, which runs a second model", "it has EAGLE and NEXTN")
    reading.settings["speculative_algorithm"] = word


def _backend(reading: Reading, flag: str, text: str) -> None:
    reading.settings["attention_backend"] = {"nsa": "dsa"}.get(text, name(flag, text))


def _data_parallel(reading: Reading, flag: str, text: str) -> None:
    reading.replicas = whole(flag, text)


_TRANSLATED = {
    **values(keeps("model", model), "--model-path/--model"),
    **values(keeps("revision", name), "--revision"),
    **values(asks("context", whole), "--context-length"),
    **values(asks("kv_dtype", name), "--kv-cache-dtype"),
    **values(asks("tensor_parallel", whole), "--tp-size/--tensor-parallel-size/--tp"),
    **values(asks("pipeline_parallel", whole), "--pp-size/--pipeline-parallel-size"),
    **values(asks("decode_context_parallel", whole), "--dcp-size/--decode-context-parallel-size"),
    **values(_data_parallel, "--dp-size/--data-parallel-size/--dp"),
    **values(_dtype, "--dtype"),
    **values(quantized(_REQUANTIZED, _QUANTIZED, weights("does not tell the size of the weights", unless=("unquant",))), "--quantization"),
    **values(_speculation, "--speculative-algorithm"),
    **values(_backend, "--attention-backend"),
}
_SETTINGS = settings(
    "sglang",
    shorts={"attn_dp_size": "--attention-data-parallel-size", "enable_hierarchical_cache": "--enable-hicache"},
    without=("speculative_algorithm", "attention_backend", "dp_size"),
)

_PAGES = "decides pages beside --attention-backend"
_ROWS = "decides what rows of sparse attention hold"
_REFUSED = {
    **values(refused("names a file in a way that SGLang does not read"), "--config"),
    **values(refused("makes another model of this one", unless=("{}",)), "--json-model-override-args"),
    **values(refused("makes another model of this one", unless=("auto", "sglang")), "--model-impl"),
    **switches(refused("starts a model that generates nothing"), "--is-embedding --prefill-only-disable-kv-cache --encoder-only"),
    **values(refused("runs a diffusion model"), "--dllm-algorithm"),
    **values(refused("splits the work of a server over several", unless=("null", "none")), "--disaggregation-mode"),
    **values(refused("splits attention over contexts", unless=("1",)), "--attn-cp-size/--attention-context-parallel-size --dwdp-size"),
    **switches(refused("splits attention over contexts"), "--enable-prefill-cp --enable-dsa-cache-layer-split --enable-cp-decode-attn-tp"),
    **switches(refused("shares pools in another way"), "--enable-unified-memory --enable-kv-cache-sharding --enable-page-major-kv-layout"),
    **switches(refused("keeps another cache"), """--enable-hisparse --enable-lmcache --enable-flexkv --enable-unified-cache-external-linker
                                                  --enable-pdmux"""),
    **values(refused("keeps another cache", unless=("default",)), "--radix-cache-backend"),
    **values(refused(_PAGES), "--prefill-attention-backend --decode-attention-backend --c128-page-size --dsv4-attn-backend"),
    **values(refused(_ROWS), "--dsa-prefill-backend --dsa-decode-backend --dsv4-prefill-backend --qsa-indexer-dtype"),
    **switches(refused(_ROWS), "--enable-deepseek-v4-fp4-indexer"),
    **values(refused("keeps another state of recurrent layers"), "--int8-mamba-ckpt-size --mamba-max-states-per-path --linear-replayssm-cache-len"),
    **switches(refused("keeps another state of recurrent layers"), """--enable-int8-mamba-checkpoint --enable-linear-replayssm
                                                                      --enable-linear-replayssm-spec"""),
    **switches(refused("keeps windows in another way"), "--enable-encoder-swa-bounded-replay --enable-decoder-swa-bounded-replay"),
    **values(refused("runs a second model"), "--speculative-draft-model-path/--speculative-draft-model"),
    **values(refused("changes the pool of drafts"), """--speculative-draft-kv-cache-dtype --speculative-draft-window-size
        --speculative-dflash-block-size --speculative-dspark-block-size --speculative-draft-sink-size --decoupled-spec-role"""),
    **values(refused("drafts more than one chain", unless=("1",)), _BRANCHES),
    **switches(refused("changes the number of drafts"), "--speculative-adaptive --enable-multi-layer-eagle"),
    **values(refused("dequantises the cache for prefill", unless=("auto",)), "--prefill-kv-cache-dequant-dtype"),
}  # fmt: skip

_SHARE = "changes what SGLang leaves free on a card"
_DOUBTED = {
    **values(doubted("limits requests of a pipeline stage, which kvcalc does not count"), "--pp-max-micro-batch-size"),
    **values(doubted("changes the size of the host tier"), "--hicache-host-memory-fraction --hicache-storage-backend"),
    **values(weights("moves weights to host memory", unless=("0", "0.0")), "--cpu-offload-gb --offload-group-size"),
    **values(weights("runs experts on the CPU"), "--kt-weight-path --kt-num-gpu-experts"),
    **switches(weights("keeps adapters in the memory of the card"), "--enable-lora"),
    **values(weights("spreads experts over ranks", unless=("1",)), "--ep-size/--expert-parallel-size/--ep"),
    **values(weights("keeps memory for images", unless=("default", "none")), "--mm-feature-transport"),
    **values(weights("adds experts", unless=("0",)), "--ep-num-redundant-experts"),
    **switches(weights("leaves the encoders out"), "--language-only --language-model-only"),
    **values(weights("loads another kind of weights", unless=("auto", "safetensors", "pt")), "--load-format"),
    **values(weights(_SHARE), """--cuda-graph-config --cuda-graph-backend-decode --cuda-graph-backend-prefill --cuda-graph-max-bs-decode
        --cuda-graph-max-bs-prefill --cuda-graph-max-seq-len-prefill --cuda-graph-prefill-max-context/--context-bucket"""),
    **lists(weights(_SHARE), "--cuda-graph-bs-decode --cuda-graph-bs-prefill"),
    **switches(weights(_SHARE), "--disable-cuda-graph --disable-prefill-cuda-graph --disable-decode-cuda-graph"),
}  # fmt: skip

_IDLE = {
    **values(IDLE, f"""
        {_STEPS}
        --tokenizer-path --tokenizer-mode --tokenizer-backend --tokenizer-worker-num --detokenizer-worker-num --model-loader-extra-config
        --model-config-parser --quantization-param-path --modelopt-quant --modelopt-checkpoint-restore-path --modelopt-checkpoint-save-path
        --modelopt-export-path --rl-quant-profile --max-queued-requests --prefill-decode-interval --max-prefill-tokens --prefill-max-requests
        --schedule-policy --default-priority-value --priority-scheduling-preemption-threshold --retraction-policy --schedule-conservativeness
        --radix-eviction-policy --radix-eviction-policy-config --num-continuous-decode-steps --scheduler-recv-interval --nccl-port
        --dist-timeout --dist-init-addr/--nccl-init-addr --gated-launch-port --nnodes --node-rank --pp-async-batch-depth
        --load-balance-method --moe-dp-size/--moe-data-parallel-size --dcp-comm-backend --cp-strategy --shared-experts-tp-size --device
        --base-gpu-id --gpu-id-step --random-seed --watchdog-timeout --soft-watchdog-timeout --host --port --fastapi-root-path --grpc-port
        --sidecar --sidecar-args --warmups --http2-max-concurrent-streams --http2-initial-connection-window-size --ssl-keyfile
        --ssl-certfile --ssl-ca-certs --ssl-keyfile-password --api-key --admin-api-key --served-model-name --weight-version --chat-template
        --hf-chat-template-name --completion-template --file-storage-path --default-chat-template-kwargs --tool-server --sampling-defaults
        --asr-max-buffer-seconds --asr-max-concurrent-sessions --preferred-sampling-params --stream-interval --batch-notify-size --log-level
        --log-level-http --log-requests-level --log-requests-format --crash-dump-folder --smg-http-sidecar-port/--grpc-http-sidecar-port
        --load-snapshot-publish-interval --tokenizer-metrics-custom-labels-header --extra-metric-labels --gc-warning-threshold-secs
        --decode-log-interval --kv-events-config --load-publish-endpoint --forward-pass-metrics-worker-id --forward-pass-metrics-ipc-name
        --trace-modules --otlp-traces-endpoint --export-metrics-to-file-dir --constrained-json-whitespace-pattern
        --constrained-json-max-whitespace-cnt --grammar-backend --mm-attention-backend --fp8-gemm-backend --fp4-gemm-backend
        --bf16-gemm-backend --dsa-paged-mqa-logits-backend --dsa-topk-backend --mamba-backend --triton-attention-num-kv-splits
        --triton-attention-split-tile-size --boundary-reduction --flashinfer-allreduce-fusion-backend --torch-compile-max-bs --uno-lora-path
        --speculative-draft-model-revision --speculative-draft-load-format --speculative-dspark-sps-table-path
        --speculative-dspark-confidence-sts-path --speculative-accept-threshold-single --speculative-accept-threshold-acc
        --speculative-token-map --speculative-attention-mode --speculative-draft-attention-backend --speculative-dsa-topk-backend
        --speculative-moe-runner-backend --speculative-moe-a2a-backend --speculative-draft-model-quantization --speculative-adaptive-config
        --decoupled-spec-bind-endpoint --decoupled-spec-connect-endpoints --decoupled-spec-rank --spec-trace-dir
        --speculative-ngram-min-bfs-breadth --speculative-ngram-max-bfs-breadth --speculative-ngram-match-type
        --speculative-ngram-max-trie-depth --speculative-ngram-capacity --speculative-ngram-external-corpus-path
        --speculative-ngram-external-sam-budget --speculative-ngram-external-corpus-max-tokens --moe-a2a-backend --deepep-v2-mode
        --moe-runner-backend --flashinfer-mxfp4-moe-precision --deepep-mode --fuseep-mode --deepep-dispatcher-output-dtype
        --ep-dispatch-algorithm --init-expert-location --eplb-algorithm --eplb-rebalance-num-iterations --eplb-rebalance-layers-per-chunk
        --eplb-min-rebalancing-utilization-threshold --expert-distribution-recorder-mode --expert-distribution-recorder-buffer-size
        --expert-balancedness-report-mode --deepep-config --moe-dense-tp-size --elastic-ep-backend --mooncake-ib-device
        --elastic-ep-join-mode --elastic-ep-join-rank-offset --elastic-ep-initial-size --max-ep-size --elastic-ep-scale-timeout
        --mamba-cache-philox-rounds --linear-attn-backend --linear-attn-decode-backend --linear-attn-prefill-backend
        --linear-attn-verify-backend --hicache-host-memory-mode --hicache-write-policy --hicache-io-backend --hicache-mem-layout
        --hicache-storage-prefetch-policy --hicache-storage-backend-extra-config --hicache-storage-prefetch-retry-poll-interval
        --hicache-storage-prefetch-retry-max-attempts --unified-cache-external-linker-backend --unified-cache-external-linker-config
        --hisparse-config/--hierarchical-sparse-attention-extra-config --mm-process-config --mm-processor-worker-num --mm-io-worker-num
        --media-url-max-file-size-mb --mm-preprocess-cache-size-mb --limit-mm-data-per-request --image-processor-backend
        --mm-global-cache-backend --max-lora-rank --max-loaded-loras --max-loras-per-batch --lora-eviction-policy
        --lora-backend --max-lora-chunk-size --lora-drain-wait-threshold --tbo-token-distribution-threshold --offload-num-in-group
        --offload-prefetch-step --offload-mode --lmcache-config-file --flexkv-config-file --kt-method --kt-cpuinfer --kt-threadpool-count
        --kt-max-deferred-experts-per-token --dllm-algorithm-config --disaggregation-transfer-backend --disaggregation-bootstrap-port
        --disaggregation-ib-device --disaggregation-decode-retraction-backup --num-reserved-decode-tokens
        --disaggregation-decode-extra-slots --disaggregation-decode-polling-interval --disaggregation-decode-host-receive-threshold
        --disaggregation-decode-allocation-policy --optimistic-prefill-attempts --encoder-transfer-backend --encoder-bootstrap-port
        --pdmux-config-path --sm-group-num --startup-weight-load-mode --weight-loader-prefetch-num-threads
        --remote-instance-weight-loader-seed-instance-ip --remote-instance-weight-loader-seed-instance-service-port
        --remote-instance-weight-loader-send-weights-group-ports --remote-instance-weight-loader-backend --engine-info-bootstrap-port
        --modelexpress-config --download-dir --decrypted-config-file --decrypted-draft-config-file --prefill-delayer-max-delay-passes
        --prefill-delayer-token-usage-low-watermark --prefill-delayer-queue-min-ratio --prefill-delayer-max-delay-ms --min-free-slots-delay
        --rl-on-policy-target --kv-canary --kv-canary-sweep-interval --kv-canary-real-data --dynamic-batch-tokenizer-batch-size
        --dynamic-batch-tokenizer-batch-timeout --debug-tensor-dump-output-folder --debug-tensor-dump-input-file
        --return-hidden-states-mode --sampling-mask-max-tokens --weight-cache-mode --weight-cache-socket --weight-cache-timeout
        --forward-hooks --msprobe-dump-config --ple-offload-backend --ple-offload-dir --speculative-domino-candidate-pool-size
        --flashinfer-a2a-dispatch-type --otlp-service-name --dsa-triton-union --watermark-config --grpc-response-timeout-secs
        --paged-experts-num-resident --prefill-decode-interval-min-bs --sampling-backend --reasoning-parser --tool-call-parser
        --monokernel-backend
    """),
    **perhaps(IDLE, "--model-checksum"),
    **lists(IDLE, """
        --numa-node --gc-threshold --log-requests-target --uvicorn-access-log-exclude-prefixes --tokenizer-metrics-allowed-custom-labels
        --bucket-time-to-first-token --bucket-inter-token-latency --bucket-e2e-request-latency --prompt-tokens-buckets
        --generation-tokens-buckets --flashinfer-autotune-skip-ops --allowed-media-domains --lora-target-modules --lora-paths --encoder-urls
        --encoder-register-urls --custom-weight-loader --prefill-delayer-forward-passes-buckets --prefill-delayer-wait-seconds-buckets
        --debug-tensor-dump-layers --return-aux-hidden-state-layer-ids
    """),
    **switches(IDLE, """
        --help/-h --skip-tokenizer-init --trust-remote-code --enable-multimodal --enable-fp32-lm-head --quantize-and-serve
        --enable-tf32-matmul --enable-dynamic-chunking --enable-priority-scheduling --disable-priority-preemption
        --abort-on-priority-when-disabled --schedule-low-priority-values-first --disable-chunked-prefix-cache --enable-mixed-chunk
        --dcp-replicate-q-proj --enable-dp-attention-local-control-broadcast --enable-dp-lm-head --enable-tp-lm-head-all-to-all
        --enable-attn-tp-input-scattered --enable-shared-experts-attn-tp --enable-dense-mlp-attn-tp --enable-layernorm-sp
        --disable-attn-tp-gather --enable-p2p-check --mlx-enable-sampling --sleep-on-idle --use-ray --smg-grpc-mode --grpc-mode
        --skip-server-warmup --enable-http2 --enable-ssl-refresh --trust-request-chat-template --enable-cache-report --return-input-ids
        --return-output-ids --strip-thinking-cache --enable-strict-thinking --allow-auto-truncate --stream-response-default-include-usage
        --incremental-streaming-output --log-requests --show-time-cost --enable-metrics --enable-mfu-metrics
        --enable-metrics-for-all-schedulers --enable-request-time-stats-logging --enable-forward-pass-metrics --enable-trace
        --export-metrics-to-file --constrained-json-disable-any-whitespace --enable-lean-attention --disable-flashinfer-autotune
        --disable-cuda-graph-padding --enable-profile-cuda-graph --enable-cudagraph-gc --debug-cuda-graph --enable-layerwise-nvtx-marker
        --enable-nccl-nvls --enable-symm-mem --triton-attention-reduce-in-fp32 --flashinfer-mla-disable-ragged --enable-fused-qk-norm-rope
        --enable-precise-embedding-interpolation --enable-fused-moe-sum-all-reduce --disable-custom-all-reduce --enable-mscclpp
        --enable-torch-symm-mem --enable-scattered-sconv --pre-warm-nccl --enable-quant-communications
        --enforce-disable-flashinfer-allreduce-fusion --enable-flashinfer-allreduce-fusion --enable-aiter-allreduce-fusion
        --enable-torch-compile --enable-torch-compile-debug-mode --speculative-dspark-align-verify-tokens-to-graph-tier
        --speculative-use-rejection-sampling --speculative-enable-w4a4-mxfp4-megamoe --speculative-use-block-verification
        --enable-w4a4-mxfp4-megamoe --enable-eplb --enable-elastic-expert-backup --enable-waterfill
        --disable-flashinfer-cutlass-moe-fp4-allgather --disable-shared-experts-fusion --enforce-shared-experts-fusion
        --enable-mamba-cache-stochastic-rounding --enable-broadcast-mm-inputs-process --enable-prefix-mm-cache --mm-enable-dp-encoder
        --trust-mm-content-hashes --enable-mm-global-cache --disable-fast-image-processor --enable-lora-overlap-loading
        --experts-shared-outer-loras --lora-use-virtual-experts --lora-strict-loading --enable-two-batch-overlap
        --enable-single-batch-overlap --dllm-fdfo --disaggregation-decode-enable-radix-cache --disaggregation-decode-enable-offload-kvcache
        --enable-adaptive-dispatch-to-encoder --weight-loader-disable-mmap --weight-loader-prefetch-checkpoints
        --weight-loader-drop-cache-after-load --remote-instance-weight-loader-start-seed-via-transfer-engine --delete-ckpt-after-loading
        --checkpoint-engine-wait-weights-before-ready --enable-prefill-delayer --enable-deterministic-inference
        --enable-dynamic-batch-tokenizer --enable-tokenizer-batch-encode --disable-tokenizer-batch-decode --enable-memory-saver
        --enable-weights-cpu-backup --enable-draft-weights-cpu-backup --enable-custom-logit-processor --enable-return-hidden-states
        --enable-return-routed-experts --enable-return-indexer-topk --disable-outlines-disk-cache --enable-mis --ple-offload-embedding
        --disaggregation-enable-kv-checksum --enable-pd-role-switch --enable-linker-mla-dedup --enable-response-store
        --disable-aiter-allreduce-fusion-in-prefill --disable-aiter-allreduce-fusion-in-decode --enable-amd-monokernel
        --enable-dsa-fused-indexer --enable-watermark --enable-paged-experts --enable-nvidia-megakernel --enable-megamoe-for-layernorm-sp
        --enable-http-worker-reuseport --enable-return-aux-hidden-states --enable-streaming-session --enable-session-radix-cache
    """),
}  # fmt: skip

_FLAGS = {**_IDLE, **_DOUBTED, **_REFUSED, **_SETTINGS, **_TRANSLATED}


def _spell(word: str) -> tuple[str, bool]:
    """`--no-x` where it is no flag of its own."""
    off = word.startswith("--no-") and word not in _FLAGS
    return ("--" + word[5:], True) if off else (word, False)


_SYNTAX = Syntax(_FLAGS, _spell)


#: Remedies of `fit` in the words of the command.
_WORDS = {setting: f"{flag} {{}}" for setting, flag in SERVER_FLAGS.items()} | {
    "kv_dtype": "--kv-cache-dtype {}",
    "kv_dtype fp8": "--kv-cache-dtype fp8_e4m3",
}


def read(found: Found) -> Reading:
    """What the server is told. Raises UsageError for what it would refuse, or what kvcalc has no rule for."""
    given = go_through(with_file(found, _SYNTAX, ("--config",)), _SYNTAX, positionals=1 if found.program == "serve" else 0)
    reading = Reading("sglang", words=_WORDS)
    apply(given, reading)
    if reading.settings.get("enable_dp_attention"):
        reading.settings["dp_size"], reading.replicas = reading.replicas, 1
    _drafts(reading, {flag: value for flag, (_, value) in given.flags.items()})
    return reading


def _drafts(reading: Reading, given: dict[str, Any]) -> None:
    """Tokens verified at once: in one chain a step makes one, and SGLang corrects what it is told (speculative_hook.py)."""
    if "speculative_algorithm" not in reading.settings:
        reading.settings.pop("speculative_num_draft_tokens", None)
        return
    if _STEPS not in given:
        return
    steps = whole(_STEPS, given[_STEPS])
    if given.get(_BRANCHES) == "1":
        reading.settings["speculative_num_draft_tokens"] = steps + 1
    elif _DRAFTS not in given:
        raise UsageError(f"{_STEPS} without {_DRAFTS} leaves open how many tokens are verified at once", f"give {_DRAFTS}")
