"""From the command line of `train` to runs: flags, Hydra, and every error in one line.

Hydra composes, sweeps and completes; this module only prepares its arguments and says what went wrong. A setting
that conf/ does not spell out but the component has may be given without Hydra's plus sign.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import composer_rl
from composer_rl.config import paths, rerun, resolvers
from composer_rl.config.helptext import help_text
from composer_rl.config.one_option import SEVERAL_OPTIONS
from composer_rl.config.record import write_atomically
from composer_rl.config.redact import redact, redact_text
from composer_rl.config.rundir import RESULT_NAME, remove_if_empty
from composer_rl.config.settings import RunSettings
from composer_rl.config.suggest import nearest
from composer_rl.config.translate import translate, unknown_key
from composer_rl.errors import ComposerError, ConfigError
from composer_rl.process import exit_quickly, hydra_messages
from composer_rl.run import Job, Outcome, execute, prepare_run, refuse
from composer_rl.sweeps.call import JobFailedError, SweepCall, sweep_call
from composer_rl.sweeps.defaults import set_sweep_defaults
from composer_rl.sweeps.environment import end_with_parent, place_in_sweep
from composer_rl.sweeps.summary import summary_lines

OBJECTIVE = "heldout/solve_rate_after"
"""Metric that a job returns to Hydra's sweeper."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def _parser() -> _Parser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    for flags in (("--help", "-h"), ("--hydra-help",), ("--version",), ("--resolve",), ("--run", "-r")):
        parser.add_argument(*flags, action="store_true")
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--shell-completion", "-sc", action="store_true")
    parser.add_argument("--cfg", "-c", choices=["job", "hydra", "all"])
    parser.add_argument("--package", "-p")
    parser.add_argument("--config-path", "-cp")
    parser.add_argument("--config-name", "-cn")
    parser.add_argument("--config-dir", "-cd")
    parser.add_argument(
        "--info",
        "-i",
        nargs="?",
        const="all",
        choices=["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"],
    )
    parser.add_argument("overrides", nargs="*")
    return parser


def parse_flags(arguments: Sequence[str]) -> argparse.Namespace:
    """Split the command line into Hydra's flags and overrides. Raises ConfigError for an unknown flag."""
    parser = _parser()
    flags, unknown = parser.parse_known_intermixed_args(list(arguments))
    if unknown:
        word = unknown[0]
        known = [flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")]
        match = nearest(word.partition("=")[0], known)
        key = word.lstrip("-").partition("=")[0].replace("-", "_")
        if "=" in word and match is None:
            raise ConfigError(f"settings are given without dashes: {key}={word.partition('=')[2]}")
        raise ConfigError(f"unknown flag {word}" + (f"; did you mean {match}?" if match else "; see --help"))
    if flags.config_dir is not None and not Path(flags.config_dir).is_dir():
        raise ConfigError(f"--config-dir {flags.config_dir} is no folder")
    return flags


def launch(arguments: Sequence[str], *, program: str) -> int:
    """Run `train` with these command-line words and return its exit code.

    0: all runs succeeded; 1: a run failed; 2: wrong input; 3: a guard stopped the run; 130, 143: interrupted.
    """
    exit_quickly()
    end_with_parent()
    place = place_in_sweep()
    try:
        flags = parse_flags(arguments)
        known = paths.catalog([Path(flags.config_dir)] if flags.config_dir else [])
        if flags.help:
            sys.stdout.write(help_text(known, program=program))
            return 0
        if flags.version:
            sys.stdout.write(f"composer-rl {composer_rl.__version__}\n")
            return 0
        return _Launch(flags=flags, words=list(arguments), program=program, known=known, place=place).run()
    except ComposerError as error:
        return report_error(error)
    except KeyboardInterrupt as interruption:
        return int(getattr(interruption, "exit_code", 130))


def report_error(error: ComposerError) -> int:
    """Print an expected error in one line on stderr and return its exit code."""
    sys.stderr.write(f"error: {redact_text(' '.join(str(error).split()))}\n")
    return error.exit_code


@dataclass(kw_only=True)
class _Launch:
    """One call of Hydra, repeated while it only misses a plus sign."""

    flags: argparse.Namespace
    words: list[str]
    program: str
    known: paths.Catalog
    place: tuple[str | None, int | None] = (None, None)
    """Sweep and job number that a sweep gave this process."""
    outcomes: list[Outcome] = field(default_factory=list)
    stored: dict[str, Any] = field(default_factory=dict)
    """The record that is repeated or resumed; empty for a new run."""
    _source: Path | None = None
    """File or folder of that record."""
    _refused: ConfigError | None = None
    _job_failed: bool = False

    def run(self) -> int:
        resolvers.register()
        set_sweep_defaults()
        overrides = self._with_groups_left_out(self.flags.overrides)
        _check_single_options(overrides, self.known)
        self._check_sweep_file()
        if not self.flags.shell_completion and (source := self._stored_run()) is not None:
            overrides = [line for line in overrides if not line.lstrip("+").startswith("rerun=")]
            self.flags.config_name, self._source = rerun.CONFIG_NAME, source
            self._announce(source)
        while True:
            error = self._call_hydra(overrides)
            key = unknown_key(error) if error is not None else None
            retry = _with_plus(overrides, key) if key is not None else None
            if error is None or retry is None:
                break
            overrides = retry
        if error is not None:
            translated = translate(error, self.known)
            if translated is None:
                traceback.print_exception(error)
                return 1
            raise translated
        return self._exit_code()

    def _check_sweep_file(self) -> None:
        """Refuse a sweep file in a command for one run, which would not read the arms in it."""
        flags = self.flags
        if flags.multirun or flags.cfg or flags.info or flags.shell_completion or self.place[0] is not None:
            return
        overrides = _parse(flags.overrides, self.known)
        name = overrides.get("multirun_sweeps")
        if name is not None and "hydra.mode" not in overrides:
            raise ConfigError(f"multirun_sweeps={name} describes several runs: add -m")

    def _with_groups_left_out(self, words: list[str]) -> list[str]:
        """`group=null` is what one writes in YAML; Hydra's command line knows it as `~group`."""
        return [
            f"~{word[:-5]}" if word.endswith("=null") and word[:-5] in self.known.options else word for word in words
        ]

    def _stored_run(self) -> Path | None:
        """Register the configuration that `rerun=` or `resume=true` names. Raises ConfigError."""
        overrides = _parse(self.flags.overrides, self.known)
        again, resume, run_dir = (overrides.get(key) for key in ("rerun", "resume", "hydra.run.dir"))
        if again is not None and resume is True:
            raise ConfigError("rerun starts a new run and resume goes on with one: give only one of them")
        if again is not None:
            if not isinstance(again, str):
                raise ConfigError("rerun takes one result.json or run folder")
            source = Path(again).absolute()
            self.stored = rerun.load_record(source)
            self._register(str(source))
            return source
        if resume is True and not self.flags.multirun:
            if not isinstance(run_dir, str):
                raise ConfigError("resume=true needs the folder of the run: hydra.run.dir=<folder>")
            source = Path(run_dir).absolute()
            self.stored = rerun.load_record(source)
            self._register(self.stored["config"].get("rerun"))
            return source
        return None

    def _register(self, source: str | None) -> None:
        rerun.register(self.stored, self.flags.overrides, self.known, source=source)
        for group in rerun.chosen_groups(self.flags.overrides, self.known):
            self.stored["choices"].pop(group, None)

    def _announce(self, source: Path) -> None:
        changes = rerun.differences(self.stored)
        if changes:
            sys.stderr.write(f"warning: not as it was when {source} was written: {'; '.join(changes)}\n")

    def _call_hydra(self, overrides: list[str]) -> Exception | None:
        """Let Hydra run; return the error that kept it from running, None when it ran."""
        import hydra

        from composer_rl.preflight import Refused

        saved = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
        sys.argv = [sys.argv[0], *_hydra_flags(self.flags), *overrides]
        os.environ["HYDRA_FULL_ERROR"] = "1"
        self.outcomes.clear()
        self._refused = None
        try:
            # --info prints through Hydra's own loggers at DEBUG.
            call = SweepCall(flags=self._words_of_jobs(), command=self._command, outcomes=self.outcomes)
            with nullcontext() if self.flags.info else hydra_messages(), sweep_call(call):
                hydra.main(config_path=str(paths.conf_dir()), version_base="1.3")(self._task)()
        except Refused as refusal:
            return refusal.reason
        except JobFailedError:
            self._job_failed = True
            return None
        except Exception as error:  # noqa: BLE001  Hydra, its plugins and its parsers raise whatever they like.
            return error
        except SystemExit as end:
            if end.code not in (None, 0):
                raise ConfigError(f"Hydra ended with exit code {end.code}") from end
        finally:
            sys.argv = saved[0]
            if saved[1] is None:
                os.environ.pop("HYDRA_FULL_ERROR", None)
            else:
                os.environ["HYDRA_FULL_ERROR"] = saved[1]
        return self._refused

    def _task(self, config: Any) -> float | None:
        """What Hydra calls for each job."""
        from hydra.core.hydra_config import HydraConfig
        from hydra.types import RunMode

        in_sweep = HydraConfig.get().mode == RunMode.MULTIRUN
        job = self._job(in_sweep=in_sweep)
        if in_sweep:
            _redact_file(job.run_dir.parent / "multirun.yaml")
        groups = self.known.top_groups
        outcome: Outcome
        try:
            prepared = prepare_run(config, groups=groups)
            if not in_sweep:
                self._check_source(prepared.settings)
            elif prepared.settings.resume:
                finished = _finished_job(prepared.config, job.run_dir)
                if finished is not None:
                    sys.stdout.write(f"already succeeded: {job.run_dir}\n")
                    self.outcomes.append(finished)
                    return finished.metrics.get(OBJECTIVE)
                prepared.settings.resume = (job.run_dir / RESULT_NAME).is_file()
            outcome = execute(prepared, job)
        except ConfigError as error:
            if not in_sweep:
                remove_if_empty(job.run_dir)
                self._refused = error
                return None
            outcome = refuse(_plain(config), job, error)
        finally:
            resolvers.renew_run_id()
        self.outcomes.append(outcome)
        return self._hand_back(outcome, in_sweep=in_sweep)

    def _check_source(self, settings: RunSettings) -> None:
        """Refuse `rerun` and `resume` that come from a file: the stored configuration was not read for them."""
        for name, asked in (("rerun", settings.rerun is not None), ("resume", settings.resume)):
            if asked and not self.stored:
                raise ConfigError(f"{name} is only read from the command line: {name}=...")

    def _hand_back(self, outcome: Outcome, *, in_sweep: bool) -> float | None:
        if isinstance(outcome.error, ComposerError):
            report_error(outcome.error)
        if outcome.status == "interrupted" and in_sweep:
            raise outcome.error or KeyboardInterrupt
        if outcome.status == "failed" and in_sweep:
            raise JobFailedError(f"see {outcome.run_dir}/result.json")
        return outcome.metrics.get(OBJECTIVE)

    def _words_of_jobs(self) -> list[str]:
        """Flags, and the run that is repeated, which every job of a sweep is started with too."""
        if self._source is not None:
            return [f"rerun={self._source}"]
        names = ("config_name", "config_path", "config_dir")
        given = {name: getattr(self.flags, name) for name in names}
        return [f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value is not None]

    @property
    def _command(self) -> list[str]:
        return [*self.program.split(), *self.words]

    def _job(self, *, in_sweep: bool) -> Job:
        """The job that Hydra runs here: of a sweep in this process, of a sweep that gave it a process, or of none."""
        from hydra.core.hydra_config import HydraConfig

        hydra = HydraConfig.get()
        sweep, number = self.place
        choices = {str(key): value for key, value in hydra.runtime.choices.items() if not str(key).startswith("hydra/")}
        for group, option in self.stored.get("choices", {}).items():
            choices[group] = choices.get(group) or option
        return Job(
            run_dir=Path(hydra.runtime.output_dir),
            overrides=[str(line) for line in hydra.overrides.task],
            choices=choices,
            sweep=Path(str(hydra.sweep.dir)).name if in_sweep else sweep,
            job_num=int(hydra.job.num) if in_sweep else number,
            command=self._command,
        )

    def _exit_code(self) -> int:
        failed = [outcome for outcome in self.outcomes if outcome.exit_code != 0]
        if self.flags.multirun and self.outcomes:
            good = len(self.outcomes) - len(failed)
            sys.stdout.writelines(f"{line}\n" for line in summary_lines(self.outcomes[0].run_dir.parent))
            sys.stdout.write(f"{good} of {len(self.outcomes)} jobs succeeded\n")
            _write_sweep_report(self.outcomes[0].run_dir.parent)
        if failed and not self.flags.multirun:
            return failed[0].exit_code
        return 1 if failed or self._job_failed else 0


def _check_single_options(overrides: Sequence[str], known: paths.Catalog) -> None:
    """Refuse `po=[dapo,grpo]`: Hydra would merge both files into one component. Raises ConfigError."""
    for line in overrides:
        group, _, value = line.lstrip("+").partition("=")
        value = value.strip()
        if group not in known.options or group in SEVERAL_OPTIONS or not value.startswith("["):
            continue
        names = re.sub(r"[\[\]\s]", "", value)
        raise ConfigError(f"{group} takes one option, got {value}; to compare them use: -m {group}={names}")


def _parse(overrides: Sequence[str], known: paths.Catalog) -> dict[str, Any]:
    """Values of plain `key=value` overrides. Raises ConfigError for one that cannot be read."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    values: dict[str, Any] = {}
    for line in overrides:
        if not re.match(r"\+{0,2}(rerun|resume|multirun_sweeps|hydra\.run\.dir|hydra\.mode)=", line):
            continue
        try:
            values[line.partition("=")[0].lstrip("+")] = OverridesParser.create().parse_override(line).value()
        except Exception as error:
            raise translate(error, known) or error from error
    return values


def _hydra_flags(flags: argparse.Namespace) -> list[str]:
    """Hydra's own flags in one piece before the overrides, which its parser needs."""
    words = ["--config-name", flags.config_name or "config"]
    for name in ("hydra_help", "resolve", "run", "multirun", "shell_completion"):
        if getattr(flags, name):
            words.append(f"--{name.replace('_', '-')}")
    for name in ("cfg", "package", "config_path", "config_dir", "info"):
        value = getattr(flags, name)
        if value is not None:
            words.append(f"--{name.replace('_', '-')}={value}")
    return words


def _write_sweep_report(sweep_dir: Path) -> None:
    """The page of a sweep; one that cannot be made is said, and the sweep's exit code stays what it is."""
    from composer_rl.report.sweep_page import write_sweep_report

    try:
        sys.stdout.write(f"report: {write_sweep_report(sweep_dir)}\n")
    except Exception as error:  # noqa: BLE001  The jobs are done and recorded; the page can be made again.
        sys.stderr.write(
            f"error: no page: {redact_text(' '.join(str(error).split()))}; try again with: "
            f"composer-rl report {sweep_dir}\n"
        )


def _with_plus(overrides: Sequence[str], key: str) -> list[str] | None:
    """The overrides with `++` before the one of `key`; None when it is not there to be changed."""
    changed = [f"++{line}" if line.partition("=")[0] == key and "=" in line else line for line in overrides]
    return changed if changed != list(overrides) else None


def _plain(config: Any) -> dict[str, Any]:
    """The configuration as far as it can be written without resolving it."""
    from omegaconf import OmegaConf

    content = OmegaConf.to_container(config, resolve=False, throw_on_missing=False)
    assert isinstance(content, dict)
    return {str(key): value for key, value in content.items()}


def _redact_file(path: Path) -> None:
    """Take secrets out of a file that Hydra wrote: the overrides of a sweep."""
    if path.is_file():
        text = path.read_text(encoding="utf-8")
        if redact_text(text) != text:
            write_atomically(path, redact_text(text))


def _finished_job(config: dict[str, Any], run_dir: Path) -> Outcome | None:
    """The outcome of a sweep's job that already succeeded with this configuration, else None."""
    if not (run_dir / RESULT_NAME).is_file():
        return None
    record = rerun.load_record(run_dir)
    changed = sorted(
        key for key in {*record["config"], *config} - {"resume"} if record["config"].get(key) != redact(config).get(key)
    )
    if changed:
        sys.stderr.write(f"warning: {run_dir} goes on with other settings than it began with: {', '.join(changed)}\n")
    if record.get("status") != "succeeded" or changed:
        return None
    metrics = {name: value for name, value in record["metrics"].items() if value is not None}
    return Outcome(status="succeeded", exit_code=0, run_dir=run_dir, metrics=metrics)
