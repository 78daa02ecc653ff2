"""Where an address may lead: never from the web into a network inside."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from kvcalc.sources.addresses import may_lead, shown

PUBLIC = "https://8.8.8.8/x"
INSIDE = (
    "https://10.0.0.1/x",
    "https://192.168.1.9/x",
    "https://172.16.0.1/x",
    "https://169.254.169.254/latest",
    "https://[fe80::1]/x",
    "https://[fd00::1]/x",
)
HERE = (
    "http://127.0.0.1/x",
    "http://localhost:8080/x",
    "https://127.9.9.9/x",
    "https://[::1]/x",
    "https://0.0.0.0/x",
    "https://[::ffff:127.0.0.1]/x",
    "https://a.localhost/x",
    "https://localhost./x",
)


@pytest.mark.parametrize("target", [*INSIDE, *HERE])
def test_the_web_leads_to_the_web_only(target: str) -> None:
    assert not may_lead(urlsplit(PUBLIC), urlsplit(target))


def test_each_origin_leads_as_deep_as_it_lies() -> None:
    for origin in (PUBLIC, *INSIDE, HERE[0]):
        assert may_lead(urlsplit(origin), urlsplit("https://1.1.1.1/x"))
    assert may_lead(urlsplit(INSIDE[0]), urlsplit(INSIDE[1]))
    assert not may_lead(urlsplit(INSIDE[0]), urlsplit(HERE[2]))
    assert may_lead(urlsplit(HERE[0]), urlsplit(HERE[1]))
    assert not may_lead(urlsplit(HERE[0]), urlsplit("http://example.com/x"))
    assert not may_lead(urlsplit(PUBLIC), urlsplit("https://user@1.1.1.1/x"))


def test_what_is_shown_holds_no_secret() -> None:
    assert shown(urlsplit("https://me:secret@hub.example/org/name?token=abc#x")) == "https://hub.example/org/name"
