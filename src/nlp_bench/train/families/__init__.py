"""The kinds of networks that can be trained; each is a file here, and nothing else in the trainer tells them apart."""

from nlp_bench.train.families.family import Family
from nlp_bench.train.settings import Settings


def family_of(settings: Settings) -> Family:
    """Return the family that the settings name."""
    if settings.model_family == "t5":
        from nlp_bench.train.families.t5 import T5  # noqa: PLC0415  # only what is trained is imported

        return T5()
    if settings.model_family == "bert":
        from nlp_bench.train.families.bert import Bert  # noqa: PLC0415

        return Bert()
    from nlp_bench.train.families.gpt import Gpt  # noqa: PLC0415

    return Gpt()
