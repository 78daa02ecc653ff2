"""Compose files and Kubernetes manifests, as they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcalc.core.errors import UsageError
from kvcalc.launch.ask import read_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from command_line import Answer

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.33.0      # the server
          args: ["--model", "org/name", "--max-model-len", "8192", "-tp", "2"]
          env:
            - {name: HF_TOKEN, value: hunter2}
            - {name: VLLM_MADE_UP, value: hunter2}
            - {name: KEY, valueFrom: {secretKeyRef: {name: a, key: b}}}
          livenessProbe: {exec: {command: [curl, localhost]}}
          resources: {limits: {nvidia.com/gpu: 2}}
        - {name: sidecar, image: nginx, command: [nginx]}
"""
SHELL = """
kind: Pod
spec:
  containers:
    - image: vllm/vllm-openai:latest
      command: ["/bin/sh", "-c"]
      args:
        - exec vllm serve org/name --max-model-len 8192
          -tp 2
"""
COMPOSE = """
services:
  web: {image: nginx}
  llm:
    image: vllm/vllm-openai
    environment: [HF_TOKEN=hunter2]
    command: >
      --model org/name
      --max-model-len 8192
      --tensor-parallel-size 2
"""
LISTS = (
    "command:\n  - vllm\n  - serve\n  - org/name\n  - --max-model-len\n  - 8192\n  - -tp\n  - '2'\n",
    "- vllm\n- serve\n- org/name\n# the longest\n- --max-model-len=8192\n- -tp\n- 2\n",
    '["vllm", "serve", "org/name", "--max-model-len", "8192", "-tp", 2]',
    '{"image": "vllm/vllm-openai", "args": ["--model=org/name", "--max-model-len=8K", "-tp=2"]}',
)


@pytest.mark.parametrize("text", [DEPLOYMENT, SHELL, COMPOSE, *LISTS])
def test_the_container_that_starts_an_engine_is_read(text: str) -> None:
    found = read_command([text])
    assert (found.engine, found.model, found.keys) == ("vllm", "org/name", {"context": 8192, "tensor_parallel": 2})
    assert found.warnings == (["variables of the engine that kvcalc does not read: VLLM_MADE_UP"] if text is DEPLOYMENT else [])


def test_variables_of_a_container_are_read() -> None:
    text = "services:\n  a:\n    image: ghcr.io/ggml-org/llama.cpp:server\n    environment: {LLAMA_ARG_CTX_SIZE: 4096, LLAMA_ARG_N_PARALLEL: 2}\n"
    assert read_command([text]).keys == {"sequences": 2, "context": 2048}


REFUSED = {
    "kind: Pod\nspec: {containers: [{image: nginx}]}\n": "no container of the manifest starts an engine",
    "services:\n  a: {image: ollama/ollama}\n  b: {image: vllm/vllm-openai}\n": "2 containers of the manifest start an engine",
    "image: [hunter2\n": "the manifest",
    "image: &hunter ollama/ollama\n": "the manifest:1: ",
    "image: a\nimage: b\n": "the manifest:2: key 'image' stands twice",
    "image: a\n---\nimage: b\n": "the manifest",
    "{" * 5000: "the manifest",
    "[" * 5000: "the manifest",
    "{}": "no container of the manifest starts an engine",
    "[]": "the launch command is empty",
    "image: {{ .Values.image }}\n": "the manifest",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_manifest_that_cannot_be_read_is_a_sentence(ask: Callable[..., Answer], text: str) -> None:
    with pytest.raises(UsageError) as error:
        read_command([text])
    assert error.value.message.startswith(REFUSED[text])
    assert "hunter2" not in error.value.message + error.value.hint
    answer = ask("launch", "--model", "gpt2", "-", stdin=text.encode())
    assert answer.err.count("\n") == 1
