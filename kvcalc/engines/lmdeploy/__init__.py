"""LMDeploy 0.18's PyTorch engine: packed blocks of 64 tokens, one window for all layers or none, state slots outside the blocks."""
