"""What every page is made of: templates, scripts that may run, and one way to write.

A page is one file with everything in it, read without a network and without a server. What a model or an error wrote is
untrusted: templates escape every value, data blocks cannot close their script element, and a page's
Content-Security-Policy names the only scripts that may run by their hash.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer_rl.report.words import count, percent, seconds_in_words

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, scripts: tuple[str, ...], **values: Any) -> str:
    """A page from a template that extends layout.html.

    Args:
        template: Its file name.
        scripts: Files of the template folder that make the page's script, in order. The drawing library comes first.
        values: What the template shows.
    """
    sources = [plotly_source(), "\n".join(source(name) for name in scripts)]
    return (
        environment()
        .get_template(template)
        .render(
            css=source("page.css"), scripts=sources, script_hashes=[csp_hash(script) for script in sources], **values
        )
    )


def write_page(target: Path, page: str) -> None:
    """Replace a page in one step; an earlier one stays when that fails."""
    descriptor, draft = tempfile.mkstemp(dir=target.parent, prefix=".report.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            # Half a surrogate pair, which a model's JSON may hold, becomes "?".
            file.write(page.encode("utf-8", "replace"))
        os.chmod(draft, 0o644)
        os.replace(draft, target)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def source(name: str) -> str:
    """Text of a file of the template folder."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def script_json(figure: Any) -> str:
    """A figure as JSON that no script element ends inside of: every "<" is written as an escape."""
    return str(figure.to_json()).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def csp_hash(script: str) -> str:
    """What a Content-Security-Policy calls an inline script by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode()


def breakable(text: str) -> Markup:
    """Escaped text that a narrow column may break behind the punctuation of a setting's name."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"([_=,/]|\.(?!\d))(?=\S)", r"\1<wbr>", str(escape(text))))


@functools.cache
def plotly_source() -> str:
    """The drawing library."""
    from plotly.offline import get_plotlyjs

    # A parser turns CRLF into LF before the hash is taken.
    return str(get_plotlyjs()).replace("\r\n", "\n").replace("\r", "\n")


@functools.cache
def environment() -> Environment:
    """Templates with every value escaped; an unknown name is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["seconds"] = seconds_in_words
    environment.filters["percent"] = percent
    environment.filters["compact"] = count
    environment.filters["breakable"] = breakable
    return environment
