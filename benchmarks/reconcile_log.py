"""How long `reconcile` takes over 50 MB of unrelated lines (information, never a gate)."""

from __future__ import annotations

import io
import time

from kvcalc.reconcile import reconcile

LINE = "2026-11-29 10:00:{:02d} INFO request {} finished in {} ms path=/v1/chat tokens={}\n"


def main() -> None:
    """Print megabytes, seconds and megabytes per second."""
    block = "".join(LINE.format(n % 60, n, n % 977, n % 4000) for n in range(20_000)).encode()
    log = block * (50 * 1024**2 // len(block) + 1)
    begin = time.perf_counter()
    found = reconcile(io.BytesIO(log), "server.log")
    seconds = time.perf_counter() - begin
    print(f"reconcile: {len(log) / 1e6:.0f} MB in {seconds:.2f} s, {len(log) / 1e6 / seconds:.0f} MB/s, exit {found.exit_code}")


if __name__ == "__main__":
    main()
