"""kvcalc: the memory that a language model's cache takes, to the byte."""

__version__ = "0.1.0"
