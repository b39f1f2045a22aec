"""Reports and logged lines as pandas data frames with the right types, for notebooks: the same columns and values as the CSV."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from nlp_bench.measure.rows import MEANING, Record
from nlp_bench.packages import lacking
from nlp_bench.report.report import Report

if TYPE_CHECKING:
    import pandas as pd

_DTYPES = {"str": "string", "str | None": "string", "bool": "bool", "int": "int64", "int | None": "Int64"}
"""Of the columns of logged lines, by their annotation; the others are float64, with NaN where they are missing, as plots want them."""


def frame(report: Report) -> "pd.DataFrame":
    """Return one row per run; counts are Int64, other numbers Float64, texts string, and what is missing is pandas.NA."""
    texts = {name: "string" for name, field in report.fields.items() if field.is_text}
    return typed_frame(report.fields, report.rows(), texts)


def records_frame(records: Sequence[Record]) -> "pd.DataFrame":
    """Return one row per logged line."""
    types = {field.name: str(getattr(field.type, "__name__", field.type)) for field in fields(Record)}
    rows = [{name: getattr(record, name) for name in MEANING} for record in records]
    return typed_frame(MEANING, rows, {name: _DTYPES.get(types[name], "float64") for name in MEANING})


def typed_frame(
    names: Iterable[str], rows: Sequence[Mapping[str, Any]], dtypes: Mapping[str, str] | None = None
) -> "pd.DataFrame":
    """Return `rows` with one type per column, as its values have it (Float64 where there is none) unless `dtypes` says.

    Raises NlpBenchError without pandas.
    """
    try:
        import pandas as pd  # noqa: PLC0415  # heavy
    except ImportError as error:
        raise (lacking(error, "a data frame") or error) from error
    columns = {name: [row[name] for row in rows] for name in names}
    series = {
        name: pd.Series(values, dtype=(dtypes or {}).get(name) or _dtype(values)) for name, values in columns.items()
    }
    made: pd.DataFrame = pd.DataFrame(series)
    return made


def _dtype(values: list[Any]) -> str:
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool) for value in known):
        return "boolean"
    if known and all(isinstance(value, int) for value in known):
        return "Int64"
    return "Float64" if all(isinstance(value, int | float) for value in known) else "string"
