"""Reports for CI systems, held to their published schemas."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import xmlschema
from typed import of_plain

from kvcalc.questions.documents.check import CheckDocument
from kvcalc.render import reports
from kvcalc.render.reports import REPORTS

report = of_plain(reports.report, CheckDocument)

DATA = Path(__file__).parent.parent / "data"
HOSTILE = 'evil <&"\'> | *bold* %0A ::error::, "x": \x1b[31m'


def check(over: int = 1024) -> dict[str, Any]:
    return {
        "limit": "total",
        "allowed": 20_480,
        "actual": 20_480 + over,
        "unit": "B",
        "over": over,
        "over_percent": over / 204.8,
        "line": 7,
    }


def budget(name: str, status: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "model": "llama-2-7b",
        "engine": "ideal",
        "kv_dtype": "fp16",
        "context": 4096,
        "sequences": 2,
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "gpu": None,
        "kv_bytes_per_device": None,
        "status": status,
        "file": "deploy/kvcalc.yaml",
        "line": 3,
        "bytes": None,
        "checks": [check(1024 if status == "over" else 0)] if status != "error" else [],
        "growth_percent": None,
        "remedies": [{"change": {"context": 2048}, "text": "context: 2048"}, {"change": {"sequences": 1}, "text": "sequences: 1"}],
        "message": "ask the serving team",
        "error": None,
        "notes": [],
        "warnings": [],
    } | more


ERROR = {"type": "gated", "message": "org/name is gated", "hint": "set HF_TOKEN", "exit_code": 3}
DOCUMENT = {
    "schema": "kvcalc.check/1",
    "file": "deploy/kvcalc.yaml",
    "summary": {"budgets": 4, "passed": 1, "over": 2, "errors": 1, "exit_code": 3},
    "budgets": [
        budget("fine", "pass"),
        budget("chat-prod", "over"),
        budget(HOSTILE, "over", message=HOSTILE, model=HOSTILE),
        budget("unknown", "error", error=ERROR, remedies=[]),
    ],
    "notes": [],
    "warnings": [],
}


def test_junit_validates_and_counts() -> None:
    text = report(DOCUMENT, "junit")
    xmlschema.XMLSchema(str(DATA / "jenkins-junit.xsd")).validate(text.split("\n", 1)[1])
    assert 'tests="4" failures="2" errors="1"' in text
    assert "total exceeds its limit by 1,024 B (1 KiB), 5 %: 21,504 B (21 KiB), limit 20,480 B (20 KiB)" in text
    assert "fits with context: 2048, or sequences: 1" in text
    assert "\x1b" not in text


def test_sarif_validates_and_points_at_the_limit() -> None:
    log = json.loads(report(DOCUMENT, "sarif"))
    schema = json.loads((DATA / "sarif-2.1.0-rtm.5.json").read_text())
    jsonschema.Draft4Validator(schema).validate(log)
    results = log["runs"][0]["results"]
    assert [result["ruleId"] for result in results] == ["budget-exceeded", "budget-exceeded", "budget-not-evaluated"]
    place = results[0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "deploy/kvcalc.yaml"}, "region": {"startLine": 7}}
    assert len({result["partialFingerprints"]["kvcalcBudget/v1"] for result in results}) == 3


ANNOTATION = re.compile(r"::error file=[^,:\r\n]+,line=\d+,title=[^,:\r\n]+::[^\r\n]+")


def test_github_annotations_match_the_documented_form() -> None:
    lines = report(DOCUMENT, "github").splitlines()
    assert len(lines) == 4
    for line in lines[:3]:
        assert ANNOTATION.fullmatch(line)
    assert lines[0].startswith("::error file=deploy/kvcalc.yaml,line=7,title=KV cache%3A chat-prod::total exceeds its limit by 1,024 B")
    assert "%0Aask the serving team%0Afits with" in lines[0]
    assert lines[3] == "kvcalc: 1 met, 2 exceeded, 1 not evaluated"


def test_warnings_of_budgets_that_are_met_are_annotated_too() -> None:
    warned = DOCUMENT | {"budgets": [budget("fine", "pass", warnings=["context 8,192 is beyond the 4,096 tokens", HOSTILE])]}
    first, second, _ = report(warned, "github").splitlines()
    assert first == "::warning file=deploy/kvcalc.yaml,line=3,title=KV cache%3A fine::context 8,192 is beyond the 4,096 tokens"
    assert re.fullmatch(ANNOTATION.pattern.replace("error", "warning"), second)
    assert "- **warning:** fine: context 8,192 is beyond the 4,096 tokens\n" in report(warned, "markdown")


def test_gitlab_has_what_its_schema_requires() -> None:
    issues = json.loads(report(DOCUMENT, "gitlab"))
    assert len(issues) == 3
    for issue in issues:
        assert set(issue) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert issue["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert issue["location"]["lines"]["begin"] >= 1
    assert len({issue["fingerprint"] for issue in issues}) == 3


def test_markdown_says_what_is_unmet_first_and_escapes() -> None:
    text = report(DOCUMENT, "markdown")
    assert text.index("chat-prod") < text.index("| budget |")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 6 for row in rows)
    assert not re.search(r"(?<!\\)<", text)
    assert r"\*bold\*" in text


def test_markdown_has_a_row_for_every_limit() -> None:
    two = [check(), check(0) | {"limit": "per_token"}]
    text = report(DOCUMENT | {"budgets": [budget("chat-prod", "over", checks=two)]}, "markdown")
    assert "| chat-prod | **exceeded** | total 20,480 B (20 KiB) | 21,504 B (21 KiB) | - |\n" in text
    assert "| chat-prod | met | per\\_token 20,480 B (20 KiB) | 20,480 B (20 KiB) | - |\n" in text


@pytest.mark.parametrize("name", REPORTS)
def test_no_report_lets_control_characters_through(name: str) -> None:
    assert "\x1b" not in report(DOCUMENT, name)


@pytest.mark.parametrize("name", REPORTS)
def test_nothing_unmet_is_a_report_too(name: str) -> None:
    document = DOCUMENT | {
        "budgets": [budget("fine", "pass")],
        "summary": {"budgets": 1, "passed": 1, "over": 0, "errors": 0, "exit_code": 0},
    }
    text = report(document, name)
    assert text.endswith("\n")
    assert "chat-prod" not in text
