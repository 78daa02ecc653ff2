"""TabbyAPI (`python main.py`, config.yml) and text-generation-webui (`python server.py --loader ExLlamav3`).

TabbyAPI makes a flag of every key of config.yml (common/config_models.py, common/args.py; August 2026): `max_seq_len` of its section `model`
is `--max-seq-len`, and a flag wins. text-generation-webui: modules/shared.py, modules/exllamav3.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import UsageError
from kvcalc.engines.base.config_file import with_file
from kvcalc.engines.base.flags import (
    IDLE,
    Flag,
    Syntax,
    apply,
    asks,
    doubted,
    go_through,
    idle_flags,
    keeps,
    lists,
    mappings,
    refused,
    sets,
    switches,
    values,
    weights,
)
from kvcalc.engines.base.reading import Reading, model, name, whole
from kvcalc.engines.exllamav3.tensors import PAGE

if TYPE_CHECKING:
    from kvcalc.engines.base.flags import Does
    from kvcalc.engines.base.launcher import Found

_FILE = "config.yml"
_SECTIONS = ("network", "logging", "model", "draft_model", "lora", "embeddings", "sampling", "developer", "memory")
#: `cache_mode` of TabbyAPI by name, and as a pair; `--cache-type` of text-generation-webui.
_MODES = {"fp16": None, "q4": (4, 4), "q6": (6, 6), "q8": (8, 8)}
_PAIR = re.compile(r"([2-8])\s*,\s*([2-8])", re.ASCII)
_CACHE_TYPE = re.compile(r"q([2-8])(?:_q([2-8]))?", re.ASCII)
#: Slots of TabbyAPI where it is told none, for models with rings or states; the others have no slots.
_SLOTS = 4
_LOADERS = ("exllamav3", "exllamav3_hf")
_OFF = ("false", "0", "none", "null", "")


def _context(reading: Reading, flag: str, text: str) -> None:
    if text.strip() != "-1":
        asks("context", whole)(reading, flag, text)


def _pool(flag: str, text: str) -> int:
    return -(-whole(flag, text) // PAGE) * PAGE


def _bits(reading: Reading, bits: tuple[int, int] | None) -> None:
    if bits is not None:
        reading.settings["k_bits"], reading.settings["v_bits"] = bits


def _mode(reading: Reading, flag: str, text: str) -> None:
    word, pair = text.strip().lower(), _PAIR.fullmatch(text.strip())
    if pair is None and word not in _MODES:
        raise UsageError(f"{flag}: its value is no cache of TabbyAPI's", "FP16, Q8, Q6, Q4, or bits of K and V from 2 to 8, such as 6,5")
    _bits(reading, (int(pair[1]), int(pair[2])) if pair else _MODES[word])


def _cache_type(reading: Reading, flag: str, text: str) -> None:
    found = _CACHE_TYPE.fullmatch(text.strip().lower())
    if found:
        _bits(reading, (int(found[1]), int(found[2] or found[1])))
    elif text.strip().lower() != "fp16":
        reading.warnings.append(f"{flag}: no cache of ExLlamaV3's, for which the program takes fp16")


def _on(does: Does) -> Does:
    """A truth value written out: what is off changes nothing."""

    def judged(reading: Reading, flag: str, value: Any) -> None:
        if str(value).strip().lower() not in _OFF:
            does(reading, flag, value)

    return judged


def _words(does: Does, names: str) -> dict[str, Flag]:
    """Flags with a truth value."""
    return {word: Flag(word, "word", _on(does)) for word in names.split()}


_SECOND = "runs a second model, or another head of the model, with a cache of its own"
_SPREAD = "spreads the layers over several cards: the figures are those of all of them together"
_TRANSLATED = {
    **values(keeps("model", model), "--model-name"),
    **values(_context, "--max-seq-len"),
    **values(sets("max_num_tokens", _pool), "--cache-size"),
    **values(_mode, "--cache-mode"),
    **values(sets("max_batch_size", whole), "--max-batch-size"),
}
_SETTINGS: dict[str, Flag] = {}
_REFUSED = {
    **values(refused("runs another engine", unless=("exllamav3",)), "--backend"),
    **_words(refused("cuts heads over several cards"), "--tensor-parallel"),
    **values(refused(_SECOND, unless=("None", "none")), "--draft-model-name"),
    **values(refused(_SECOND, unless=("model", "disabled")), "--draft-mode"),
}
_DOUBTED = {
    **lists(doubted(_SPREAD), "--gpu-split"),
    **lists(weights("loads adapters"), "--loras"),
    **_words(weights("loads the model's encoders"), "--vision"),
    **values(weights("loads a second model for embeddings"), "--embedding-model-name"),
}
_IDLE = idle_flags(__file__)
_FLAGS = {**_IDLE, **_DOUBTED, **_REFUSED, **_SETTINGS, **_TRANSLATED}


def _spell(word: str) -> tuple[str, bool]:
    """`--model.max_seq_len`, a key of config.yml in its section, is `--max-seq-len`."""
    section, dot, key = word.removeprefix("--").partition(".")
    return (
        "--" + (key if dot and section in _SECTIONS else word.removeprefix("--")).replace("_", "-") if word[:2] == "--" else word
    ), False


_TABBY = Syntax({**_FLAGS, **mappings(IDLE, " ".join("--" + section.replace("_", "-") for section in _SECTIONS))}, _spell)


def _loader(_reading: Reading, flag: str, text: str) -> None:
    if name(flag, text).lower() not in _LOADERS:
        raise UsageError(f"{flag} names another engine than ExLlamaV3", "kvcalc reads --loader ExLlamav3 and ExLlamav3_HF of this program")


_WEBUI = Syntax(
    {
        **values(_loader, "--loader"),
        **values(keeps("model", model), "--model"),
        **values(asks("context", whole), "--ctx-size/--n_ctx/--max_seq_len"),
        **values(_cache_type, "--cache-type/--cache_type"),
        **values(doubted(_SPREAD), "--gpu-split"),
        **switches(refused("cuts heads over several cards"), "--enable-tp/--enable_tp"),
        **switches(refused("keeps a second cache for negative prompts"), "--cfg-cache"),
        **values(refused(_SECOND, unless=("None", "none")), "--model-draft"),
        **values(weights("loads adapters"), "--lora"),
        **switches(IDLE, "--api --listen --share --verbose --auto-launch --nowebui --public-api --trust-remote-code --multi-user --no-electron"),
        **values(IDLE, """--api-port --api-key --admin-key --listen-port --listen-host --model-dir --lora-dir --settings --extensions
            --character --model-menu --gradio-auth --chat-buttons --user-data-dir --tp-backend --draft-max --ctx-size-draft
            --gpu-split-draft --idle-timeout"""),
    }
)  # fmt: skip
#: Remedies of `fit` in the words of either command.
_REMEDIES = {
    "tabby": {"context": "--max-seq-len {}", "max_batch_size": "--max-batch-size {}"},
    "webui": {"context": "--ctx-size {}"},
}


def read(found: Found) -> Reading:
    """What the program is told. Raises UsageError for what it would refuse, or what kvcalc has no rule for."""
    reading = Reading("exllamav3", words=_REMEDIES[found.program])
    if found.program == "webui":
        given = go_through(found.words, _WEBUI)
        if "--loader" not in given.flags:
            raise UsageError(
                "server.py of text-generation-webui chooses its engine by the model's files where no --loader is given",
                "add --loader ExLlamav3",
            )
        apply(given, reading)
        return reading
    apply(go_through(_with_config(found, reading), _TABBY), reading)
    if "max_batch_size" not in reading.settings:
        reading.settings["max_batch_size"] = _SLOTS
        reading.implied.add("max_batch_size")
        reading.notes.append(
            f"TabbyAPI keeps {_SLOTS} slots of rings and states where max_batch_size is not set; the engine by itself keeps 16"
        )
    pool = reading.settings.get("max_num_tokens")
    if pool is not None and reading.keys.get("context", 0) > pool:
        reading.keys["context"] = pool
        reading.notes.append(f"max_seq_len is cut to cache_size: {pool:,} tokens")
    return reading


def _with_config(found: Found, reading: Reading) -> list[str]:
    """The words with those of the file that --config names, or of config.yml where it names none and that lies there."""
    words = [part for word in found.words for part in (word.split("=", 1) if word.startswith("--config=") else [word])]
    if "--config" not in words:
        if (Path(found.folder or ".") / _FILE).is_file():
            words = ["--config", _FILE, *words]
        else:
            reading.notes.append(f"TabbyAPI reads {_FILE} of its own folder, which is not here: --config says where one lies")
    return with_file(found._replace(words=words), _TABBY, ("--config",))
