"""What reading a GGUF header costs: milliseconds and bytes, beside the `gguf` package's reader where it is installed.

    python benchmarks/gguf_header.py [TOKENS]        default 150,000

The file is written here: a model's keys, then a vocabulary with scores and merges. Exits 1 if a limit is exceeded.
"""

from __future__ import annotations

import struct
import sys
import tempfile
import time
from pathlib import Path

from kvcalc.sources.gguf.reader import opened, read_gguf, read_header

TOKENS = 150_000
#: Bytes read of the file, and seconds for its architecture.
LIMIT_BYTES = 1024**2
LIMIT_SECONDS = 0.05
_UINT32, _FLOAT32, _STRING, _ARRAY = 4, 6, 8, 9
_KEYS = {"block_count": 32, "context_length": 8192, "embedding_length": 4096, "attention.head_count": 32, "attention.head_count_kv": 8}


def text(value: str) -> bytes:
    """A string as GGUF writes it."""
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def write_file(path: Path, tokens: int) -> None:
    """A version 3 header with a vocabulary of `tokens`."""
    texts = [(f"tokenizer.ggml.{name}", b"".join(text(f"{name}{i}") for i in range(tokens))) for name in ("tokens", "merges")]
    parts = [text("general.architecture") + struct.pack("<I", _STRING) + text("llama")]
    parts += [text(f"llama.{key}") + struct.pack("<II", _UINT32, value) for key, value in _KEYS.items()]
    parts += [text(name) + struct.pack("<IIQ", _ARRAY, _STRING, tokens) + data for name, data in texts]
    parts.append(text("tokenizer.ggml.scores") + struct.pack("<IIQ", _ARRAY, _FLOAT32, tokens) + bytes(4 * tokens))
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, len(parts)) + b"".join(parts)
    path.write_bytes(header + bytes(-len(header) % 32))


def main(tokens: int) -> int:
    """Print the times and the bytes; 1 if a limit is exceeded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.gguf")
        write_file(path, tokens)
        with opened(path) as stream:
            header = read_header(stream)
        read_gguf(path)
        start = time.perf_counter()
        read_gguf(path)
        seconds = time.perf_counter() - start
        with opened(path) as stream:
            start = time.perf_counter()
            read_header(stream, whole=True)
            whole = time.perf_counter() - start
        held = header.bytes_read < LIMIT_BYTES and seconds < LIMIT_SECONDS
        size = path.stat().st_size
        print(f"{tokens:,} tokens, a header of {size:,} B")
        print(f"kvcalc, the architecture   {1000 * seconds:10.2f} ms   {header.bytes_read:,} B read   {'ok' if held else 'MISSED'}")
        print(f"kvcalc, every key          {1000 * whole:10.2f} ms   {size:,} B read")
        try:
            from gguf import GGUFReader
        except ImportError:
            print("gguf package               not installed")
        else:
            start = time.perf_counter()
            GGUFReader(path)
            print(f"gguf package               {1000 * (time.perf_counter() - start):10.2f} ms")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else TOKENS))
