"""Keep secrets out of everything a run writes."""

from __future__ import annotations

import os
import re
from typing import Any

REDACTED = "<redacted>"

_SECRET_KEY = re.compile(
    r"(^|_)(api_?key|access_key|secret_key|private_key|secret|password|passwd|passphrase|credentials?)$"
    r"|(^|_)(api|auth|access|bearer|refresh|session|hf|hub|huggingface|wandb|github|gh|openrouter|aws|id)_token$"
    r"|^(token|authorization|auth)$",
    re.IGNORECASE,
)
_SECRET_VARIABLE = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|AUTH)(_ID)?$", re.IGNORECASE)
_SECRET_VALUE = re.compile(
    r"\bsk-[A-Za-z0-9_-]{16,}"
    r"|\bhf_[A-Za-z0-9]{20,}"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}"
    r"|\bxox[abprs]-[A-Za-z0-9-]{10,}"
    r"|\b(AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}"
    r"|(?<=Bearer )\S{16,}"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
)
_NAMED_SECRET = re.compile(
    r"(?P<name>\b[\w-]*?(?:api_?key|access_key|secret_key|private_key|secret|password|passwd|passphrase|credentials?"
    r"|(?:api|auth|access|bearer|refresh|session|hf|hub|huggingface|wandb|github|gh|openrouter|aws|id)_token|token))"
    r"(?P<link>[\"']?\s*[:=]\s*[\"']?)(?P<value>[^\s,;\"'{}\[\]]{4,})",
    re.IGNORECASE,
)
"""`api_key: value` and `api_key=value` inside a text."""
_SHORTEST_VARIABLE = 8


def is_secret_key(name: str) -> bool:
    """Whether a setting of this name holds a secret; `api_key_env` names a variable and is none, nor is `pad_token`."""
    return _SECRET_KEY.search(name) is not None


def secret_values() -> list[str]:
    """Values of environment variables whose name looks like a secret's, longest first."""
    values = {
        value
        for name, value in os.environ.items()
        if _SECRET_VARIABLE.search(name) and len(value) >= _SHORTEST_VARIABLE
    }
    return sorted(values, key=len, reverse=True)


def redact_text(text: str) -> str:
    """`text` without anything that looks like a key, a token or a password, or equals one in the environment."""
    for value in secret_values():
        text = text.replace(value, REDACTED)
    text = _SECRET_VALUE.sub(REDACTED, text)
    return _NAMED_SECRET.sub(_without_value, text)


def _without_value(match: re.Match[str]) -> str:
    if not is_secret_key(match["name"]) or match["value"].startswith(REDACTED):
        return match[0]
    return f"{match['name']}{match['link']}{REDACTED}"


def redact_override(override: str) -> str:
    """One `key=value` of the command line, the value left out when the key names a secret."""
    key, equals, _ = override.partition("=")
    if equals and is_secret_key(re.split(r"[./+~@-]", key)[-1]):
        return f"{key}={REDACTED}"
    return redact_text(override)


def redact(value: Any, key: str = "") -> Any:
    """A copy of plain data with secrets replaced: texts under a secret's name, and secret-looking texts anywhere."""
    if isinstance(value, dict):
        return {name: redact(item, str(name)) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(item, key) for item in value]
    if isinstance(value, str) and value:
        return REDACTED if is_secret_key(key) else redact_text(value)
    return value
