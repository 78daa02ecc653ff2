"""The options of mlx_lm.server, mlx_lm.generate and mlx_lm.chat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.engines.base.reading import Reading

#: Command → settings of the engine.
READ: dict[str, dict[str, Any]] = {
    "mlx_lm.server --model org/name": {},
    "mlx_lm server --model org/name --port 8080 --host 0.0.0.0 --max-tokens 4096 --temp 0.7": {},
    "python -m mlx_lm server --model org/name --prefill-step-size 512": {"prefill_step_size": 512},
    "python -m mlx_lm.server --model org/name --prompt-cache-size 4 --prompt-cache-bytes 2.5G": {
        "prompt_cache_size": 4,
        "prompt_cache_bytes": 2_500_000_000,
    },
    "mlx_lm.server --model org/name --kv-bits 4 --kv-group-size 32 --quantized-kv-start 0": {
        "kv_bits": 4,
        "kv_group_size": 32,
        "quantized_kv_start": 0,
    },
    "mlx_lm.generate --model org/name --max-kv-size 4096 -m 200 --prompt hello": {"max_kv_size": 4096, "max_tokens": 200},
    "mlx_lm.chat --model=org/name --max-kv-size 4096 --max-tokens 200": {"max_kv_size": 4096},
}


@pytest.mark.parametrize("command", READ)
def test_options_are_read(read: Callable[[str], Reading], command: str) -> None:
    found = read(command)
    assert (found.engine, found.model, found.settings, found.warnings) == ("mlx", "org/name", READ[command], [])


REFUSED = {
    "mlx_lm.server --model a/b --max-kv-size 4096": "mlx_lm.server has no --max-kv-size",
    "mlx_lm.chat --model a/b --kv-bits 4": "mlx_lm.chat has no --kv-bits",
    "mlx_lm.generate --model a/b --prompt-cache-size 4": "mlx_lm.generate has no --prompt-cache-size",
    "mlx_lm.server --model a/b --prompt-cache-bytes 2GiB": "--prompt-cache-bytes: its value is not a size",
    "mlx_lm.server --model a/b --kv-bits four": "--kv-bits: its value is not a whole number",
}


@pytest.mark.parametrize("command", REFUSED)
def test_what_a_command_does_not_have_is_refused_by_name(read: Callable[[str], Reading], command: str) -> None:
    with pytest.raises(UsageError) as error:
        read(command)
    assert error.value.message.startswith(REFUSED[command])


def test_what_the_server_keeps_beside_is_said(read: Callable[[str], Reading]) -> None:
    notes = read("mlx_lm.server --model a/b").notes
    assert any("up to 10 finished prompts" in note for note in notes)
    assert any("up to 32 requests run together" in note for note in notes)
    assert any("--kv-bits ends batching" in note for note in read("mlx_lm.server --model a/b --kv-bits 8").notes)
    assert any("up to 8 requests run together" in note for note in read("mlx_lm.server --model a/b --decode-concurrency 8").notes)
    assert any("--draft-model" in said for said in read("mlx_lm.server --model a/b --draft-model c/d").warnings)


def test_a_flag_that_is_none_is_named(read: Callable[[str], Reading]) -> None:
    assert read("mlx_lm.server --model a/b --ctx-size 4096").warnings == [
        "--ctx-size is not a flag that kvcalc knows of this engine: it was not read"
    ]
