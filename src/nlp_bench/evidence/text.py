"""A bundle and its verification as text."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from nlp_bench.escape import one_line
from nlp_bench.evidence.make import Made
from nlp_bench.evidence.manifest import Manifest, place_of
from nlp_bench.evidence.verify import Verification
from nlp_bench.outcome import Outcome
from nlp_bench.seal import State
from nlp_bench.show.table import Column, as_text, fact, json_text

NOT_PROVEN = (
    "not proven by this: who measured, on which machine, and that the log as a whole is genuine; "
    "compare the digest with the one in the bid, and see docs/evidence.md"
)
_line = partial(fact, width=10)
MAX_REPEATED = 3  # differences that are listed of a file that repeats the report's


def made_text(made: Made) -> str:
    """Return what was made, and the line for the bid."""
    size = sum(file.size for file in made.manifest.files)
    lines = [
        f"{made.path}: {len(made.manifest.runs)} run(s), {len(made.manifest.files)} files, {size} bytes unpacked",
        _line("options", one_line(made.manifest.options.text())),
        *_runs([{"path": m.path, "name": m.name, "numbers": m.numbers} for m in made.manifest.runs]),
    ]
    lines += [_line("signature", str(made.signature))] if made.signature else []
    lines += ["put this line into the bid:", f"  nlp-bench evidence, SHA-256 of manifest.json: {made.digest}"]
    return "\n".join(lines) + "\n"


def made_talk(made: Made) -> Iterator[str]:
    """Yield what the maker should look at before handing the bundle over."""
    for redaction in made.manifest.redactions:
        yield f"blacked out: {place_of(redaction)}"
    yield from made.remarks
    unknown = sum(entry.outcome is Outcome.UNKNOWN for entry in made.entries)
    ended = sum(not entry.has_number for entry in made.entries) - unknown
    if ended:
        yield f"{ended} of {len(made.entries)} run(s) have no number: the bundle proves how they ended"
    if unknown:
        yield f"{unknown} of {len(made.entries)} run(s) have not ended, or left no record of it: the bundle does not prove how they end"


def redactions_text(manifest: Manifest, *, is_json: bool) -> str:
    """Return a row for each redacted line, by the name of the file that the bundle was made from; as JSON one entry per file and rule."""
    found = [{**redaction, "file": _original(manifest, redaction["file"])} for redaction in manifest.redactions]
    if is_json:
        return json_text({"schema": "nlp-bench/redactions/1", "redactions": found})
    rows = [(entry["file"], str(line), entry["kind"]) for entry in found for line in entry["lines"]]
    cut = [(entry, entry["count"] - len(entry["lines"])) for entry in found]
    rows += [(entry["file"], f"{more} more", entry["kind"]) for entry, more in cut if more]
    if not rows:
        return "nothing is blacked out\n"
    file, line, rule = zip(*rows, strict=True)
    columns = [Column(heading="file", cells=file, is_text=True), Column(heading="line", cells=line)]
    return "\n".join([*as_text([*columns, Column(heading="rule", cells=rule, is_text=True)]), ""])


def _original(manifest: Manifest, path: str) -> str:
    for member in manifest.runs:
        if f"{path}/".startswith(f"{member.path}/"):
            return member.name + path[len(member.path) :]
    return path


def verification_text(found: Verification) -> str:
    """Return the verdict, each fault, and what a verdict does not prove."""
    verdict = "VERIFIED" if found.is_verified else "DIFFERS"
    lines = [f"{found.bundle}: {verdict}", _line("digest", found.digest)]
    lines.append(_line("options", one_line(found.options.text())))
    if found.faults:
        lines += _faults("files", "not as recorded:", found.faults)
    else:
        lines.append(_line("files", f"{found.num_files} hashes, all as recorded"))
    lines += _numbers(found)
    if found.contradictions:
        lines += _faults("log lines", "some contradict others:", found.contradictions)
    elif found.num_lines:
        lines.append(_line("log lines", f"{found.num_lines} records agree with themselves and with each other"))
    lines += _chain(found)
    if found.signature:
        word = "good" if found.signature.is_good else f"NOT GOOD: {one_line(found.signature.path)}"
        lines.append(_line("signature", f"{word}: {found.signature.text}"))
    lines += _runs(found.runs) if found.is_verified else []
    lines += [_line("note", one_line(remark)) for remark in found.remarks]
    return "\n".join([*lines, f"  {NOT_PROVEN}"]) + "\n"


def _faults(name: str, what: str, faults: Sequence[str]) -> list[str]:
    return [_line(name, what), *(f"    {one_line(fault)}" for fault in faults)]


def _numbers(found: Verification) -> list[str]:
    """Return what differs: all of the report, of the other files only how much, as they repeat it."""
    if not found.differences:
        return [_line("numbers", f"{found.num_fields} fields derived again from the logs, all the same")]
    lines: list[str] = []
    for name, differences in found.differences.items():
        if lines and len(differences) > MAX_REPEATED:
            lines.append(_line("numbers", f"{name}: {len(differences)} likewise; all of them: --format json"))
        else:
            lines += _faults("numbers", f"{name} does not follow from the logs:", differences)
    return lines


def _chain(found: Verification) -> list[str]:
    """Return which link broke; else what is sealed, and what is not."""
    if found.broken_links:
        return _faults("chain", "is broken:", found.broken_links)
    lines = []
    for path, findings in found.chain.items():
        by_state = {state: [f.link.value for f in findings if f.state is state] for state in State}
        parts = [f"{len(by_state.pop(State.HOLDS))} link(s) hold"]
        parts += [f"{state.value}: {', '.join(names)}" for state, names in by_state.items() if names]
        lines.append(_line("chain", f"{path}: {'; '.join(parts)}"))
    return lines


def _runs(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for run in runs:
        for numbers in run["numbers"]:
            rates, times = numbers["tokens_per_second"], numbers["time_to_report_s"]
            known = [kind for kind in ("steady", "reference") if rates[kind] is not None]
            shown = [f"{kind} {rates[kind]:.2f} tokens/s, {times[kind]:.2f} s" for kind in known]
            lines.append(f"  {run['path']} ({run['name']}): {one_line('; '.join([numbers['outcome'], *shown]))}")
    return lines
