"""ExLlamaV3 1.6.5: pages of 256 tokens, rings and recurrent states of `max_batch_size` slots, all allocated at the start."""
