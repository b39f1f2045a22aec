"""docs/systems.md lists every key of a system file. After a change: NLP_BENCH_WRITE_DOCS=1 pytest tests/config/test_systems_page.py."""

import dataclasses
import typing

from support.pages import ROOT, check_part

from nlp_bench.config.options import field_texts
from nlp_bench.config.system import System


def _default(field: "dataclasses.Field[object]") -> str:
    default = field.metadata.get("default", field.default)
    if default is dataclasses.MISSING:
        return "" if field.default_factory is dataclasses.MISSING else "none"
    if default in {None, "", ()}:
        return "none"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _rows(kind: type) -> list[str]:
    texts = field_texts(kind)
    rows = ["| key | default | what it says |", "|---|---|---|"]
    for field in dataclasses.fields(kind):
        if not _tables(typing.get_type_hints(kind)[field.name]) and (kind, field.name) != (System, "name"):
            text = " ".join(texts[field.name].split()).replace("|", "\\|")
            rows.append(f"| `{field.name}` | {_default(field)} | {text} |")
    return rows


def _tables(hint: object) -> list[type]:
    return [
        kind for kind in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(kind) and isinstance(kind, type)
    ]


def test_the_page_lists_every_key() -> None:
    lines = ["", *_rows(System)]
    for name, hint in typing.get_type_hints(System).items():
        for kind in _tables(hint):
            heading = f"[{name}.MODEL]" if typing.get_origin(hint) is dict else f"[{name}]"
            lines += ["", f"## `{heading}`", "", " ".join((kind.__doc__ or "").split()), "", *_rows(kind)]
    check_part(ROOT / "docs/systems.md", "keys", "\n".join(lines) + "\n\n")
