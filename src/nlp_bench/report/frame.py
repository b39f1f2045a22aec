"""The report as a pandas data frame with the right types, for notebooks: the same columns and values as the CSV."""

from typing import TYPE_CHECKING, Any

from nlp_bench.report.table import Report

if TYPE_CHECKING:
    import pandas as pd


def frame(report: Report) -> "pd.DataFrame":
    """Return one row per run; counts are Int64, other numbers Float64, texts string, and what is missing is pandas.NA."""
    import pandas as pd  # noqa: PLC0415  # heavy

    rows = report.rows()
    columns = {name: [row[name] for row in rows] for name in report.columns}
    typed = {name: pd.array(values, dtype=_dtype(values)) for name, values in columns.items()}
    made: pd.DataFrame = pd.DataFrame(typed)
    return made


def _dtype(values: list[Any]) -> Any:
    known = [value for value in values if value is not None]
    if known and all(isinstance(value, bool) for value in known):
        return "boolean"
    if known and all(isinstance(value, int) for value in known):
        return "Int64"
    return "Float64" if known and all(isinstance(value, int | float) for value in known) else "string"
