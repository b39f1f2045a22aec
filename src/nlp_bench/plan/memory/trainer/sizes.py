"""Bytes of the tensors of one layer and one micro-batch on one rank of this package's trainer."""

from dataclasses import dataclass

import numpy as np

from nlp_bench.plan.configurations import Configurations, Flags, Numbers
from nlp_bench.plan.constants import Constants
from nlp_bench.plan.work.numbers import SINGLE, element_bytes, has_flash, keeps_scores, round_up
from nlp_bench.plan.work.products import key_width, query_width, seen, tokens

FLASH_ROWS, FLASH_WIDTH = 128, 32
"""To multiples of these flash attention 2 rounds queries and the width of heads (torch, flash_attn/flash_api.cpp, `mha_bwd`)."""
EFFICIENT_ROWS = 32
"""To a multiple of this the memory-efficient kernel rounds its logarithms (torch, meta_registrations.py)."""
INDEX = 8
"""Bytes of a token's number."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Bytes; arrays of shape [N] or []."""

    element: Numbers
    """Of a number of an activation."""
    tokens: Numbers
    """How many tokens a micro-batch has on a rank (a count, not bytes)."""
    stream: Numbers
    """The residual stream of a micro-batch, whole."""
    share: Numbers
    """A rank's part of it: under sequence parallelism divided by the tensor-parallel ranks, else whole."""
    split: Flags
    """Whether it is divided."""
    mask: Numbers
    """The mask of its dropout, one byte per number; 0 without dropout."""
    statistics: Numbers
    """Mean and deviation of a LayerNorm, or the deviation of an RMSNorm, in float32."""
    queries: Numbers
    """Queries of all local heads; the attention's output and its gradient have the same size."""
    keys: Numbers
    """Keys of all local heads; the values have the same size."""
    copied: Numbers
    """Queries that are copied because the heads of several groups lie apart; 0 where they lie together."""
    rotary: Flags
    """Whether queries and keys are rotated, which makes new tensors."""
    logarithms: Numbers
    """What the attention kernel keeps of the softmax: float32 logarithms of its sums."""
    workspace: Numbers
    """What its backward pass takes and gives back."""
    expanded: Numbers
    """What it takes besides for the gradients of keys and values that several heads share: one for each of these."""
    parts: Numbers
    """Context-parallel ranks (a count)."""
    scores: Numbers
    """The scores of all local heads, where no fused kernel applies; else 0."""
    scores_kept: Numbers
    """How many tensors of their size are kept: the softmax, and with dropout its mask and product (a count)."""
    bias: Numbers
    """The causal mask that is then added to the scores of every head; else 0."""
    joined: Numbers
    """Output of the first feed-forward product: of a gated one both branches."""
    inner: Numbers
    """Input of the second feed-forward product."""
    weights: tuple[Numbers, Numbers, Numbers, Numbers]
    """The gradients that autograd asks for though they are added elsewhere: of queries/keys/values, projection, first, second."""
    added: Flags
    """Whether the bias of queries, keys and values is added by an operator of its own."""


def sizes_of(c: Configurations, constants: Constants) -> Sizes:
    """Return the sizes; sources: those of the rehearsal (nlp_bench.rehearse, gpu_attention.py and gpu_norms.py) and megatron-core."""
    n, s, element, count = c.network, c.spread, element_bytes(c, constants), tokens(c)
    split = np.asarray(s.sequence_parallel & (s.tensor > 1))
    stream = count * n.hidden_size * element
    share = stream / np.where(split, s.tensor, 1)
    queries, keys = count * query_width(c) / s.tensor * element, count * key_width(c) / s.tensor * element
    grouped = n.num_query_groups != n.num_attention_heads
    apart = grouped & (n.num_query_groups > s.tensor)
    inner, branches = count * n.ffn_hidden_size / s.tensor * element, 1.0 + n.gated
    width, rows = n.hidden_size * element / s.tensor, n.sequence_length / s.context
    heads = s.micro_batch_size * n.num_attention_heads / s.tensor
    scores = rows * n.sequence_length * seen(c) * element * keeps_scores(c, constants)
    return Sizes(
        element=element,
        tokens=count,
        stream=stream,
        share=share,
        split=split,
        mask=share / element * n.dropout,
        statistics=share / element / n.hidden_size * SINGLE * (1.0 + n.norm_biases),
        queries=queries,
        keys=keys,
        copied=queries * apart,
        rotary=np.asarray(n.num_learned_positions == 0),
        logarithms=_logarithms(c, constants, heads, rows),
        workspace=_workspace(c, constants, heads, rows),
        expanded=2
        * keys
        * s.context
        * n.num_attention_heads
        / n.num_query_groups
        * (grouped & has_flash(c, constants)),
        parts=s.context,
        scores=heads * scores,
        scores_kept=np.where(n.dropout, 3.0, 1.0),
        bias=scores,
        joined=inner * branches,
        inner=inner,
        weights=(
            width * (query_width(c) + 2 * key_width(c)),
            width * query_width(c),
            width * n.ffn_hidden_size * branches,
            width * n.ffn_hidden_size,
        ),
        added=np.asarray(split & n.linear_biases),
    )


def _logarithms(c: Configurations, constants: Constants, heads: Numbers, rows: Numbers) -> Numbers:
    flash = has_flash(c, constants)
    kept = np.where(flash, rows, round_up(rows, EFFICIENT_ROWS))
    return SINGLE * heads * kept * ~keeps_scores(c, constants)


def _workspace(c: Configurations, constants: Constants, heads: Numbers, rows: Numbers) -> Numbers:
    """Flash attention: a float32 sum of the queries' gradient and a number per query."""
    rows = rows / np.where(c.spread.context > 1, 2, 1)
    sums = SINGLE * heads * round_up(rows, FLASH_ROWS) * (round_up(c.network.head_width, FLASH_WIDTH) + 1)
    return np.where(has_flash(c, constants), sums, 0.0)
