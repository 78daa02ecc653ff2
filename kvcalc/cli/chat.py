"""`kvcalc chat MODEL`: a conversation turn by turn."""

from __future__ import annotations

from typing import Annotated

import typer

from kvcalc.cli import options
from kvcalc.cli.root import app as make_app
from kvcalc.core.errors import EXIT_OK, UsageError
from kvcalc.core.units import parse_tokens

app = make_app()

_EXAMPLES = """\b
Examples:
  kvcalc chat llama-3.1-8b --turns 20 --system 1k --user 200 --reply 500
  kvcalc chat qwen3-8b --policy keep:1k+window:4k --kv-memory 2GiB -e vllm
  kvcalc chat llama-3.1-8b --turns-file talk.jsonl --change-turn 5 --change-at 100
"""


@app.command(epilog=_EXAMPLES)
def chat(
    model: options.Model,
    *,
    turns: Annotated[str | None, typer.Option("--turns", metavar="COUNT", help="Turns of the conversation. [20]")] = None,
    system: Annotated[str, typer.Option("--system", metavar="TOKENS", help="Tokens of the system prompt.")] = "1k",
    user: Annotated[str | None, typer.Option("--user", metavar="TOKENS", help="Tokens of each user message. [200]")] = None,
    reply: Annotated[str | None, typer.Option("--reply", metavar="TOKENS", help="Tokens of each reply. [500]")] = None,
    turns_file: Annotated[
        str | None, typer.Option("--turns-file", metavar="FILE", help='Real turns, a JSON object a line: {"user": 200, "reply": 500}.')
    ] = None,
    policy: Annotated[
        str, typer.Option("--policy", metavar="POLICY", help="full, window:W, sinks:K+window:W, keep:K+window:W, summary:N.")
    ] = "full",
    block_size: Annotated[str, typer.Option("--block-size", metavar="TOKENS", help="Tokens of a prefix cache's block.")] = "16",
    change_turn: Annotated[
        str | None, typer.Option("--change-turn", metavar="TURN", help="Change the system prompt before this turn.")
    ] = None,
    change_at: Annotated[str | None, typer.Option("--change-at", metavar="POSITION", help="First token of it that changes. [0]")] = None,
    kv_memory: Annotated[str | None, typer.Option("--kv-memory", metavar="SIZE", help="The budget that must not break.")] = None,
    kv_dtype: options.KvDtype = "auto",
    engine: options.Engine = "ideal",
    engine_arg: options.EngineArgs = None,
    tp: options.TensorParallel = None,
    gpu: options.Gpu = None,
    set_: options.Set = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    format_: options.Format = None,
    output: options.OutputFile = None,
) -> int:
    """Tokens held, bytes and tokens recomputed per turn, what is out of sight, and when the budget breaks."""
    from kvcalc.questions.chat import MOST_TURNS, Conversation, parse_policy, read_turns
    from kvcalc.questions.chat import chat as ask
    from kvcalc.render import emit
    from kvcalc.render.chat_view import view
    from kvcalc.sources.files import user_path

    if turns_file is not None:
        options.refuse("--turns-file", {"--turns": turns, "--user": user, "--reply": reply})
    if change_at is not None and change_turn is None:
        raise UsageError("--change-at needs the turn before which the system prompt changes", "add --change-turn 5")
    count = options.count(turns or "20", "--turns")
    if count > MOST_TURNS:
        raise UsageError(f"--turns: {count:,} is more than kvcalc computes", f"at most {MOST_TURNS:,}")
    each = (parse_tokens(user or "200", "--user"), parse_tokens(reply or "500", "--reply"))
    request = options.make_request(
        model,
        ctx=None,
        sequences="1",
        kv_dtype=kv_dtype,
        engine=engine,
        engine_arg=engine_arg,
        tp=tp,
        pp="1",
        dcp="1",
        gpu=gpu,
        shared_prefix="0",
        kv_memory=kv_memory,
        sets=set_,
        revision=revision,
        offline=offline,
    )
    talk = Conversation(
        system=parse_tokens(system, "--system", least=0),
        turns=(each,) * count if turns_file is None else read_turns(user_path(turns_file)),
        policy=parse_policy(policy),
        block_size=parse_tokens(block_size, "--block-size"),
        changed_turn=None if change_turn is None else options.count(change_turn, "--change-turn"),
        changed_at=parse_tokens(change_at or "0", "--change-at", least=0),
    )
    emit(ask(request, talk).document(), view, format_, output)
    return EXIT_OK
