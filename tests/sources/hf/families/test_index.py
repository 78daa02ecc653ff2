"""The table of readers: complete, importable, printed, and every class default readable."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from kvcalc.core.errors import InvalidConfigError
from kvcalc.sources.hf import families
from kvcalc.sources.hf.families.defaults import class_defaults, text_type
from kvcalc.sources.hf.families.index import INDEX
from kvcalc.sources.hf.families.listing import families_page
from kvcalc.sources.hf.reader import read_config

ROOT = Path(__file__).parents[4]
TABLES = json.loads((Path(families.__file__).parent / "class_defaults.json").read_text(encoding="utf-8"))

#: Files of these families always state what their layers are: the class alone is no model.
NO_DEFAULT_LAYOUT = {"gemma4_assistant", "gemma4_unified_assistant"}


def test_every_reader_of_the_table_exists_and_says_what_it_does() -> None:
    for module, name in set(INDEX.values()):
        reader = getattr(import_module(f"kvcalc.sources.hf.families.{module}"), name)
        assert reader.__doc__.strip().endswith("."), f"{module}.{name}"


def test_every_reader_of_the_modules_is_in_the_table() -> None:
    for module in {module for module, _ in INDEX.values()}:
        found = import_module(f"kvcalc.sources.hf.families.{module}")
        public = {
            name
            for name, value in vars(found).items()
            if not name.startswith("_") and getattr(value, "__module__", "") == found.__name__
            and getattr(value, "__annotations__", {}).get("return") == "Layers"
            and list(value.__annotations__) == ["config", "return"]
        }  # fmt: skip
        assert public == {name for where, name in INDEX.values() if where == module}


def test_reading_one_model_imports_one_family() -> None:
    code = (
        "import sys; from kvcalc.sources.hf.reader import read_config;"
        "read_config({'model_type': 'llama'});"
        "print(*(name for name in sys.modules if name.startswith('kvcalc.sources.hf.families.')))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.rsplit(".", 1)[1] for name in run.stdout.split()}
    assert "dense" in loaded
    assert loaded.isdisjoint({module for module, _ in INDEX.values()} - {"dense"})


def test_the_page_of_families_is_current() -> None:
    assert (ROOT / "docs" / "families.md").read_text(encoding="utf-8") == families_page()


def test_the_class_defaults_name_their_source_and_only_supported_types() -> None:
    assert TABLES["source"].startswith("config classes of transformers 5.24")
    assert set(TABLES["defaults"]) <= set(INDEX)
    assert set(TABLES["text"].values()) <= set(INDEX)
    assert not set(TABLES["text"]) & set(INDEX)


@pytest.mark.parametrize("model_type", sorted(set(TABLES["defaults"]) - NO_DEFAULT_LAYOUT))
def test_every_class_default_is_a_model(model_type: str) -> None:
    found = read_config({"model_type": model_type})
    assert found.family == model_type
    assert found.layers.count >= 1


@pytest.mark.parametrize("model_type", sorted(NO_DEFAULT_LAYOUT))
def test_a_class_without_a_layout_of_its_own_needs_the_files(model_type: str) -> None:
    with pytest.raises(InvalidConfigError):
        read_config({"model_type": model_type})


@pytest.mark.parametrize("wrapper", sorted(TABLES["text"]))
def test_every_wrapper_leads_to_a_language_model(wrapper: str) -> None:
    layout = {"hybrid_override_pattern": "M*"} if text_type(wrapper) == "nemotron_h" else {"num_kv_shared_layers": 0}
    found = read_config({"model_type": wrapper, "text_config": {"num_hidden_layers": 2, **layout}})
    assert found.family == text_type(wrapper)
    assert found.traits.outer_model_type == wrapper


def test_renamed_classes_share_their_defaults() -> None:
    assert class_defaults("RefinedWeb") == class_defaults("falcon") != {}
    assert class_defaults("no-such-type") == {}
    assert text_type("llama") is None
