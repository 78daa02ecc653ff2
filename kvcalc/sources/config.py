"""A config.json read with suspicion: typed getters that name the field they could not use.

Missing and `null` are different: a missing key takes the class default of its model_type, `null` says "none".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvcalc.errors import InvalidConfigError
from kvcalc.formats import ALIASES, FORMATS
from kvcalc.units import clean

#: Widths and counts beyond this are no model's.
_LARGEST = 2**31


class Config:
    """One (inner) config.json, with the class defaults of its model_type behind it."""

    def __init__(self, raw: Mapping[str, Any], model_type: str, defaults: Mapping[str, Any] | None = None, *, class_name: str = "") -> None:
        self.raw = raw
        self.model_type = model_type
        self.class_name = class_name
        self.defaults = defaults or {}
        #: Fields that came from the class default, for the assumptions that are printed.
        self.defaulted: dict[str, Any] = {}

    def has(self, *names: str) -> bool:
        """One of the names is in the file, and is not null."""
        return any(self.raw.get(name) is not None for name in names)

    def get(self, *names: str) -> Any:
        """The first of `names` that the file holds (null included), else the first that the class defaults hold, else None."""
        for name in names:
            if name in self.raw:
                return self.raw[name]
        for name in names:
            if name in self.defaults:
                self.defaulted[name] = self.defaults[name]
                return self.defaults[name]
        return None

    def integer(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """A whole number under one of `names`; null counts as missing here. Raises InvalidConfigError naming the field."""
        value = next((self.raw[name] for name in names if self.raw.get(name) is not None), None)
        if value is None:
            value = self.get(*(name for name in names if name not in self.raw)) if names else None
        if value is None:
            value = default
        if value is None:
            raise InvalidConfigError(
                f"config.json of a {self.model_type} model has no '{names[0]}'", "add the field as the model publishes it"
            )
        return self.checked(value, names[0], least=least)

    def optional(self, *names: str, least: int = 0) -> int | None:
        """As `get`, but None or a whole number of at least `least`."""
        value = self.get(*names)
        return None if value is None else self.checked(value, names[0], least=least)

    def checked(self, value: object, name: str, *, least: int = 1) -> int:
        """`value` if it is a whole number in range. Raises InvalidConfigError naming the field."""
        if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < _LARGEST:
            raise InvalidConfigError(
                f"config.json: '{name}' is {clean(repr(value), 40)}, and a {self.model_type} model needs a whole number of at least {least}"
            )
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A truth value; missing and null give the default."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool) and value not in (0, 1):
            raise InvalidConfigError(f"config.json: '{name}' is {clean(repr(value), 40)}, and must be true or false")
        return bool(value)

    def state_dtype(self) -> str | None:
        """The type that the file declares for recurrent matrices, in kvcalc's spelling; None where it declares none."""
        for name in ("mamba_ssm_dtype", "mamba_ssm_cache_dtype"):
            value = self.raw.get(name)
            if value is None or value == "auto":
                continue
            key = ALIASES.get(value, value) if isinstance(value, str) else ""
            if key not in FORMATS:
                raise InvalidConfigError(f"config.json: '{name}' is {clean(repr(value), 40)}, and must name a number type such as float32")
            return key
        return None

    def sequence(self, *names: str, length: int | None = None) -> Sequence[Any] | None:
        """A list, or None. With `length`, a longer one is cut (draft layers stand at the end) and a shorter one is an error."""
        value = self.get(*names)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise InvalidConfigError(f"config.json: '{names[0]}' is {clean(repr(value), 40)}, and must be a list")
        if length is not None and len(value) < length:
            raise InvalidConfigError(f"config.json: '{names[0]}' has {len(value)} entries for {length} layers")
        return value if length is None else value[:length]

    def overlaid(self, fields: Mapping[str, Any]) -> Config:
        """The same config with some fields replaced, for one layer; defaults that it takes are recorded here."""
        if not fields:
            return self
        other = Config({**self.raw, **fields}, self.model_type, self.defaults, class_name=self.class_name)
        other.defaulted = self.defaulted
        return other

    def child(self, name: str) -> Config:
        """The mapping under `name` as a Config of its own; empty if missing."""
        value = self.raw.get(name)
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise InvalidConfigError(f"config.json: '{name}' is {clean(repr(value), 40)}, and must be a mapping")
        return Config(value, self.model_type)
