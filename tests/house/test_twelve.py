"""What CONTRIBUTING.md says of new schedulers, as far as it can be seen without adding one."""

from nlp_bench.config.scheduler import BUILT_IN, LOCAL, get_scheduler


def test_a_scheduler_is_the_file_of_its_name() -> None:
    assert BUILT_IN[-1] == LOCAL
    assert {name: get_scheduler(name).name for name in BUILT_IN} == {name: name for name in BUILT_IN}
