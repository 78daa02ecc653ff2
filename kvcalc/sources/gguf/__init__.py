"""GGUF files, on disk or behind an address: what their metadata says of a model."""
