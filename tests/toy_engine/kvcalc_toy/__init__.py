"""Toy 0.1: every sequence takes whole pages, and nothing is shared."""
