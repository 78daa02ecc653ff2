"""Every model_type that kvcalc reads has a row under vLLM, and one without a row is refused with the way out."""

from __future__ import annotations

import pytest
from vllm_models import DEEPSEEK, LLAMA_HEADS, NEXT, plan, uniform

from kvcalc.core.errors import UnsupportedArchitectureError
from kvcalc.core.workload import Workload
from kvcalc.engines.vllm.classes import CLASSES
from kvcalc.engines.vllm.engine import Vllm
from kvcalc.engines.vllm.families import FAMILIES, Family, Service
from kvcalc.engines.vllm.support import service_of
from kvcalc.questions.estimate import estimate
from kvcalc.questions.request import Request
from kvcalc.sources.hf.families.index import INDEX

SERVED = (Service.OWN, Service.TRANSFORMERS)


@pytest.mark.parametrize("family", sorted(INDEX))
def test_every_family_has_a_row_and_an_answer(family: str) -> None:
    row = FAMILIES[family]
    architecture = uniform(2, LLAMA_HEADS, family=family, class_name="")
    if row.service in SERVED and not row.unruled:
        assert Vllm().knows(family)
        if row.caches.value in ("ordinary", "kimi_linear"):
            assert plan(architecture, context=100, gpu="b200-180gb" if row.backend else "h100-80gb").total > 0
        return
    assert not Vllm().knows(family)
    with pytest.raises(UnsupportedArchitectureError) as caught:
        plan(architecture, context=100)
    assert "vLLM 0.33" in str(caught.value)
    assert (caught.value.hint or "").startswith("engines that know it: ")


def test_a_family_that_stands_nowhere_is_refused_whatever_its_class() -> None:
    request = Request(model="deepseek-v3", engine="vllm", workload=Workload(context=4096))
    assert estimate(request).plan.total > 0
    unknown = uniform(61, DEEPSEEK, family="zzz", class_name="DeepseekV3ForCausalLM")
    with pytest.raises(UnsupportedArchitectureError, match="no class for model_type zzz") as caught:
        plan(unknown, context=4096)
    assert caught.value.exit_code == 3
    assert not Vllm().knows("zzz", "DeepseekV3ForCausalLM")


@pytest.mark.parametrize(
    ("family", "class_name", "service"),
    [
        ("llama", "", Service.OWN),
        ("llama", "LlamaForCausalLM", Service.OWN),
        ("llama", "SomebodysForCausalLM", Service.OWN),
        ("arcee", "ArceeForCausalLM", Service.TRANSFORMERS),
        ("telechat", "", Service.REMOVED),
        ("telechat", "TeleChat2ForCausalLM", Service.OWN),  # TeleChat2's first configs say model_type telechat
        ("yi", "", Service.ABSENT),
        ("yi", "LlamaForCausalLM", Service.OWN),
        ("falcon", "RWForCausalLM", Service.REMOVED),
        ("chameleon", "", Service.TRANSFORMERS),
        ("bart", "", Service.PLUGIN),
        ("llama", "Florence2ForConditionalGeneration", Service.PLUGIN),
        ("bailing_hybrid", "BailingHybridForCausalLM", Service.UNDRIVEN),
        ("codegen", "CodeGenForCausalLM", Service.UNDRIVEN),
        ("zzz", "LlamaForCausalLM", Service.ABSENT),
        ("zzz", "BambaForCausalLM", Service.REMOVED),
    ],
)
def test_the_class_decides_before_the_model_type(family: str, class_name: str, service: Service) -> None:
    assert service_of(family, class_name)[0] is service
    assert Vllm().knows(family, class_name) is (service in SERVED)


def test_what_left_says_its_last_release() -> None:
    with pytest.raises(UnsupportedArchitectureError, match=r"and 0\.23\.0 was the last release that had it"):
        plan(uniform(2, LLAMA_HEADS, family="baichuan"), context=100)
    notes = plan(uniform(2, LLAMA_HEADS, family="dots1", class_name="Dots1ForCausalLM"), context=100).notes
    assert "Dots1ForCausalLM left vLLM after 0.23.0: its Transformers backend serves it" in notes


def test_the_transformers_backend_serves_attention_alone() -> None:
    notes = plan(uniform(2, LLAMA_HEADS, family="arcee"), context=100).notes
    assert "vLLM 0.33 has no class of its own for arcee: its Transformers backend serves it" in notes
    with pytest.raises(UnsupportedArchitectureError, match="no model with its recurrent layers"):
        plan(uniform(2, NEXT, family="arcee"), context=100)


def test_the_refusal_names_the_engines_that_know_it() -> None:
    with pytest.raises(UnsupportedArchitectureError) as caught:
        plan(uniform(2, LLAMA_HEADS, family="gpt_neo"), context=100)
    assert "transformers" in (caught.value.hint or "")


def test_rows_say_nothing_that_no_rule_reads() -> None:
    """A row that is not served has no rules; a release stands only where something left."""
    for name, row in FAMILIES.items():
        if row.service not in SERVED:
            assert row == Family(row.service, row.last), name
        assert bool(row.last) == (row.service is Service.REMOVED) or row.service is Service.TRANSFORMERS, name
    assert all(
        bool(known.last) == (known.service is Service.REMOVED) or known.service is Service.TRANSFORMERS for known in CLASSES.values()
    )
