"""What `ideal` takes of a card beside weights and cache: nothing."""

from __future__ import annotations

from kvcalc.engines.base.memory import ALL_VENDORS, Share

SHARE = Share((0, 0, 0), "no engine, no overhead", vendors=ALL_VENDORS)
