"""A config.json read with suspicion: typed getters that name the field they could not use.

Missing and `null` are different: a missing key takes the class default of its model_type, `null` says "none".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.formats import ALIASES, FORMATS
from kvcalc.core.units import clean

#: Widths and counts beyond this are no model's.
_LARGEST = 2**31
#: How much of a wrong value a message shows.
_SHOWN = 40


class Config:
    """One (inner) config.json, with the class defaults of its model_type behind it.

    class_name   the Hugging Face class, where families of one model_type differ by it
    defaulted    fields that came from the class default, for the assumptions that are printed
    """

    def __init__(self, raw: Mapping[str, Any], model_type: str, defaults: Mapping[str, Any] | None = None, *, class_name: str = "") -> None:
        self.raw = raw
        self.model_type = model_type
        self.class_name = class_name
        self.defaults = defaults or {}
        self.defaulted: dict[str, Any] = {}

    def has(self, *names: str) -> bool:
        """One of the names is in the file, and is not null."""
        return any(self.raw.get(name) is not None for name in names)

    def get(self, *names: str) -> Any:
        """The first of `names` that the file holds (null included), else the first that the class defaults hold, else None."""
        return self._find(names)[1]

    def integer(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """A whole number under one of `names`; null counts as missing here. Raises InvalidConfigError naming the field."""
        for name in names:
            if self.raw.get(name) is not None:
                return self.checked(self.raw[name], name, least=least)
        name, value = self._default(names)
        if value is None:
            value = default
        if value is None:
            raise InvalidConfigError(
                f"config.json of a {self.model_type} model has no '{names[0]}'", "add the field as the model publishes it"
            )
        return self.checked(value, name, least=least)

    def optional(self, *names: str, least: int = 0) -> int | None:
        """As `get`, but None or a whole number of at least `least`."""
        name, value = self._find(names)
        return None if value is None else self.checked(value, name, least=least)

    def checked(self, value: object, name: str, *, least: int = 1) -> int:
        """`value` if it is a whole number in range. Raises InvalidConfigError naming the field."""
        if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < _LARGEST:
            needed = f"a {self.model_type} model needs a whole number of at least {least}"
            raise InvalidConfigError(f"config.json: '{name}' is {clean(repr(value), _SHOWN)}, and {needed}")
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A truth value; missing and null give the default."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool) and value not in (0, 1):
            raise InvalidConfigError(f"config.json: '{name}' is {clean(repr(value), _SHOWN)}, and must be true or false")
        return bool(value)

    def sequence(self, *names: str, length: int | None = None) -> Sequence[Any] | None:
        """A list, or None. With `length`, a longer one is cut (draft layers stand at the end) and a shorter one is an error."""
        name, value = self._find(names)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise InvalidConfigError(f"config.json: '{name}' is {clean(repr(value), _SHOWN)}, and must be a list")
        if length is not None and len(value) < length:
            raise InvalidConfigError(f"config.json: '{name}' has {len(value)} entries for {length} layers")
        return value if length is None else value[:length]

    def indices(self, name: str, count: int, *, first: int = 0) -> frozenset[int] | None:
        """Layers that the file lists under `name`, counted from 0 whatever `first` it counts from; None where it has no list."""
        listed = self.sequence(name)
        if listed is None:
            return None
        found = [self.checked(item, name, least=first) - first for item in listed]
        if max(found, default=0) >= count:
            raise InvalidConfigError(f"config.json: '{name}' names layer {max(found) + first}, counted from {first}, of {count} layers")
        return frozenset(found)

    def state_dtype(self) -> str | None:
        """The type that the file declares for recurrent matrices, in kvcalc's spelling; None where it declares none."""
        for name in ("mamba_ssm_dtype", "mamba_ssm_cache_dtype"):
            value = self.raw.get(name)
            if value is None or value == "auto":
                continue
            key = ALIASES.get(value, value) if isinstance(value, str) else ""
            if key not in FORMATS:
                raise InvalidConfigError(
                    f"config.json: '{name}' is {clean(repr(value), _SHOWN)}, and must name a number type such as float32"
                )
            return key
        return None

    def overlaid(self, fields: Mapping[str, Any]) -> Config:
        """The same config with some fields replaced; defaults that it takes are recorded here too."""
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
            raise InvalidConfigError(f"config.json: '{name}' is {clean(repr(value), _SHOWN)}, and must be a mapping")
        return Config(value, self.model_type)

    def _find(self, names: tuple[str, ...]) -> tuple[str, Any]:
        """The name under which the file, or else the class, has a value, and that value."""
        for name in names:
            if name in self.raw:
                return name, self.raw[name]
        return self._default(names)

    def _default(self, names: tuple[str, ...]) -> tuple[str, Any]:
        for name in names:
            if name in self.defaults:
                self.defaulted[name] = self.defaults[name]
                return name, self.defaults[name]
        return names[0], None
