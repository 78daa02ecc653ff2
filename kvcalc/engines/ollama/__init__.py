"""Ollama: llama.cpp with defaults of its own."""
