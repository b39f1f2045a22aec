"""What a person reads of a bundle and of its verification."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nlp_bench.bundle.make import Made
from nlp_bench.bundle.manifest import Manifest, place_of
from nlp_bench.bundle.verify import Verification
from nlp_bench.seal import State
from nlp_bench.show.escape import one_line
from nlp_bench.show.grid import Column, as_text, json_text

NOT_PROVEN = (
    "not proven by this: who measured, on which machine, and that the log as a whole is genuine; "
    "compare the digest with the one in the bid, and see docs/evidence.md"
)

MAX_REPEATED = 3
"""Differences of a file that repeats the report's."""


def made_text(made: Made) -> str:
    """Return what was made, and the line for the bid."""
    size = sum(file.size for file in made.manifest.files)
    lines = [f"{made.path}: {len(made.manifest.runs)} run(s), {len(made.manifest.files)} files, {size} bytes unpacked"]
    lines.append(_line("options", one_line(made.manifest.options.told())))
    for member in made.manifest.runs:
        lines += [f"  {member.path} ({member.name}): {words}" for words in map(numbers_text, member.numbers)]
    lines += [_line("signature", str(made.signature))] if made.signature else []
    lines += ["put this line into the bid:", f"  nlp-bench evidence, SHA-256 of manifest.json: {made.digest}"]
    return "\n".join(lines) + "\n"


def made_talk(made: Made) -> Iterator[str]:
    """Yield what the maker should look at before handing the bundle over."""
    for redaction in made.manifest.redactions:
        yield f"blacked out: {place_of(redaction)}"
    yield from made.remarks
    without = sum(not entry.has_number for entry in made.entries)
    if without:
        yield f"{without} of {len(made.entries)} run(s) have no number: the bundle proves how they ended"


def redactions_text(manifest: Manifest, *, is_json: bool) -> str:
    """Return a row for each line that was blacked out, by the name of the file that the bundle was made from; as JSON one entry per file and rule."""
    found = [{**redaction, "file": _original(manifest, redaction["file"])} for redaction in manifest.redactions]
    if is_json:
        return json_text({"schema": "nlp-bench/redactions/1", "redactions": found})
    rows = [(entry["file"], str(line), entry["kind"]) for entry in found for line in entry["lines"]]
    rows += [
        (entry["file"], f"{more} more", entry["kind"])
        for entry in found
        if (more := entry["count"] - len(entry["lines"]))
    ]
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


def numbers_text(numbers: Mapping[str, Any]) -> str:
    """Return outcome and numbers of one run in a line."""
    rates, times = numbers["tokens_per_second"], numbers["time_to_report_s"]
    said = [
        f"{kind} {rates[kind]:.2f} tokens/s, {times[kind]:.2f} s"
        for kind in ("steady", "reference")
        if rates[kind] is not None
    ]
    return one_line("; ".join([numbers["outcome"], *said]))


def verification_text(found: Verification) -> str:
    """Return the verdict, each fault, and what a verdict does not prove."""
    lines = [f"{found.bundle}: {'VERIFIED' if found.is_verified else 'DIFFERS'}", _line("digest", found.digest)]
    lines.append(_line("options", one_line(found.options.told())))
    lines += _files(found)
    lines += _numbers(found)
    lines += _log_lines(found)
    lines += _chain(found)
    lines += _signature(found)
    for run in found.runs if found.is_verified else ():
        lines += [f"  {run['path']} ({run['name']}): {numbers_text(numbers)}" for numbers in run["numbers"]]
    lines += [_line("note", one_line(remark)) for remark in found.remarks]
    return "\n".join([*lines, f"  {NOT_PROVEN}"]) + "\n"


def _line(name: str, text: str) -> str:
    return f"  {name:<10} {text}"


def _faults(name: str, what: str, faults: Sequence[str]) -> list[str]:
    return [_line(name, what), *(f"    {one_line(fault)}" for fault in faults)]


def _files(found: Verification) -> list[str]:
    if not found.faults:
        return [_line("files", f"{found.num_files} hashes, all as recorded")]
    return _faults("files", "not as recorded:", found.faults)


def _numbers(found: Verification) -> list[str]:
    """Return what differs: where the report does, of the other files only how much, for it is the same again."""
    if not found.differences:
        return [_line("numbers", f"{found.num_fields} fields derived again from the logs, all the same")]
    lines: list[str] = []
    for name, said in found.differences.items():
        if lines and len(said) > MAX_REPEATED:
            lines.append(_line("numbers", f"{name}: {len(said)} likewise; all of them: --format json"))
        else:
            lines += _faults("numbers", f"{name} does not follow from the logs:", said)
    return lines


def _chain(found: Verification) -> list[str]:
    """Return which link broke; else what is sealed, and what is not."""
    if found.broken_links:
        return _faults("chain", "is broken:", found.broken_links)
    lines = []
    for path, findings in found.chain.items():
        by_state = {state: [f.link.value for f in findings if f.state is state] for state in State}
        said = [f"{len(by_state[State.HOLDS])} link(s) hold"]
        said += [
            f"{state.value}: {', '.join(names)}"
            for state, names in by_state.items()
            if names and state is not State.HOLDS
        ]
        lines.append(_line("chain", f"{path}: {'; '.join(said)}"))
    return lines


def _signature(found: Verification) -> list[str]:
    if found.signature is None:
        return []
    word = "good" if found.signature.is_good else f"NOT GOOD: {one_line(found.signature.path)}"
    return [_line("signature", f"{word}: {found.signature.text}")]


def _log_lines(found: Verification) -> list[str]:
    if found.contradictions:
        return _faults("log lines", "some contradict others:", found.contradictions)
    agree = f"{found.num_lines} records agree with themselves and with each other"
    return [_line("log lines", agree)] if found.num_lines else []
