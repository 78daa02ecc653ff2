"""Hugging Face transformers: the bytes that the tensors of the library's cache object hold after a decode step.

bytes = Σ over layers, Σ over tensors   rows x vectors x width x bytes of the type x sequences

dynamic     every token; windows and chunks min(T, W) rows; convolutions K columns; recurrent matrices in fp32
static      `max_cache_len` rows reserved, windows at most that
quantized   packed elements, scales, and the tokens that wait to be quantised
paged       pages in sectors of one tensor, and what a memory holds of them (generate_batch, transformers serve)

One device: how a class is sharded is said by its own plan, which kvcalc does not read. tensors.py has the rule of each state,
families.py a row a family, and where it departs from it, caches.py what each cache class refuses.
"""
