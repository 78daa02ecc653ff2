"""Write docs/families.md from the families themselves.

python tools/generate_families_page.py
"""

from __future__ import annotations

from pathlib import Path

from kvcalc.sources.hf.families.listing import families_page

TARGET = Path(__file__).parent.parent / "docs" / "families.md"

if __name__ == "__main__":
    TARGET.write_text(families_page(), encoding="utf-8")
