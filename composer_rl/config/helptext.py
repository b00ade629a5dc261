"""What `--help` prints: how to write a command, and every config group with its options."""

from __future__ import annotations

import shutil
import textwrap

import composer_rl
from composer_rl.config.paths import Catalog, conf_dir

_DESCRIPTIONS = {
    "po": "policy objective: how rewards become a gradient",
    "loss": "loss channels added to the policy objective",
    "loss/channel": "one channel, added by name: +loss/channel@loss.channels.NAME=OPTION",
    "hint": "what is told to the teacher after a failed tool call",
    "env": "where tasks come from and how answers are graded",
    "model": "the policy: weights and tokenizer",
    "sandbox": "what runs code written by the model",
    "curriculum": "which task comes next",
    "optim": "optimizer and learning rate",
    "reward": "reward functions",
    "rollout": "how episodes are sampled",
    "runtime": "device, threads, determinism",
    "tracker": "where metrics go",
    "stage": "what to do: train, fine-tune, evaluate",
    "evaluate": "what stage=evaluate measures",
    "debug": "shortcuts for trying things out",
    "experiments": "published recipes",
    "multirun_sweeps": "ablation sweeps, run with -m",
}

_SETTINGS = (
    ("seed=0", "random seed"),
    ("max_steps=null", "optimizer steps; null: the stage's own"),
    ("run_name=null", "name of the run"),
    ("hydra.run.dir=FOLDER", "where the run goes; default outputs/<date>/<time>-<id>"),
    ("resume=true", "go on with the run in hydra.run.dir"),
    ("rerun=RESULT.JSON", "repeat a run exactly, in a new folder"),
    ("trusted_packages=[]", "your own packages whose classes may be used"),
    ("tags=[]", "labels for the trackers"),
)

_FLAGS = (
    ("-m, --multirun", "run every combination of comma-separated values"),
    ("--cfg job", "print the configuration and stop (--resolve: with interpolations filled in)"),
    ("--config-dir FOLDER", "add config groups and options of your own"),
    ("--info defaults", "print where each part of the configuration comes from"),
    ("--hydra-help", "Hydra's own flags and groups"),
    ("--shell-completion", "install=bash or uninstall=bash"),
)

_EXIT_CODES = (
    ("0", "all runs succeeded"),
    ("1", "a run failed; its result.json says why"),
    ("2", "the command line or a configuration file is wrong"),
    ("3", "a guard stopped the run"),
    ("130, 143", "interrupted by Ctrl-C, by SIGTERM"),
)


def help_text(known: Catalog, *, program: str) -> str:
    """The help page, wrapped to the terminal."""
    width = min(shutil.get_terminal_size().columns, 120)
    examples = (
        (f"{program}", "train the embedded model with the defaults (*)"),
        (f"{program} po=dapo seed=3", "another policy objective, another seed"),
        (f"{program} model=hf model.name=FOLDER_OR_HUB_ID", "your own model"),
        (f"{program} -m po=grpo,dapo seed=0,1", "four runs"),
        (f"{program} stage=evaluate", "measure without training"),
    )
    lines = [
        f"composer_rl {composer_rl.__version__}: {composer_rl.__doc__}",
        "",
        f"usage: {program} [group=option ...] [setting=value ...] [flags]",
        "",
        "Examples",
        *_table(examples, width),
        "",
        "Settings (any field of a component too: po.epsilon_high=0.3)",
        *_table(_SETTINGS, width),
        "",
        "Groups and their options (* default)",
    ]
    defaults = default_options()
    for group in sorted(known.options, key=_rank):
        if group.partition("/")[0] != "hydra":
            lines += _group_lines(group, known, defaults.get(group), width)
    lines += ["", "Flags", *_table(_FLAGS, width), "", "Exit codes", *_table(_EXIT_CODES, width), ""]
    return "\n".join(lines)


def _rank(group: str) -> tuple[int, str]:
    order = list(_DESCRIPTIONS)
    return (order.index(group) if group in order else len(order), group)


def _group_lines(group: str, known: Catalog, default: str | None, width: int) -> list[str]:
    nested = group in ("experiments", "multirun_sweeps")
    options = [option for option in known.options[group].values() if nested or "/" not in option.name]
    if not options or (not nested and group.partition("/")[0] in ("experiments", "multirun_sweeps")):
        return []
    title = f"  {group}" + (f"  ({_DESCRIPTIONS[group]})" if group in _DESCRIPTIONS else "")
    rows = [
        (("* " if option.name == default else "  ") + option.name, option.description)
        for option in sorted(options, key=lambda option: option.name)
    ]
    return ["", title, *_table(rows, width)]


def default_options() -> dict[str, str | None]:
    """The option of each group in the defaults list of conf/config.yaml."""
    from omegaconf import OmegaConf

    content = OmegaConf.to_container(OmegaConf.load(conf_dir() / "config.yaml"), resolve=False)
    assert isinstance(content, dict)
    entries = [entry for entry in content["defaults"] if isinstance(entry, dict)]
    return {str(key): value for entry in entries for key, value in entry.items()}


def _table(rows: object, width: int) -> list[str]:
    pairs: list[tuple[str, str]] = list(rows)  # type: ignore[call-overload]
    left = min(max(len(name) for name, _ in pairs), 46)
    lines: list[str] = []
    for name, text in pairs:
        room = max(width - left - 8, 20)
        wrapped = textwrap.wrap(text, room) or [""]
        lines.append(f"    {name.ljust(left)}  {wrapped[0]}".rstrip())
        lines += [f"    {' ' * left}  {rest}" for rest in wrapped[1:]]
    return lines
