"""llama.cpp: memory allocated once, for the whole context and for all slots.

    bytes = Σ over layers and tensors   rows x row bytes          rows: context.py · tensors of a layer: tensors.py

A cache row is a whole layer's K or V of one token, in blocks of 32 elements where the type is quantised. Recurrent states are
fp32 whatever the cache's types. Gemma-3-27B at 32,768 cells, 4 split slots, f16: 10 full layers x 4 x 8,192 cells x 8,192 B
and 52 window layers x 4 x pad256(1,024 + 512) cells x 8,192 B = 5,301,600,256 B.
"""
