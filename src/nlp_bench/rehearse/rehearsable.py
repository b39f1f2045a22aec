"""Settings as a rehearsal can run them: torch's own kernels, no files. No torch here."""

from dataclasses import replace

from nlp_bench.errors import UsageError
from nlp_bench.train.settings import Settings

INSTEAD = "torch's own kernels are rehearsed: {}'s need a GPU even to be imported; their memory differs a little"


def rehearsable(settings: Settings) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings that are rehearsed in place of these, and what differs, in sentences.

    Raises UsageError for what only Transformer Engine does and what would change memory or communication without a word.
    """
    for name, wrong in (
        ("fp8_format", settings.fp8_format),
        ("cp_comm_type", settings.cp_comm_type != "all_gather" and settings.context_parallel_size > 1),
    ):
        if wrong:
            said = f"{name}: {getattr(settings, name)} is Transformer Engine's"
            raise UsageError(f"{said}, whose kernels need a GPU and cannot be rehearsed; leave it out")
    notes = []
    asked = {"te": "Transformer Engine", "apex": "Apex"}.get(settings.wanted_kernels)
    if asked:
        notes.append(INSTEAD.format(asked))
    if settings.tp_comm_overlap:
        notes.append("tp_comm_overlap is left out: it is Transformer Engine's")
    if settings.short_seq_prob:
        notes.append("short_seq_prob is left out: samples are not padded, and attention has no mask")
    replaced = replace(
        settings, kernels="torch", transformer_impl=None, tp_comm_overlap=False, short_seq_prob=0.0, mock_data=True,
        data_path=(), load=None, save=None,
    )  # fmt: skip
    return replaced, tuple(notes)
