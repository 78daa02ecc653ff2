"""`kvcalc verify MODEL`."""

from __future__ import annotations

from kvcalc.cli import options
from kvcalc.cli.root import app as make_app
from kvcalc.core.errors import EXIT_OK, EXIT_OVER_BUDGET
from kvcalc.core.units import parse_tokens

app = make_app()

_EXAMPLES = """\b
Examples:
  kvcalc verify llama-3.1-8b
  kvcalc verify ./config.json --ctx 4096 -f json
"""


@app.command(epilog=_EXAMPLES)
def verify(
    model: options.Model,
    *,
    ctx: options.Context = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    format_: options.Format = None,
    output: options.OutputFile = None,
) -> int:
    """The real model class on the meta device against kvcalc.

    Runs the class of `transformers` without weights and compares the tensors of its cache with kvcalc's figure, layer by layer.
    Needs PyTorch: pip install 'kvcalc[lab]'. The exit code is 1 if a layer differs.
    """
    from kvcalc.render import chosen_format, emit
    from kvcalc.render.verify_view import view
    from kvcalc.verify import verify as ask

    chosen_format(format_, output)  # refused before the work, not after it
    found = ask(options.hub_model(model, revision, offline=offline), None if ctx is None else parse_tokens(ctx, "--ctx"))
    emit(found.document(), view, format_, output)
    return EXIT_OK if found.equal else EXIT_OVER_BUDGET
