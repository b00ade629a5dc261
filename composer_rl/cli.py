"""The command line: `train.py`, and the console script `composer-rl` with its verbs. Never imports torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from composer_rl.config.suggest import nearest
from composer_rl.errors import ComposerError, ConfigError


def main(arguments: Sequence[str] | None = None) -> int:
    """What train.py calls: compose a run from the command line, run it, return the exit code."""
    return _train(list(sys.argv[1:] if arguments is None else arguments), program="python train.py")


def entry_point() -> None:
    """The console script `composer-rl`."""
    sys.exit(console(sys.argv[1:]))


def console(arguments: Sequence[str]) -> int:
    """Run one verb of `composer-rl` and return its exit code."""
    words = list(arguments)
    if not words or words[0] in ("--help", "-h", "help"):
        sys.stdout.write(_usage())
        return 0 if words else 2
    if words[0] == "--version":
        import composer_rl

        sys.stdout.write(f"composer-rl {composer_rl.__version__}\n")
        return 0
    verb, rest = words[0], words[1:]
    try:
        if verb not in VERBS:
            match = nearest(verb, VERBS)
            hint = f"; did you mean {match}?" if match else f"; there are: {', '.join(VERBS)}"
            raise ConfigError(f"composer-rl has no verb {verb!r}{hint}")
        return VERBS[verb][1](rest)
    except BrokenPipeError:
        # `composer-rl list | head`: the reader has what it wanted. Python would complain once more at its own flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except ComposerError as error:
        from composer_rl.launch import report_error

        return report_error(error)


def _train(words: list[str], *, program: str) -> int:
    try:
        import hydra  # noqa: F401
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"error: {error.name} is not installed for {sys.executable}; "
            f"run `make install` and use .venv/bin/python, or: pip install -e .\n"
        )
        return 2
    from composer_rl.launch import launch

    return launch(words, program=program)


def _doctor(words: list[str]) -> int:
    from composer_rl.doctor import examine

    if words:
        raise ConfigError(f"composer-rl doctor takes no arguments, got {words[0]!r}")
    return examine()


def _report(words: list[str]) -> int:
    from composer_rl.report.command import report

    return report(words)


def _compare(words: list[str]) -> int:
    from composer_rl.report.command import compare

    return compare(words)


def _list(words: list[str]) -> int:
    from composer_rl.report.command import list_entries

    return list_entries(words)


VERBS: dict[str, tuple[str, Callable[[list[str]], int]]] = {
    "train": (
        "train, fine-tune or evaluate: the same as python train.py",
        lambda words: _train(words, program="composer-rl train"),
    ),
    "report": ("write report.html of a run folder, or of one or several sweeps", _report),
    "compare": ("write a page that shows two runs side by side", _compare),
    "list": ("list runs and sweeps with status, main figures and date", _list),
    "doctor": ("show versions, cores, memory, sandbox and GPU of this machine", _doctor),
}


def _usage() -> str:
    lines = ["usage: composer-rl VERB ...", ""]
    lines += [f"  {verb:<8} {text}" for verb, (text, _) in VERBS.items()]
    lines += ["", "composer-rl train --help lists settings, config groups and options.", ""]
    return "\n".join(lines)
