"""`llama-server` and `llama-cli`, as of llama.cpp 0.5.0 (common/arg.cpp, tools/server/server.cpp).

Every option of the two programs stands in one of the tables below, each with its variable (`--ctx-size` is LLAMA_ARG_CTX_SIZE), which
the option overrides. The word behind an option is its value whatever it looks like; `--option=value` is not read, as llama.cpp does
not. The context of a command is that of all slots together: -c 65536 -np 4 is 16,384 tokens a slot, or one pool with -kvu.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import UsageError
from kvcalc.core.weights import WEIGHT_FORMATS
from kvcalc.engines.base.flags import (
    Flag,
    Syntax,
    apply,
    doubted,
    go_through,
    idle_flags,
    keeps,
    refused,
    settings,
    switches,
    values,
    weights,
)
from kvcalc.engines.base.reading import Reading, name, whole
from kvcalc.engines.base.reading import model as named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.engines.base.launcher import Found

_TRUE, _FALSE = ("on", "enabled", "true", "1"), ("off", "disabled", "false", "0")
_VARIABLE = "LLAMA_ARG_"
#: A quantization in the name of a GGUF file: `qwen3-32b-Q4_K_M.gguf`.
_IN_FILE = re.compile(r"[-._](I?Q[0-9][A-Z0-9_]{0,12}|BF16|F16)(?:-[0-9]{5}-of-[0-9]{5})?\.gguf$", re.IGNORECASE | re.ASCII)
_FULL = {"f16": "fp16"}
#: Kinds of speculation whose drafts recurrent state can be rolled back from (common.h, need_n_rs_seq).
_ROLLED_BACK = ("draft-mtp", "draft-eagle3", "draft-dflash", "draft-dspark")
_DRAFTED = 3
#: Slots of llama-server without -np, which share one pool (tools/server/server.cpp).
_AUTO_SLOTS = 4
#: Beginnings of variables with names of their own that change no byte.
_IDLE_VARIABLES = ("ENDPOINT_", "THINK", "STATIC_PATH", "CHECKPOINT_MIN", "ROPE_SCALING_TYPE")


def _context(reading: Reading, flag: str, text: str) -> None:
    reading.settings["ctx_size"] = whole(flag, text, least=0)
    reading.options["context"] = flag


def _pool(reading: Reading, flag: str, text: str) -> None:
    """`--kv-unified-per-slot`: tokens a slot, where the context is not given."""
    reading.keys["context"] = whole(flag, text)


def _parallel(reading: Reading, flag: str, text: str) -> None:
    count = whole(flag, text, least=-1)
    if not count:
        raise UsageError(f"{flag}: its value is 0", "llama.cpp needs a slot")
    reading.settings["parallel"] = count


def _flash(reading: Reading, flag: str, text: str) -> None:
    word = "on" if text in _TRUE else "off" if text in _FALSE else "auto" if text in ("auto", "-1") else None
    if word is None:
        raise UsageError(f"{flag}: its value is not on, off or auto", "llama.cpp reads these")
    reading.settings["flash_attn"] = word


def _gpu_layers(reading: Reading, flag: str, text: str) -> None:
    if text not in ("auto", "all", "-1", "-2"):
        reading.settings["n_gpu_layers"] = whole(flag, text, least=0)


def _split(reading: Reading, flag: str, text: str) -> None:
    if not re.fullmatch(r"[0-9.]{1,12}(?:[,/][0-9.]{1,12}){0,64}", text, re.ASCII):
        raise UsageError(f"{flag}: its value is not a list of proportions", "write it like 3,1")
    reading.settings["tensor_split"] = re.split(r"[,/]", text)


def _host(reading: Reading, _flag: str, value: Any) -> None:
    if not value:
        reading.settings["no_kv_offload"] = True


def _repository(reading: Reading, flag: str, text: str) -> None:
    """`org/name:Q4_K_M`: a repository of the Hub, and which of its files."""
    repository, _, quantization = text.partition(":")
    reading.model = named(flag, repository)
    _quantization(reading, flag, quantization)


def _file(reading: Reading, flag: str, text: str) -> None:
    reading.model = named(flag, text)
    _of_file(reading, flag, text)


def _of_file(reading: Reading, flag: str, text: str) -> None:
    found = _IN_FILE.search(text)
    if found is not None:
        _quantization(reading, flag, found[1])


def _quantization(reading: Reading, flag: str, text: str) -> None:
    word = text.lower().removeprefix("ud-")
    word = _FULL.get(word, word)
    if word in WEIGHT_FORMATS:
        reading.weight_dtype = word
    elif text:
        weights("names a quantization whose size is not known")(reading, flag, text)


def _speculation(reading: Reading, flag: str, text: str) -> None:
    words = [word.strip() for word in text.split(",")]
    if any(word in _ROLLED_BACK for word in words):
        reading.settings.setdefault("n_rs_seq", _DRAFTED)
    if any(word.startswith("draft") for word in words):
        doubted("opens a second context for drafts, whose cache is not counted here")(reading, flag, text)


def _drafted(reading: Reading, flag: str, text: str) -> None:
    reading.settings["n_rs_seq"] = whole(flag, text, least=0)


_OWN = "is a set of flags of its own"
_TRANSLATED = {
    **values(_context, "--ctx-size/-c"),
    **values(_pool, "--kv-unified-per-slot"),
    **values(_parallel, "--parallel/-np"),
    **values(_flash, "--flash-attn/-fa"),
    **values(_gpu_layers, "--gpu-layers/-ngl/--n-gpu-layers"),
    **values(_split, "--tensor-split/-ts"),
    **switches(_host, "--kv-offload/-kvo"),
    **values(_file, "--model/-m"),
    **values(keeps("model", named), "--model-url/-mu"),
    **values(_repository, "--hf-repo/-hf/-hfr"),
    **values(_of_file, "--hf-file/-hff"),
    **values(_speculation, "--spec-type"),
}
_SETTINGS = settings(
    "llama.cpp",
    shorts={"cache_type_k": "-ctk", "cache_type_v": "-ctv", "batch_size": "-b", "ubatch_size": "-ub", "kv_unified": "-kvu", "split_mode": "-sm"},
    without=("ctx_size", "parallel", "flash_attn", "n_gpu_layers", "tensor_split", "no_kv_offload", "n_rs_seq", "mtp_context", "usage"),
)  # fmt: skip
_REFUSED = {
    **values(refused("changes the keys of the model's own file"), "--override-kv"),
    **values(refused("starts servers of its own for several models"), "--models-dir --models-preset"),
    **values(refused("talks to another server"), "--server-base"),
    **values(refused("names a model that kvcalc does not fetch"), "--docker-repo/-dr"),
    **values(refused("spreads the cache over other machines"), "--rpc"),
    **switches(refused("serves no text"), "--embedding/--embeddings --rerank/--reranking"),
    **switches(refused(_OWN), """
        --embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec --fim-qwen-14b-spec
        --fim-qwen-30b-default --gpt-oss-20b-default --gpt-oss-120b-default --vision-gemma-4b-default --vision-gemma-12b-default
    """),
}  # fmt: skip
_DRAFT_MODEL = "runs a second model, whose cache is not counted here"
_DOUBTED = {
    **values(doubted("is no option of llama.cpp any more"), "--draft/--draft-n/--draft-max --draft-min/--draft-n-min"),
    **values(doubted(_DRAFT_MODEL), "--spec-draft-model/-md/--model-draft --spec-draft-hf/-hfd/-hfrd/--hf-repo-draft"),
    **values(weights("leaves weights in host memory", unless=("0",)), "--n-cpu-moe/-ncmoe --n-cpu-ffn/-ncffn --override-tensor/-ot"),
    **switches(weights("leaves weights in host memory"), "--cpu-moe/-cmoe"),
    **values(
        weights("loads further weights"), "--mmproj/-mm --mmproj-url/-mmu --lora --lora-scaled --control-vector --control-vector-scaled"
    ),
}
#: Behind --spec-type, which reads the number of drafts.
_LAST = values(_drafted, "--spec-draft-n-max")
_IDLE = idle_flags(__file__)
_FLAGS: dict[str, Flag] = {**_IDLE, **_DOUBTED, **_REFUSED, **_SETTINGS, **_TRANSLATED, **_LAST}
#: Short forms that switch off.
_OFF = {"-no-kvu": "--kv-unified", "-nkvo": "--kv-offload", "-nr": "--repack", "-nocb": "--cont-batching", "-no-ag": "--agent",
        "--no-mmproj": "--mmproj-auto"}  # fmt: skip


def _spell(word: str) -> tuple[str, bool]:
    """Other spellings of an option: `_` for `-` in long ones, `--no-x`, and the short forms that switch off."""
    spelled = "--" + word[2:].replace("_", "-") if word.startswith("--") else word
    if spelled in _FLAGS:
        return spelled, False
    if spelled in _OFF:
        return _OFF[spelled], True
    return ("--" + spelled[5:], True) if spelled.startswith("--no-") else (spelled, False)


_SYNTAX = Syntax(_FLAGS, _spell, greedy=True, equals=False)


#: Remedies of `fit` in the words of the command.
_WORDS = {
    "context": "--ctx-size {}",
    "sequences": "--parallel {0} --ctx-size {1}",
    "kv_dtype": "--cache-type-k {0} --cache-type-v {0}",
}


def read(found: Found) -> Reading:
    """What the program is told. Raises UsageError for what it would refuse, or what kvcalc has no rule for."""
    reading = Reading("llama.cpp", words=_WORDS)
    given = go_through([*_from_variables(found.environment, reading), *found.words], _SYNTAX)
    given.flags.update({key: given.flags.pop(key) for key in _LAST if key in given.flags})
    apply(given, reading)
    implied = {"usage": "cli", "parallel": 1} if found.program == "cli" else {"parallel": -1}
    reading.implied = implied.keys() - reading.settings.keys()
    reading.settings = implied | reading.settings
    reading.splits_tensors = reading.settings.get("split_mode") == "tensor"
    _slots(reading)
    return reading


def _slots(reading: Reading) -> None:
    """Contexts, slots and types as one slot sees them, so that a fit can ask for others."""
    settings, keys = reading.settings, reading.keys
    size, per_slot = settings.pop("ctx_size", 0), keys.pop("context", None)
    count = settings["parallel"]
    slots = _AUTO_SLOTS if count == -1 else count
    shared = count == -1 or bool(settings.get("kv_unified"))
    size = size or (per_slot or 0) * slots
    reading.slots = parts = 1 if shared else slots
    if size and not size % parts:
        keys["context"] = size // parts
    elif size or parts > 1:
        settings["ctx_size"] = size
    if shared and slots > 1:
        reading.notes.append(f"{slots} slots share one pool of cells: one sequence may fill it")
    elif "parallel" not in reading.implied:
        keys["sequences"], reading.options["sequences"] = slots, "--parallel"
        if "ctx_size" not in settings:
            del settings["parallel"]
    if not size:
        reading.notes.append("no context in the command: llama.cpp takes the trained one, and less where that does not fit (--fit)")
    types = settings.pop("cache_type_k", "f16"), settings.pop("cache_type_v", "f16")
    if types != ("f16", "f16"):
        keys["kv_dtype"] = types[0] if types[0] == types[1] else "/".join(types)


def _from_variables(environment: Mapping[str, str], reading: Reading) -> list[str]:
    """The options that LLAMA_ARG_… variables stand for; a warning names those that are none."""
    words: list[str] = []
    for variable, value in environment.items():
        word = variable.removeprefix(_VARIABLE)
        if word == variable or word.startswith(_IDLE_VARIABLES):
            continue
        spelled, _ = _spell("--" + word.lower().replace("_", "-").replace("n-parallel", "parallel"))
        flag = _FLAGS.get(spelled) or _FLAGS.get(f"{spelled}-size")
        if flag is None:
            reading.warnings.append(f"variable {name('variable', variable)} is none that kvcalc knows of this engine: it was not read")
        elif flag.takes != "nothing":
            words += [flag.name, value]
        elif value.lower() in (*_TRUE, *_FALSE):
            words.append(flag.name if value.lower() in _TRUE else flag.name.replace("--", "--no-", 1))
    return words
