"""How rows are stored: in pages, once for all sequences, in fewer bits, or not at all."""

from __future__ import annotations

from dataclasses import replace

from kvcalc.core.formats import get_kv_format
from kvcalc.questions.techniques.base import Case, Parameter, Technique, technique
from kvcalc.questions.techniques.layers import build, with_layers


@technique()
def no_cache(case: Case) -> Case:
    """Nothing is kept: every step reads the whole text again.

        bytes = 0
        work of T tokens: projections x T (T + 1) / 2 = O(T² d²), scores O(T³ d); with a cache O(T d²) and O(T² d)

    32 layers of 32 heads x 128 at 32,768 tokens: 70,368,744,177,664 multiply-adds of projections with a cache, 16,384.5 times as
    many without. Keys and values of a token come out the same each time, which is the whole reason why a cache is allowed.
    """
    nothing = (build("none", {}),)
    emptied = with_layers(case.architecture, [nothing] * case.architecture.layers.count)
    return replace(case, architecture=emptied, recomputed=case.recomputed or case.architecture)


@technique(Parameter("block", 16, "tokens of a block"))
def paged(case: Case, block: int) -> Case:
    """PagedAttention (vLLM, arXiv:2309.06180): blocks on demand instead of one contiguous maximum for each sequence.

        slots = ceil(T / block) x block        plus a block table of 4 B an entry
        waste < block tokens per sequence, none between sequences

    1,000 tokens in blocks of 16: 63 blocks, 1,008 slots. Shared prefixes count in whole blocks.
    """
    context = case.workload.context or 0
    slots = -(-context // block) * block
    said = [f"paged: {slots - context:,} of {slots:,} slots stay empty, in the last block"] if slots > context else []
    longest = case.architecture.max_context
    if longest is not None and longest > slots:
        said.append(f"paged: a contiguous cache would reserve the model's maximum of {longest:,} tokens, whatever the sequence's length")
    return replace(case, block=block, remarks=(*case.remarks, *said))


@technique(Parameter("tokens", lambda case: case.workload.shared_prefix or (case.workload.context or 0) // 2, "leading tokens in common"))
def prefix(case: Case, tokens: int) -> Case:
    """Prefix caching: what all sequences begin with is stored once.

        rows = prefix + sequences x (T - prefix)        one changed token ends the match

    100 sequences of 4,096 tokens that share 1,024: 1,024 + 100 x 3,072 = 308,224 rows instead of 409,600.
    """
    remarks = case.remarks
    if case.workload.sequences == 1:
        remarks = (*remarks, "prefix: one sequence has nobody to share with; give --sequences")
    return replace(case, workload=replace(case.workload, shared_prefix=tokens), remarks=remarks)


def stored_as(name: str) -> Technique:
    """The technique that stores K and V in the format `name`."""

    def change(case: Case) -> Case:
        return replace(case, workload=replace(case.workload, kv_dtype=name))

    formats = get_kv_format(name)
    change.__doc__ = f"Cache quantisation: K and V stored as {formats.name}.\n\n    {formats.key.formula}\n"
    return Technique(name, (), change)
