"""The document `kvcalc.lab/1`: what ran, on what, and each row's bytes, output and time."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

from kvcalc.engines.ideal.engine import Ideal
from kvcalc.lab import ENTRIES, require_torch
from kvcalc.lab.sizes import DTYPE
from kvcalc.questions.documents.common import Engine
from kvcalc.questions.documents.kinds import Answer
from kvcalc.questions.documents.lab import Decoder, Generated, LabDocument, Machine, MeasuredBytes, MeasuredOutput, Seconds, Trial

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.lab.measure import Row
    from kvcalc.lab.sizes import Sizes


#: What no figure here depends on, and what every time does.
NOTE = "the weights are random; the bytes are the same on every machine, the times are this one's"


@dataclass(frozen=True)
class Report(Answer):
    """The rows of one run, and what they ran on."""

    sizes: Sizes
    rows: tuple[Row, ...]
    parameters: int
    torch: str
    threads: int
    device_name: str

    @property
    def passed(self) -> bool:
        """Every row that had to be equal is."""
        return all(row.passed for row in self.rows)

    def document(self) -> LabDocument:
        """`kvcalc.lab/1`."""
        sizes = self.sizes
        return LabDocument(
            model=Decoder(
                id=f"lab-{sizes.layers}x{sizes.heads}x{sizes.dim}",
                source="random weights",
                model_type="lab",
                dtype=DTYPE,
                max_context=None,
                layers=sizes.layers,
                heads=sizes.heads,
                dim=sizes.dim,
                parameters=self.parameters,
            ),
            workload=Generated(sizes.total, 1, 1, 1, 1, 0, prompt=sizes.prompt, tokens=sizes.tokens),
            engine=Engine(Ideal.name, Ideal.version, {}),
            kv_dtype=DTYPE,
            machine=Machine(cast("Any", sizes.device), self.device_name, self.torch, self.threads),
            passed=self.passed,
            rows=tuple(_trial(row) for row in self.rows),
            notes=(NOTE,),
            warnings=tuple(f"{row.name}: {text}" for row in self.rows for text in _failures(row)),
        )


def run(names: list[str], sizes: Sizes, progress: Callable[[str], None] = lambda _: None) -> Report:
    """Measure the named rows. Raises UsageError where PyTorch, the device or its memory is missing."""
    require_torch()
    import torch

    from kvcalc.lab.measure import Bench, lesson_of

    bench = Bench(sizes)
    rows = []
    parameters = 0
    for name in names:
        progress(name)
        rows.append(bench.run(name))
        parameters = parameters or bench.decoder(lesson_of(name)).parameters
    return Report(
        sizes=sizes,
        rows=tuple(rows),
        parameters=parameters,
        torch=str(torch.__version__),
        threads=sizes.threads or torch.get_num_threads(),
        device_name=torch.cuda.get_device_name() if sizes.device == "cuda" else platform.processor() or platform.machine(),
    )


def _trial(row: Row) -> Trial:
    entry = ENTRIES[row.name]
    return Trial(
        name=row.name,
        technique=entry.technique,
        about=entry.about,
        sequences=row.sequences,
        tokens=row.tokens,
        decoded=row.decoded,
        bytes=MeasuredBytes(row.bytes, row.figure.bytes, row.bytes_equal, row.allocated, row.figure.formula),
        output=MeasuredOutput(
            error=row.error if row.error is not None and isfinite(row.error) else None,
            tolerance=row.tolerance,
            equal=row.output_equal,
            same_next_token=row.agreement[0] if row.agreement else None,
            steps=row.agreement[1] if row.agreement else None,
        ),
        seconds_per_token=Seconds(row.cached_seconds, row.uncached_seconds),
        speedup=row.speedup,
        notes=tuple(row.notes),
    )


def _failures(row: Row) -> list[str]:
    found = []
    if not row.bytes_equal:
        found.append(f"the tensors hold {row.bytes:,} B where kvcalc says {row.figure.bytes:,} B")
    if row.error is not None and not isfinite(row.error):
        found.append("the cached output is not finite")
    elif row.output_equal is False:
        found.append(f"the cached output differs by {row.error:.2e}, more than {row.tolerance:.0e}")
    return found
