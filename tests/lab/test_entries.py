"""The list of lessons: complete, and readable without PyTorch."""

from __future__ import annotations

import sys

import pytest

from kvcalc.core.errors import KvcalcError, UsageError
from kvcalc.core.states import KINDS
from kvcalc.core.workload import Workload
from kvcalc.lab import ENTRIES, choose, require_torch
from kvcalc.questions import techniques
from kvcalc.questions.compare import Comparing, compare
from kvcalc.questions.explain import explain

#: Technique → rows of the lab, entries of `compare` and pages of `explain`, state.
TECHNIQUES: dict[str, tuple[set[str], set[str], str]] = {
    "no cache": ({"no-cache"}, {"no-cache"}, "none"),
    "kv cache": ({"kv", "kv-preallocated", "batch"}, {"mha"}, "full"),
    "mqa": ({"mqa"}, {"mqa"}, "full"),
    "gqa": ({"gqa"}, {"gqa"}, "full"),
    "mla": ({"mla", "mla-absorbed"}, {"mla"}, "latent"),
    "sliding window": ({"swa", "swa-hybrid", "chunked"}, {"swa", "chunked"}, "sliding"),
    "cross-layer sharing": ({"share"}, {"share"}, "shared"),
    "dsa": ({"dsa"}, {"dsa"}, "index"),
    "gated deltanet": ({"deltanet", "deltanet-hybrid", "mamba2"}, {"deltanet", "mamba2"}, "gated_deltanet"),
    "kv quantisation": ({"int8", "int4", "int8-token", "int4-token"}, {"int8", "int4", "fp8", "q8_0", "q4_0", "nvfp4"}, "full"),
    "paged": ({"paged"}, {"paged"}, "full"),
    "prefix caching": ({"prefix", "fork"}, {"prefix"}, "full"),
    "multi-turn policies": (
        {"turns", "turns-window", "turns-sinks", "turns-summary"},
        {"mha", "window", "sinks", "keep", "summary", "prefix"},
        "sliding",
    ),
}


@pytest.mark.parametrize("technique", TECHNIQUES)
def test_every_technique_has_its_rows(technique: str) -> None:
    rows, _, state = TECHNIQUES[technique]
    assert {name for name, entry in ENTRIES.items() if entry.technique == technique} == rows
    assert state in KINDS


@pytest.mark.parametrize("name", sorted(set().union(*(compared for _, compared, _ in TECHNIQUES.values()))))
def test_every_technique_is_compared_and_explained(name: str) -> None:
    rows = compare(Comparing(workload=Workload(context=4096), techniques=(name,))).to_dict()["rows"]
    assert any(name in row["name"] and row["bytes"] for row in rows)
    assert explain(name, Workload()).to_dict()["sections"]


def test_no_technique_of_compare_is_left_out() -> None:
    assert set(techniques.TECHNIQUES) <= set().union(*(compared for _, compared, _ in TECHNIQUES.values()))


def test_no_row_belongs_to_an_unknown_technique() -> None:
    assert {entry.technique for entry in ENTRIES.values()} == set(TECHNIQUES)


def test_choose_keeps_the_labs_order_and_each_name_once() -> None:
    assert choose(["gqa", "kv", "gqa"]) == ["kv", "gqa"]
    assert choose([]) == ["kv"]
    assert choose([], everything=True) == list(ENTRIES)
    assert choose(["gqa"], everything=True) == list(ENTRIES)


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown technique 'gqaa'") as caught:
        choose(["gqaa"])
    assert "'gqa'" in caught.value.hint


def test_missing_pytorch_is_one_sentence_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(KvcalcError, match="needs PyTorch") as caught:
        require_torch()
    assert caught.value.hint == "pip install 'kvcalc[lab]'"
    assert caught.value.exit_code == 2
