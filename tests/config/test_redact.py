"""Secrets never reach a file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_rl.config.redact import REDACTED, is_secret_key, redact, redact_override, redact_text


@pytest.mark.parametrize(
    "name",
    ["api_key", "OPENROUTER_API_KEY", "password", "db_password", "token", "hf_token", "secret", "aws_secret_key"],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_key(name)
    assert redact({name: "plain"}) == {name: REDACTED}


@pytest.mark.parametrize(
    "name",
    [
        "api_key_env",
        "secret_env",
        "max_tokens",
        "num_tokens",
        "pad_token",
        "eos_token",
        "tokenizer",
        "token_clip",
        "key",
    ],
)
def test_names_of_other_settings(name: str) -> None:
    assert not is_secret_key(name)
    assert redact({name: "plain"}) == {name: "plain"}


@pytest.mark.parametrize(
    "text",
    [
        "sk-or-v1-0123456789abcdef0123456789",
        "hf_abcdefghijklmnopqrstuvwx",
        "ghp_abcdefghijklmnopqrstuvwxyz",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghi",
        "xoxb-1234567890-abc",
    ],
)
def test_values_that_look_like_secrets(text: str) -> None:
    assert text not in redact_text(f"before {text} after")
    assert redact({"a": [{"note": text}]}) == {"a": [{"note": REDACTED}]}


def test_parts_of_texts() -> None:
    assert redact_text("https://me:hunter2@host/x") == f"https://{REDACTED}@host/x"
    assert redact_text("Bearer abcdefghijklmnopqrstuvwxyz") == f"Bearer {REDACTED}"
    assert redact_text("{api_key: hunter22, rate: 3}") == f"{{api_key: {REDACTED}, rate: 3}}"
    assert redact_text("max_tokens=4096 pad_token: <pad>") == "max_tokens=4096 pad_token: <pad>"


def test_values_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "correct-horse")
    monkeypatch.setenv("TINY_KEY", "ab")
    monkeypatch.setenv("HOME_FOLDER", "harmless-text")
    assert redact({"copied": "x correct-horse y"}) == {"copied": f"x {REDACTED} y"}
    assert redact_text("ab harmless-text") == "ab harmless-text"


def test_overrides() -> None:
    assert redact_override("teacher.api_key=hunter22") == f"teacher.api_key={REDACTED}"
    assert redact_override("+teacher.api_key=hunter22") == f"+teacher.api_key={REDACTED}"
    assert redact_override("po=dapo") == "po=dapo"


def test_other_values_stay() -> None:
    config = {"token": None, "password": 3, "seed": 0, "nested": {"on": True, "rates": [1.5, None]}}
    assert redact(config) == config


@given(st.dictionaries(st.sampled_from(["seed", "po", "name"]), st.integers() | st.text("abc =:", max_size=12)))
def test_redacting_twice_is_redacting_once(config: dict[str, object]) -> None:
    assert redact(redact(config)) == redact(config)
