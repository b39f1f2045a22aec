"""The training data of the run."""

from nlp_bench.doctor.finding import Finding, failed, ok, skipped
from nlp_bench.doctor.place import Place
from nlp_bench.errors import NlpBenchError
from nlp_bench.launch.arguments import check_arguments


def check(place: Place) -> Finding:
    """Hold the files against their index, the index against itself, and both against the tokenizer, as `submit` does."""
    if place.run is None:
        return skipped("no run, so no data (see system)")
    if not place.run.data.path:
        return skipped("mock data need no file")
    remedy = "nlp-bench data" if place.run.data.invented else "nlp-bench data prepare; or name others with --data-path"
    try:
        check_arguments(place.run, files=True)
    except NlpBenchError as error:
        return failed(str(error), remedy=remedy)
    prefixes = [word for word in place.run.data.words if not word.replace(".", "").isdigit()]
    return ok(f"{len(prefixes)} pair(s) of .bin and .idx are whole", *prefixes)
