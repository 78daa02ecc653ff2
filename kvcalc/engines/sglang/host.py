"""The cache's second tier in host memory (HiCache), which no device pays for.

    tokens = int(device tokens x ratio), or hicache_size x 10^9 // bytes of a token;  pages = tokens // page + 1

Source: SGLang 0.5.23, mem_cache/pool_host/base.py, arg_groups/hicache_hook.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.units import show_bytes
from kvcalc.engines.sglang.pools import SLIDING

if TYPE_CHECKING:
    from kvcalc.engines.sglang.pools import Pools
    from kvcalc.engines.sglang.recurrent import Slots
    from kvcalc.engines.sglang.server import Server

#: Host tokens for one device token.
RATIO = 2.0
#: `--hicache-size` counts gigabytes of ten digits.
GIGABYTE = 1e9


def host_bytes(server: Server, pools: Pools | None, slots: Slots | None, tokens: int) -> tuple[int, int]:
    """Tokens and bytes of host memory that one rank of the first stage takes beside `tokens` on the device."""
    rows = pools.stages[0] if pools else {}
    if slots or not rows or any(row.pool == SLIDING for row in rows):
        raise UnsupportedArchitectureError(
            "kvcalc knows the host tier of SGLang for one pool of tokens only", "leave enable_hierarchical_cache out"
        )
    main = sum(row.rank * layers for row, layers in rows.items() if row.buffer != "index")
    size = server.args["hicache_size"]
    asked = int(size * GIGABYTE // main) if size else int(tokens * (server.args["hicache_ratio"] or RATIO))
    pages = asked // server.page + 1
    held = pages * server.page
    index = sum((pages + 1) * row.page_bytes(server.page) * layers for row, layers in rows.items() if row.buffer == "index")
    return held, held * main + index


def notes(server: Server, pools: Pools | None, slots: Slots | None, tokens: int) -> list[str]:
    """What there is to say about the host tier; nothing where it is off. Raises EngineRejectsError, UnsupportedArchitectureError."""
    if not server.args["enable_hierarchical_cache"]:
        return []
    if not server.radix:
        raise EngineRejectsError("SGLang has no hierarchical cache without a radix cache", "leave disable_radix_cache out")
    held, size = host_bytes(server, pools, slots, tokens)
    return [f"host memory: {held:,} tokens, {show_bytes(size)} for each rank, not counted on the device"]
