"""What-ifs: each technique turns one architecture into another, so that their caches can be compared.

    gqa+swa:window=1024:ratio=5-1      techniques from left to right, parameters behind a colon

    heads.py      mha · gqa · mqa · mla          reach.py       swa · chunked · dsa          sharing.py    share
    recurrent.py  deltanet · mamba2              storage.py     no-cache · paged · prefix · formats
    retention.py  window · sinks · keep · summary                                            chains.py     parse, apply

A technique is a function of a `Case` and its parameters. Its docstring is its page in `kvcalc explain`. Every storage format
is a technique too: `fp8`, `q4_0`, `q8_0/q4_0`. Errors: `UsageError`.
"""

from __future__ import annotations

from kvcalc.questions.techniques import heads, reach, recurrent, retention, sharing, storage
from kvcalc.questions.techniques.base import TECHNIQUES, Case, Parameter, Ratio, Step, Technique, Used
from kvcalc.questions.techniques.chains import apply, get_technique, names, parse
from kvcalc.questions.techniques.layers import build
from kvcalc.questions.techniques.sharing import share_layers

__all__ = [
    "TECHNIQUES",
    "Case",
    "Parameter",
    "Ratio",
    "Step",
    "Technique",
    "Used",
    "apply",
    "build",
    "get_technique",
    "heads",
    "names",
    "parse",
    "reach",
    "recurrent",
    "retention",
    "share_layers",
    "sharing",
    "storage",
]
