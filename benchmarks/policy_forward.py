"""Forward and backward of the policy loss: `compact_forward` against TRL's forward of whole rows, in one run.

    python benchmarks/policy_forward.py                  # the embedded model and a random Qwen3 of 4 layers x 256
    python benchmarks/policy_forward.py --prompt 400     # longer prompts

Both score the same completions with TRL's fused head and run the same backward; the largest difference of a log-prob
and of a gradient (relative to the largest entry of that tensor) is shown beside the seconds. The rows are shaped like
those of the embedded testbed: `single` has one short answer a row, `episodes` goes on for some rows, up to three
turns. Rounds are interleaved and the median is taken.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from trl.trainer.utils import add_fused_lm_head

from composer_rl.models.tiny import TinyModel
from composer_rl.runtime import Runtime
from composer_rl.trainer.compact_forward import CompactForward, TokenScores

Rows = tuple[Tensor, Tensor, int]
"""(input_ids, attention_mask, C): each (B, P + C), prompts padded on the left, completions on the right."""


def qwen3() -> Any:
    """A random Qwen3 with grouped keys and values."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=8000,
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=64,
        )
    )


def rows(*, prompt: int, prompts: int, samples: int, turns: int, seed: int = 0) -> Rows:
    """Groups of samples in a shuffled order, as TRL's buffer has them."""
    generator = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int, size: tuple[int, ...]) -> Tensor:
        return torch.randint(low, high, size, generator=generator)

    count = prompts * samples
    lengths = draw(11, 20, (count,))
    for _ in range(turns - 1):
        lengths += (torch.rand(count, generator=generator) < 0.4) * draw(30, 60, (count,))
    width = int(lengths.max())
    ids = torch.zeros(count, prompt + width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for group, given in enumerate(draw(prompt * 2 // 3, prompt + 1, (prompts,)).tolist()):
        text = draw(3, 600, (given,))
        for row in range(group * samples, (group + 1) * samples):
            end = prompt + int(lengths[row])
            ids[row, prompt - given : prompt] = text
            ids[row, prompt:end] = draw(3, 600, (int(lengths[row]),))
            mask[row, prompt - given : end] = 1
    order = torch.randperm(count, generator=generator)
    return ids[order], mask[order], width


def whole_rows(model: Any, ids: Tensor, mask: Tensor, width: int) -> TokenScores:
    """As GRPOTrainer of TRL 1.16 scores a batch."""
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :-width] = -100
    output = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    return TokenScores(output.log_probs[:, -width:], output.entropy[:, -width:])


def compare(model: Any, batch: Rows, rounds: int) -> tuple[dict[str, float], float, float]:
    """Median seconds of both, largest difference of a log-prob (nats) and relative one of a gradient."""
    contenders: dict[str, Callable[..., TokenScores]] = {"TRL": whole_rows, "compact": CompactForward(model)}
    weights = torch.randn(len(batch[0]), batch[2], generator=torch.Generator().manual_seed(1))
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    scores: dict[str, Tensor] = {}
    gradients: dict[str, list[Tensor]] = {}
    for _ in range(rounds + 1):
        for name, forward in contenders.items():
            model.zero_grad()
            start = time.perf_counter()
            found = forward(model, *batch).logprobs
            (found * weights).sum().backward()
            seconds[name].append(time.perf_counter() - start)
            scores[name] = found.detach()
            gradients[name] = [parameter.grad.clone() for parameter in model.parameters()]
    difference = max(
        float((a - b).abs().max() / a.abs().max().clamp(min=1e-12)) for a, b in zip(*gradients.values(), strict=True)
    )
    median = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    return median, float((scores["TRL"] - scores["compact"]).abs().max()), difference


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", type=int, default=48, help="longest prompt, tokens")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    Runtime().apply(0)
    table = Table("model", "rows", "TRL s", "compact s", "ratio", "log-prob diff", "gradient diff")
    for name, model in (("tiny", TinyModel().load("cpu")[0]), ("qwen3 4x256", qwen3())):
        add_fused_lm_head(model, outputs=("log_probs", "entropy"))
        for shape, turns in (("single", 1), ("episodes", 3)):
            batch = rows(prompt=arguments.prompt, prompts=arguments.prompts, samples=arguments.samples, turns=turns)
            seconds, logprob, gradient = compare(model, batch, arguments.rounds)
            ratio = seconds["TRL"] / seconds["compact"]
            shown = [f"{value:.3f}" for value in seconds.values()]
            table.add_row(name, shape, *shown, f"{ratio:.1f}x", f"{logprob:.1e}", f"{gradient:.1e}")
    Console().print(table)


if __name__ == "__main__":
    main()
