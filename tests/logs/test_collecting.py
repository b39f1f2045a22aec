"""Lines of unknown programs while they are collected."""

from nlp_bench.logs.scan import Line
from nlp_bench.logs.unknown.collecting import Collector
from nlp_bench.logs.unknown.shapes import CUT


def test_what_follows_a_line_is_asked_for_at_once() -> None:
    is_gone = False

    def following(count: int) -> list[bytes]:
        assert not is_gone, "the buffer may hold another block by now"
        return [b"5 and so on"][:count]

    found = Collector()
    found.take(Line(1, 0, b"step 1 | loss 2.31 | lr 1.0e-04", True, following))
    found.take(Line(2, 40, b"tok/s 25600", True, following))
    is_gone = True
    found.close()
    (shape,) = found.shapes.values()
    assert shape.places[:, 3].tolist() == [CUT]
