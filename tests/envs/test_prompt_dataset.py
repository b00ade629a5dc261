"""A user's own prompts, from JSONL, Parquet and a datasets folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from composer_rl.envs.prompt_dataset import PromptDataset
from composer_rl.errors import ConfigError

ROWS: list[dict[str, Any]] = [{"prompt": f"add {i}", "answer": i} for i in range(200)]


def write(tmp_path: Path, kind: str, rows: list[dict[str, Any]]) -> Path:
    if kind == "jsonl":
        path = tmp_path / "rows.jsonl"
        path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    elif kind == "parquet":
        import pyarrow
        import pyarrow.parquet

        path = tmp_path / "rows.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        import datasets

        path = tmp_path / "saved"
        datasets.Dataset.from_list(rows).save_to_disk(str(path))
    return path


def opened(path: Path, **settings: Any) -> PromptDataset:
    env = PromptDataset(path=path, **settings)
    env.open(None)  # type: ignore[arg-type]  # a dataset runs no code
    return env


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "folder"])
def test_every_format_gives_the_same_tasks(tmp_path: Path, kind: str) -> None:
    env = opened(write(tmp_path, kind, ROWS), heldout_fraction=0.2)
    train, heldout = env.tasks("train"), env.tasks("heldout")
    assert len(train) + len(heldout) == 200
    assert 20 <= len(heldout) <= 60
    assert not {task.task_id for task in train} & {task.task_id for task in heldout}
    assert train[0].prompt == [{"role": "user", "content": f"add {train[0].payload['answer']}"}]
    reference = opened(write(tmp_path, "jsonl", ROWS), heldout_fraction=0.2)
    assert [task.task_id for task in train] == [task.task_id for task in reference.tasks("train")]


def test_an_own_heldout_file_is_removed_from_training(tmp_path: Path) -> None:
    path = write(tmp_path, "jsonl", ROWS)
    heldout = tmp_path / "heldout.jsonl"
    heldout.write_text(json.dumps(ROWS[3]) + "\n")
    env = opened(path, heldout_path=heldout)
    assert len(env.tasks("train")) == 199
    assert len(env.tasks("heldout")) == 1


def test_messages_and_system_prompt(tmp_path: Path) -> None:
    rows = [
        {"q": [{"role": "user", "content": "a"}]},
        {"q": [{"role": "system", "content": "own"}, {"role": "user", "content": "b"}]},
        {"q": [{"role": "user", "content": "a"}]},
    ]
    env = opened(write(tmp_path, "jsonl", rows), prompt_column="q", system_prompt="be brief", heldout_fraction=0.0)
    prompts = [task.prompt for task in env.tasks("train")]
    assert len(prompts) == 2, "the repeated row is one task"
    assert prompts[0][0] == {"role": "system", "content": "be brief"}
    assert prompts[1][0] == {"role": "system", "content": "own"}


def test_an_answer_ends_the_episode_without_a_grade(tmp_path: Path) -> None:
    env = opened(write(tmp_path, "jsonl", ROWS))
    assert not env.grades
    (result,) = env.step([env.start(env.tasks("train")[0])], ["42"])
    assert result.done
    assert result.observation is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"prompt": "a"}\nnot json\n', "line 2: not JSON"),
        ('["a"]\n', "line 1: must be an object"),
        ('{"question": "a"}\n', "no column 'prompt'"),
        ('{"prompt": 3}\n', "must be a string or a non-empty list"),
        ('{"prompt": []}\n', "must be a string or a non-empty list"),
        ('{"prompt": [{"role": "user"}]}\n', "must be a string or a non-empty list"),
        ("", "no training prompt"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        opened(path, heldout_fraction=0.0)


def test_places_are_lines_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a"}\n\n\n{"prompt": "b"}\n')
    env = opened(path, heldout_fraction=0.0)
    assert [env.describe(task) for task in env.tasks("train")] == [f"{path}, line 1", f"{path}, line 4"]


def test_a_row_without_a_column_that_others_have_holds_none(tmp_path: Path) -> None:
    path = write(tmp_path, "jsonl", [{"prompt": "a"}, {"prompt": "b", "answer": 1}])
    heldout = tmp_path / "heldout.jsonl"
    heldout.write_text('{"prompt": "c", "source": "d"}\n')
    env = opened(path, heldout_path=heldout)
    payloads = [task.payload for split in ("train", "heldout") for task in env.tasks(split)]
    assert payloads == [
        {"answer": None, "source": None},
        {"answer": 1, "source": None},
        {"answer": None, "source": "d"},
    ]
    assert env.columns == {"answer", "source"}


def test_damaged_files_are_one_error(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(ConfigError, match="not a Parquet file"):
        opened(tmp_path / "x.parquet")
    folder = write(tmp_path, "folder", ROWS)
    (next(folder.glob("*.arrow"))).write_bytes(b"cut")
    with pytest.raises(ConfigError, match="not a folder written by"):
        opened(folder)


def test_bad_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="path must exist"):
        PromptDataset(path=tmp_path / "absent.jsonl")
    path = write(tmp_path, "jsonl", ROWS)
    with pytest.raises(ValueError, match="heldout_fraction must be in"):
        PromptDataset(path=path, heldout_fraction=1.0)
    with pytest.raises(ValueError, match="max_turns must be 1"):
        PromptDataset(path=path, max_turns=2)
    (tmp_path / "x.csv").write_text("a")
    with pytest.raises(ConfigError, match="unknown kind of file"):
        opened(tmp_path / "x.csv")
