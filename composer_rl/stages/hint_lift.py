"""What the content of a hint is worth: recoveries at fixed error sites under several hints.

At each site the policy answers once at the sampler's temperature, and the log-probability of the right answer is
taken. Conditions differ only in the hint, which stands as a user turn between the error and the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from composer_rl.envs.error_sites import ErrorSite, ReplayedSite, replay
from composer_rl.errors import ConfigError
from composer_rl.rollouts.splice import TurnRenderer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from composer_rl.envs.base import Environment
    from composer_rl.hints.base import HintGenerator
    from composer_rl.rollouts.sampler import BatchedSampler

ROWS_PER_BATCH = 128
"""Sites in one forward pass."""


@dataclass(frozen=True, kw_only=True)
class SiteOutcome:
    """One site under one condition."""

    kind: str
    """Error kind of the site."""
    solved: bool
    """Whether the sampled recovery solved the task."""
    logprob: float
    """Log-probability (nats) of the right recovery, its end-of-turn token included."""
    hinted: bool
    """Whether the generator had a hint for this site."""


def measure_hint_lift(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    env: Environment,
    sites: Sequence[ErrorSite],
    hints: Mapping[str, HintGenerator],
    sampler: BatchedSampler,
    *,
    max_new_tokens: int,
) -> dict[str, list[SiteOutcome]]:
    """Outcomes of every site, in order, for each condition of `hints` (name -> generator).

    Args:
        env: open, and with a method `gold_action(task)` that gives the answer solving a task.
        sampler: its stop ids are those of a TurnRenderer of `tokenizer`.

    Raises ConfigError when the environment knows no right answers, or the sites are not its own.
    """
    if not hasattr(env, "gold_action"):
        raise ConfigError(f"hint_lift needs an environment with gold_action(task); {type(env).__name__} has none")
    renderer = TurnRenderer(tokenizer)
    replayed = replay(env, sites)
    closing = renderer.facts.closing_ids
    gold = [[*tokenizer(env.gold_action(site.task), add_special_tokens=False)["input_ids"], *closing] for site in sites]
    outcomes: dict[str, list[SiteOutcome]] = {}
    for name, generator in hints.items():
        texts = [generator.generate(site.error.kind, site.error.meta) for site in replayed]
        contexts = [
            renderer.prompt_ids(site.messages if text is None else [*site.messages, {"role": "user", "content": text}])
            for site, text in zip(replayed, texts, strict=True)
        ]
        solved = _recover(model, renderer, env, replayed, contexts, sampler, max_new_tokens)
        logprobs = answer_logprobs(model, contexts, gold)
        outcomes[name] = [
            SiteOutcome(kind=site.error.kind, solved=hit, logprob=logprob, hinted=text is not None)
            for site, hit, logprob, text in zip(replayed, solved, logprobs, texts, strict=True)
        ]
    return outcomes


def lift_metrics(outcomes: Mapping[str, Sequence[SiteOutcome]]) -> dict[str, float]:
    """Flat figures: `hint_lift/<condition>/...` over all sites, `hint_lift/<kind>/<condition>/...` by error kind."""
    metrics: dict[str, float] = {}
    for name, rows in outcomes.items():
        metrics |= _figures(f"hint_lift/{name}", rows)
        for kind in sorted({row.kind for row in rows}):
            metrics |= _figures(f"hint_lift/{kind}/{name}", [row for row in rows if row.kind == kind])
    return metrics


def _figures(prefix: str, rows: Sequence[SiteOutcome]) -> dict[str, float]:
    return {
        f"{prefix}/solve_rate": sum(row.solved for row in rows) / len(rows),
        f"{prefix}/recovery_logprob": sum(row.logprob for row in rows) / len(rows),
        f"{prefix}/num_sites": float(len(rows)),
    }


def _recover(
    model: PreTrainedModel,
    renderer: TurnRenderer,
    env: Environment,
    replayed: Sequence[ReplayedSite],
    contexts: Sequence[Sequence[int]],
    sampler: BatchedSampler,
    max_new_tokens: int,
) -> list[bool]:
    """Whether one sampled answer a site solves its task."""
    answers: list[list[int]] = []
    for start in range(0, len(contexts), ROWS_PER_BATCH):
        part = contexts[start : start + ROWS_PER_BATCH]
        with sampler.session(model) as session:
            session.start(part, [1] * len(part), capacity=max_new_tokens)
            answers += [turn.ids for turn in session.sample([max_new_tokens] * len(part))]
    results = env.step([site.fork() for site in replayed], renderer.texts(answers))
    return [result.reward >= 1.0 for result in results]


@torch.no_grad()
def answer_logprobs(
    model: PreTrainedModel, contexts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
) -> list[float]:
    """Summed log-probability (nats, temperature 1) of each answer's ids given the ids of its context."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    values: list[float] = []
    for start in range(0, len(contexts), ROWS_PER_BATCH):
        part = slice(start, start + ROWS_PER_BATCH)
        rows = [[*context, *answer] for context, answer in zip(contexts[part], answers[part], strict=True)]
        width = max(map(len, rows))
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        mask = torch.zeros(len(rows), width, dtype=torch.long)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = torch.tensor(row)
            mask[index, : len(row)] = 1
        logits = model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits[:, :-1].float()
        logprobs = logits.log_softmax(-1).gather(-1, ids[:, 1:, None].to(device))[..., 0].cpu()
        for index, (context, answer) in enumerate(zip(contexts[part], answers[part], strict=True)):
            first = len(context) - 1
            values.append(float(logprobs[index, first : first + len(answer)].sum()))
    model.train(was_training)
    return values
