"""Every command of the README runs (long ones for two steps), and its example component is the one that is tested."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from composer_rl.cli import main
from tests.stages.conftest import save_model

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```bash\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
COMMANDS = [
    line.partition(" #")[0].strip()
    for block in BLOCKS
    for line in block.splitlines()
    if line.startswith("python train")
]
FILES = dict(re.findall(r"^`(my_[\w/.]+)`\n```\w+\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL))

SHORT = {
    "stage=rl": ["max_steps=2", "stage.num_heldout=4"],
    "stage=sft": ["max_steps=2"],
    "evaluate=checkpoint": ["evaluate.num_tasks=4"],
    "evaluate=hint_lift": ["evaluate.num_sites=8"],
}
"""What makes a kind of command short without changing its road."""


ONE_ARM = {"po_presets": "po=dr_grpo", "learning_rate": "optim.learning_rate=0.001"}
"""What leaves one arm of a sweep file; tests/sweeps composes all of them."""


def short_sweep(words: list[str]) -> list[str]:
    """The words of a sweep with one seed, two steps, and one arm where a file has many."""
    files = [word.partition("=")[2] for word in words if word.startswith("multirun_sweeps=")]
    return [
        *(word for word in words if not word.startswith("seed=")),
        *(ONE_ARM[name] for name in files),
        *("seed=0", "max_steps=2", "stage.num_heldout=4", "rollout.prompts_per_rollout=2", "tracker=console"),
    ]


def shortened(command: str) -> list[str]:
    """Words of a documented command, with settings that make it short in front, so that its own ones win."""
    words = shlex.split(command)[2:]
    if "-m" in words:
        return short_sweep(words)
    kind = next((kind for kind in SHORT if kind in words), "stage=rl")
    own = {word.partition("=")[0] for word in words}
    extra = [word for word in [*SHORT[kind], "tracker=console"] if word.partition("=")[0] not in own]
    return [*words, *extra]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What the README's commands expect in the current folder: files of the user's own, and an earlier run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "my_lab" / "rewards.py").write_text(
        "def brevity(completions, **kwargs):\n    return [-len(c[-1]['content']) / 100 for c in completions]\n"
    )
    rows = [{"prompt": f"{x} {y}", "answer": y} for x in "abcd" for y in "abcd"]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "my_lab"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def hub_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stands where the README names a model of the hub."""
    return save_model(tmp_path_factory.mktemp("hub") / "model", "qwen3")


def local(words: list[str], hub_model: Path) -> list[str]:
    """The same words with a model that is on disk, and answers that are short."""
    if "model=hf" not in words:
        return words
    swapped = [f"model.name={hub_model}" if word.startswith("model.name=") else word for word in words]
    return [*swapped, "rollout.max_new_tokens=4", "rollout.max_tokens=4"]


def test_the_readme_has_commands_and_an_example() -> None:
    assert len(COMMANDS) >= 12
    assert {Path(name).suffix for name in FILES} == {".py", ".yaml"}


ORDINARY = [command for command in COMMANDS if "<date>" not in command]


@pytest.mark.slow
@pytest.mark.parametrize("command", ORDINARY)
@pytest.mark.usefixtures("workplace")
def test_command(command: str, hub_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = local(shortened(command), hub_model)
    if "--help" in words or "--cfg" in words:
        words = shlex.split(command)[2:]
    code = main(words)
    captured = capsys.readouterr()
    assert code == 0, captured.err


@pytest.mark.slow
def test_rerun_and_resume(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The two commands that need an earlier run, on one."""
    documented = [command for command in COMMANDS if "<date>" in command]
    assert len(documented) == 2
    first = workplace / "outputs" / "first"
    assert main([*shortened("python train.py"), "stage.save_every=1", f"hydra.run.dir={first}"]) == 0
    for command in documented:
        words = shlex.split(command.replace("outputs/<date>/<run>", str(first)))[2:]
        assert main(words) == 0, capsys.readouterr().err


def test_the_example_channel_adds_to_the_policy_loss(workplace: Path) -> None:
    """By hand: one imitated row of two tokens with probability 1/2 each gives 2 ln 2."""
    import math

    import torch
    from my_lab.imitate import Imitate  # type: ignore[import-not-found]

    class Coin(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> object:
            logits = torch.zeros(*input_ids.shape, 2, requires_grad=True)
            return type("Output", (), {"logits": logits})

    inputs = {
        "prompt_ids": torch.tensor([[0], [0]]),
        "prompt_mask": torch.ones(2, 1, dtype=torch.long),
        "completion_ids": torch.tensor([[1, 0, 1], [0, 1, 0]]),
        "completion_mask": torch.tensor([[1, 1, 1], [1, 1, 1]]),
        "tool_mask": torch.tensor([[1, 0, 1], [1, 1, 1]]),
        "advantages": torch.tensor([0.5, -0.5]),
    }
    channel = Imitate(weight=0.1)
    assert channel.num_active(inputs).item() == 2
    loss = channel.compute(Coin(), inputs).loss_sum
    assert loss.item() == pytest.approx(2 * math.log(2))
    assert loss.requires_grad
