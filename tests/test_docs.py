"""Pages cannot rot: those made from code are current, every example runs and prints what is shown, every link leads somewhere."""

from __future__ import annotations

import doctest
import json
import re
import runpy
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kvcalc.cli.app import COMMANDS, run
from kvcalc.cli.root import command_of
from kvcalc.core.formats import FORMATS
from kvcalc.core.states import KINDS
from kvcalc.core.units import GIB
from kvcalc.core.workload import Workload
from kvcalc.engines import ENGINES, get_engine
from kvcalc.questions.explain import explain
from kvcalc.questions.techniques import TECHNIQUES
from kvcalc.sources.hf.families.listing import families_page

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
#: Tools whose `pages()` are paths and texts.
TOOLS = ("techniques_page", "formats_page", "cli_page")
#: Commands that need PyTorch and minutes; tests/lab and tests/test_verify.py run them.
SLOW = ("lab", "verify")
FENCE = re.compile(r"^```(\S*)[ ]?([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


# ── made from code ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("tool", TOOLS)
def test_a_page_made_from_code_is_current(tool: str) -> None:
    wanted: dict[Path, str] = runpy.run_path(str(ROOT / "tools" / f"{tool}.py"))["pages"]()
    for path, text in wanted.items():
        assert path.read_text(encoding="utf-8") == text, f"{name_of(path)}: run `make docs`"
    assert all(f"tools/{tool}.py" in text for text in wanted.values())
    folders = {path.parent for path in wanted} - {DOCS}
    assert {path for folder in folders for path in folder.glob("*.md")} <= set(wanted), "a page of something that is no more"


def test_the_families_are_current() -> None:
    assert (DOCS / "families.md").read_text(encoding="utf-8") == families_page()


@pytest.mark.parametrize("name", [*TECHNIQUES, *dict.fromkeys(state.technique for state in KINDS.values())])
def test_every_technique_has_a_page(name: str) -> None:
    text = (DOCS / "techniques" / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n")
    if name in TECHNIQUES and name not in ("paged", "prefix"):
        plain = re.sub(r"\[(arXiv:[0-9.]+)\]\([^)]*\)", r"\1", text)
        for section in explain(name, Workload()).sections:
            for line in (*section.formula, *section.numbers):
                assert line in plain, f"`kvcalc explain {name}` prints a line that its page does not have"
        assert explain(name, Workload()).sections[0].title.removeprefix(f"{name}: ") in plain


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_has_a_page_with_an_example(name: str) -> None:
    text = (DOCS / "engines" / f"{name}.md").read_text(encoding="utf-8")
    assert f"engines/{name}.md" in (DOCS / "README.md").read_text(encoding="utf-8")
    assert name == "ideal" or f"--engine {name}" in text or f"-e {name}" in text


def test_every_format_and_every_command_is_named() -> None:
    assert all(f"| `{name}` |" in (DOCS / "formats.md").read_text(encoding="utf-8") for name in FORMATS)
    assert all(f"## kvcalc {name}" in (DOCS / "cli.md").read_text(encoding="utf-8") for name in COMMANDS)


def test_every_schema_is_named() -> None:
    text = (DOCS / "json.md").read_text(encoding="utf-8")
    for path in sorted((ROOT / "kvcalc" / "schemas").glob("*.json")):
        assert f"(../kvcalc/schemas/{path.name})" in text
        names = re.findall(r"kvcalc\.[a-z]+/1", path.read_text(encoding="utf-8"))
        assert all(f"`{name}`" in text for name in names)


def test_what_an_engine_keeps_is_what_the_page_says() -> None:
    rows = dict(re.findall(r"^\| ([^|]+) \| [^|]+ \| ([^|]+) \|$", (DOCS / "fit.md").read_text(encoding="utf-8"), re.MULTILINE))
    said = {name.lower(): row for names, row in rows.items() for name in names.split(", ")}
    for engine in ENGINES:
        share = get_engine(engine).share
        sizes = ", ".join(f"{size / GIB:g}" for size in share.overhead)
        assert said[engine] == ("none" if not any(share.overhead) else f"{sizes} GiB"), engine


# ── examples ────────────────────────────────────────────────────────────────────────────────────────────────────────────

CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
    "torch_dtype": "bfloat16",
}
BUDGETS = "budgets:\n  - {name: chat-prod, model: llama-3.1-8b, context: 8k, limits: {total: 1GiB}}\n"
LOG = "INFO Initializing a V1 LLM engine (v0.33.0) with config: model='meta-llama/Llama-3.1-8B', max_seq_len=131072\nAvailable KV cache memory: 60.00 GiB\n"
#: What examples on any page find in their working folder, beside the files that the page itself shows.
FILES = {
    "config.json": json.dumps(CONFIG),
    "kvcalc.yaml": BUDGETS,
    "deploy/kvcalc.yaml": BUDGETS,
    "kvcalc-baseline.json": '{"schema": "kvcalc.check/1", "budgets": []}',
    "server.log": LOG + "GPU KV cache size: 491,520 tokens\n",
    "talk.jsonl": '{"user": 200, "reply": 500}\n' * 8,
    "requests.jsonl": '{"command": "estimate", "model": "llama-2-7b"}\n',
}


class Example(NamedTuple):
    """A command, and the first line that the page shows of its answer."""

    page: str
    command: str
    shown: str


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Language, file name and text of every fenced block."""
    return FENCE.findall(page.read_text(encoding="utf-8"))


def test_what_python_shows_is_what_it_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kvcalc.yaml").write_text(BUDGETS, encoding="utf-8")
    for page in PAGES:
        text = "\n".join(code for language, _, code in blocks(page) if language == "pycon")
        test = doctest.DocTestParser().get_doctest(text, {}, name_of(page), None, 0)
        report: list[str] = []
        assert not doctest.DocTestRunner().run(test, out=report.append).failed, "".join(report)


def examples() -> Iterator[Example]:
    """Every `$ kvcalc …`; one that stands on several pages without an answer once."""
    seen: set[str] = set()
    for page in PAGES:
        own = any(file for _, file, _ in blocks(page))
        for language, _, text in blocks(page):
            lines = text.splitlines() if language == "console" else []
            for line, following in zip(lines, [*lines, ""][1:], strict=True):
                if not line.startswith("$ kvcalc"):
                    continue
                shown = "" if following.startswith("$") else following
                if own or shown or line not in seen:
                    yield Example(name_of(page), line.removeprefix("$ "), shown)
                seen.add(line)


EXAMPLES = list(examples())


@pytest.mark.parametrize("page", sorted({example.page for example in EXAMPLES}))
def test_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In one working folder a page, in order, so that commands find what those before them wrote."""
    monkeypatch.chdir(tmp_path)
    own = {file: text for _, file, text in blocks(ROOT / page) if file}
    for file, text in (FILES | own).items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    for example in (example for example in EXAMPLES if example.page == page):
        runs(example, capsys)


def runs(example: Example, capsys: pytest.CaptureFixture[str]) -> None:
    program, *arguments = shlex.split(example.command, comments=True)
    assert program == "kvcalc"
    if arguments[0] in SLOW:
        assert {word for word in arguments if word.startswith("-")} <= flags(arguments[0])
        return
    code = run(arguments)
    out, err = capsys.readouterr()
    assert code in (0, 1), f"{example.command}: {err}"
    if example.shown:
        assert out.splitlines()[0] == example.shown, example.command


@pytest.mark.parametrize(
    ("page", "left_out", "command"),
    [
        ("ci.md", "    kv_dtype: fp8\n", "check"),
        ("reconcile.md", "", "reconcile refused.log --model llama-3.1-8b"),
    ],
)
def test_an_answer_that_a_page_shows_is_the_answer(
    page: str, left_out: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = blocks(DOCS / page)
    (shown,) = [text for language, file, text in found if language == "text" and not file]
    for _, file, text in found:
        if file:
            (tmp_path / file).write_text(text.replace(left_out, ""), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert run(command.split()) in (0, 1)
    assert shown in capsys.readouterr().out


TABLE = re.compile(r"^\| `kvcalc ([^`]+)` \|", re.MULTILINE)


def test_the_readme_names_every_command_once_and_each_of_them_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [shlex.split(command) for command in TABLE.findall((ROOT / "README.md").read_text(encoding="utf-8"))]
    assert [arguments[0] for arguments in found] == sorted(COMMANDS, key=[arguments[0] for arguments in found].index)
    for file, text in FILES.items():
        if not file.endswith("kvcalc.yaml"):
            (tmp_path / file).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for arguments in found:
        if arguments[0] not in SLOW:
            assert run(arguments) in (0, 1), (arguments, capsys.readouterr().err)


def flags(command: str) -> set[str]:
    """Every option of a command."""
    found: Any = command_of(COMMANDS).get_command(None, command)
    return {flag for parameter in found.params for flag in parameter.opts}


def test_there_are_examples_everywhere() -> None:
    pages = {example.page for example in EXAMPLES}
    assert {"README.md", *(f"docs/{name}.md" for name in ("chat", "ci", "cli", "fit", "json", "plot", "reconcile"))} <= pages
    assert len(EXAMPLES) > 80


# ── links ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def without_code(page: Path) -> str:
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    """What GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(without_code(page)):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{target} leads nowhere"
        assert found.is_relative_to(ROOT)
        assert not anchor or anchor in anchors(found), f"{target}: no such heading"


def test_every_page_is_reached_from_the_index() -> None:
    reached, waiting = set(), [DOCS / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            targets = (target.partition("#")[0] for target in LINK.findall(page.read_text(encoding="utf-8")))
            waiting += [path for target in targets if target.endswith(".md") and (path := (page.parent / target).resolve()).exists()]
    assert set(DOCS.rglob("*.md")) <= reached
