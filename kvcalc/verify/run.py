"""The real model class on the meta device: shapes without numbers, no weights, no network, no code but the library's own.

    config class ──from_config on "meta"──▶ model ──T - 1 tokens, then one──▶ cache ──tensors by storage──▶ bytes a layer

A tensor counts with the whole storage that it keeps alive, and a storage once, however many tensors look at it.
"""

from __future__ import annotations

import os
import warnings
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcalc.core.errors import UnsupportedArchitectureError, UsageError
from kvcalc.core.units import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Names under which model outputs carry their cache, and under which the next call takes it.
_CACHES = ("cache", "past_key_values", "cache_params", "state")
#: Counters that cache layers keep as tensors: bookkeeping of a few bytes.
_COUNTERS = frozenset({"cumulative_length", "indexer_cumulative_length", "_sliding_window_tensor", "seqlen_offset"})
#: Keys of a config.json that are about weights or foreign code, not about shapes.
_NOT_SHAPES = ("auto_map", "quantization_config", "compression_config", "transformers_version", "_name_or_path")
_TORCH = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


class Measured(NamedTuple):
    """What was run, and the bytes of each entry of its cache."""

    model_class: str
    torch: str
    transformers: str
    layers: tuple[int, ...]


def require() -> None:
    """Raises UsageError where torch or transformers is not installed."""
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing:
        raise UsageError("verify needs " + " and ".join(missing) + ", which kvcalc does not install by itself", "pip install 'kvcalc[lab]'")


def class_defaults(model_type: str) -> dict[str, Any]:
    """The fields of a config class with their defaults. Raises UnsupportedArchitectureError for an unknown model_type."""
    found: dict[str, Any] = _config_class(model_type)().to_dict()
    return found


def complete(model_type: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """`fields` and everything that the config class derives from them or fills in. Raises UnsupportedArchitectureError."""
    with _quiet():
        try:
            found: dict[str, Any] = _config_class(model_type)(**fields).to_dict()
        except Exception as error:
            raise _failed(model_type, error) from error
    return found | {"model_type": model_type}


def measure(fields: Mapping[str, Any], class_name: str, dtype: str, context: int) -> Measured:
    """Build the class, run `context` tokens, add up its cache. Raises UnsupportedArchitectureError where it does not run."""
    with _quiet():
        import torch
        import transformers
        from torch.fx.experimental import _config as meta
        from transformers.initialization import no_init_weights

        model_type = str(fields.get("model_type"))
        try:
            config = _config_class(model_type).from_dict({key: value for key, value in fields.items() if key not in _NOT_SHAPES})
            _tame(config)
            builder = _builder(config, class_name)
            # Experts ask which tokens are theirs; without numbers, all are. No cache depends on it.
            with torch.device("meta"), torch.inference_mode(), meta.patch(meta_nonzero_assume_all_nonzero=True):
                with no_init_weights():
                    model = builder(config, dtype=getattr(torch, _TORCH[dtype])).eval()
                cache = _decode(model, config, context)
        except UnsupportedArchitectureError:
            raise
        except Exception as error:  # whatever a foreign class raises, it did not run
            raise _failed(model_type, error) from error
        return Measured(type(model).__name__, str(torch.__version__), str(transformers.__version__), tuple(_layers(cache)))


def _failed(model_type: str, error: Exception) -> UnsupportedArchitectureError:
    import transformers

    return UnsupportedArchitectureError(
        f"the {clean(model_type, 60)} class of transformers {transformers.__version__} does not run on the meta device: "
        f"{type(error).__name__}: {clean(' '.join(str(error).split()), 200)}"
    )


def _config_class(model_type: str) -> Any:
    with _quiet():
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        if model_type not in CONFIG_MAPPING:
            import transformers

            raise UnsupportedArchitectureError(
                f"transformers {transformers.__version__} has no class for model_type '{clean(model_type, 60)}'"
            )
        return CONFIG_MAPPING[model_type]


def _tame(config: Any) -> None:
    """A padding token outside the vocabulary stops the embedding from being built; no cache depends on it."""
    for part in (config, config.get_text_config(decoder=True)):
        padding, vocabulary = getattr(part, "pad_token_id", None), getattr(part, "vocab_size", None)
        if isinstance(padding, int) and isinstance(vocabulary, int) and padding >= vocabulary:
            part.pad_token_id = None


def _builder(config: Any, class_name: str) -> Any:
    """What builds the model: the class that the checkpoint names, else the library's own choice for this config."""
    import transformers

    named = getattr(transformers, class_name, None) if class_name else None
    if getattr(named, "config_class", None) is type(config):
        return named._from_config  # type: ignore[union-attr]  # noqa: SLF001  what every from_config calls
    for name in ("AutoModelForCausalLM", "AutoModelForImageTextToText", "AutoModel"):
        auto = getattr(transformers, name)
        if type(config) in auto._model_mapping:  # noqa: SLF001  the public way is to try and catch
            return auto.from_config
    raise UnsupportedArchitectureError(f"transformers has no model that generates text from a {clean(config.model_type, 60)} config")


def _decode(model: Any, config: Any, context: int) -> Any:
    """The cache after a prefill of `context` - 1 tokens and one more."""
    import torch
    from transformers import DynamicCache

    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedArchitectureError("verify runs decoders only, and this is an encoder-decoder")
    tokens = [count for count in (context - 1, 1) if count]
    cache: Any = None
    given: dict[str, Any] = {}
    for count in tokens:
        output = model(input_ids=torch.zeros((1, count), dtype=torch.long), use_cache=True, **given)
        name = next((name for name in _CACHES if getattr(output, name, None) is not None), None)
        if name is None and not given:
            # A class that makes no cache by itself, but takes the one that `generate` makes for it.
            cache = DynamicCache(config=config.get_text_config(decoder=True))
            given = {"cache": cache}
            model(input_ids=torch.zeros((1, count), dtype=torch.long), use_cache=True, **given)
        elif name is not None:
            cache = getattr(output, name)
            given = {name: cache}
    return cache


def _layers(cache: Any) -> list[int]:
    """Bytes of each layer of a cache; all of it as one where it has no layers, or keeps tensors beside them."""
    seen: set[int] = set()
    layers = [sum(_storages(layer, seen)) for layer in getattr(cache, "layers", None) or ()]
    beside = sum(_storages(cache, seen))
    return [sum(layers) + beside] if beside or not layers else layers


def _storages(value: Any, seen: set[int]) -> Iterator[int]:
    """Bytes of every storage reached from `value` that is not in `seen` yet."""
    import torch

    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        # Tensors on the meta device have no address; the storage object has.
        address = storage._cdata  # noqa: SLF001
        if address not in seen:
            seen.add(address)
            yield storage.nbytes()
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in _COUNTERS:
                yield from _storages(item, seen)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _storages(item, seen)
    elif type(value).__module__.startswith("transformers.") and not hasattr(value, "to_dict") and id(value) not in seen:
        seen.add(id(value))
        yield from _storages(vars(value), seen)


@contextmanager
def _quiet() -> Iterator[None]:
    """No network, no warnings of the library on the terminal."""
    before = os.environ.get("HF_HUB_OFFLINE")
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import transformers

            level = transformers.logging.get_verbosity()
            transformers.logging.set_verbosity_error()
            try:
                yield
            finally:
                transformers.logging.set_verbosity(level)
    finally:
        if before is None:
            del os.environ["HF_HUB_OFFLINE"]
        else:
            os.environ["HF_HUB_OFFLINE"] = before
