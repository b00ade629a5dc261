"""A tokenizer, chat templates and an environment that are small enough to reason about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from composer_rl.types import StepResult, Task, ToolError

SPECIALS = (
    "<|pad|>",
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|start|>",
    "<|head|>",
    "<|eot|>",
    "<|begin|>",
)

CHATML = """\
{%- for message in messages -%}
{%- if message['role'] == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1]['role'] != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}
{{- '\\n<tool_response>\\n' + message['content'] + '\\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1]['role'] != 'tool' -%}{{- '<|im_end|>\\n' -}}{%- endif -%}
{%- else -%}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""
"""As Qwen writes: tool results share one user turn, and a newline follows the end of every turn."""

CHATML_FORGETTING = CHATML.replace(
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content']",
    "{{- '<|im_start|>' + message['role'] + '\\n'"
    " + ('<think>\\n\\n</think>\\n\\n' if loop.last and message['role'] == 'assistant' else '') + message['content']",
)
"""As Qwen3 does: an empty thought stands before the last answer and vanishes once another turn follows."""

HEADERS = """\
{{- '<|begin|>' -}}
{%- for message in messages -%}
{{- '<|start|>' + message['role'] + '<|head|>\\n\\n' + message['content'] | trim + '<|eot|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start|>assistant<|head|>\\n\\n' -}}{%- endif -%}
"""
"""As Llama 3 writes: a header for every role, contents trimmed, nothing after the end of a turn."""

NO_TOOLS = """\
{%- for message in messages -%}
{%- if message['role'] not in ('user', 'assistant') -%}{{ raise_exception('unknown role') }}{%- endif -%}
{%- set is_even = loop.index0 % 2 == 0 -%}
{%- if (message['role'] == 'user') != is_even -%}{{ raise_exception('roles must alternate') }}{%- endif -%}
{{- '<|start|>' + message['role'] + '\\n' + message['content'] + '<|eot|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start|>assistant\\n' -}}{%- endif -%}
"""
"""As Gemma writes: no tool role, and user and assistant must alternate."""

TEMPLATES = {"chatml": CHATML, "headers": HEADERS, "no_tools": NO_TOOLS}


@lru_cache(maxsize=1)
def _core() -> str:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=[AddedToken(piece, special=True, normalized=False) for piece in SPECIALS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(["the tool tool_response user assistant value error returned tests"] * 20, trainer)
    return core.to_str()


def build_tokenizer(template: str, *, eos: str = "<|im_end|>", pad: str | None = None) -> Any:
    """A byte-level BPE tokenizer; by default the pad token is the end token."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_core()),
        eos_token=eos,
        pad_token=pad or eos,
        additional_special_tokens=[piece for piece in SPECIALS if piece != eos],
        padding_side="left",
    )
    tokenizer.chat_template = template
    return tokenizer


@dataclass
class ToyEpisode:
    task: Task
    actions: list[str] = field(default_factory=list)


@dataclass
class ToyEnvironment:
    """Solved by an answer whose length is divisible by `modulus`; otherwise a tool turn reports the length."""

    max_turns: int = 3
    modulus: int = 4
    batches: list[int] = field(default_factory=list)
    """Sizes of the batches that were stepped."""

    def start(self, task: Task) -> ToyEpisode:
        return ToyEpisode(task=task)

    def step(self, episodes: Sequence[ToyEpisode], actions: Sequence[str]) -> list[StepResult]:
        self.batches.append(len(episodes))
        results = []
        for episode, action in zip(episodes, actions, strict=True):
            episode.actions.append(action)
            if len(action) % self.modulus == 0:
                results.append(StepResult(reward=1.0, done=True))
                continue
            done = len(episode.actions) >= self.max_turns
            text = f"error: {len(action)}" + " again" * (len(action) % 5)
            results.append(
                StepResult(
                    reward=0.25,
                    done=done,
                    observation=None if done else {"role": "tool", "content": text},
                    error=ToolError(kind="type_error", message=text, meta={"length": len(action)}),
                )
            )
        return results


def toy_tasks(count: int) -> list[Task]:
    """Tasks with prompts of different lengths."""
    return [
        Task(task_id=f"task-{i}", prompt=[{"role": "user", "content": f"Write {i}" + " more" * i}])
        for i in range(count)
    ]
