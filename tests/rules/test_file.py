"""Rule files of a centre: what they extend, what is refused by name, and that the page on rules names all that there is."""

import dataclasses
from pathlib import Path

import pytest
from support.command import Cli
from support.ours import bundled, write_our_run
from support.ruled_run import OWN, rule_file

from nlp_bench.config import catalog
from nlp_bench.errors import UsageError
from nlp_bench.evidence import make
from nlp_bench.evidence.collect import Collected
from nlp_bench.evidence.manifest import Options
from nlp_bench.evidence.verify import verify
from nlp_bench.rules.checks import TimeLimit
from nlp_bench.rules.file import Head, forget, load
from nlp_bench.rules.rule import CHECKS, Rule

HEAD = OWN.partition("extends")[0]
ONE = HEAD + 'models = ["13"]\n[rules.end]\ncheck = "exit-status"\nwhy = "It ends well."\n'


def test_a_file_changes_single_keys_of_the_one_it_extends(tmp_path: Path) -> None:
    base = load("jupiter-nlp")
    own = load(rule_file(tmp_path, OWN + "[rules.report-time]\nlimit_s = 400\n"))
    changed, rule = base.rules["report-time"], own.rules["report-time"]
    assert isinstance(rule, TimeLimit)
    assert isinstance(changed, TimeLimit)
    assert (rule.limit_s, changed.limit_s, rule.decides) == (400, 560, changed.decides)
    assert list(own.rules) == list(base.rules)
    assert (own.name, own.free, own.digest != base.digest) == ("own", base.free, True)


def test_a_file_takes_rules_away_and_adds_its_own(tmp_path: Path) -> None:
    text = OWN + (
        "[rules.data]\napply = false\n"
        '[rules.small]\ncheck = "setting"\nname = "nodes"\nat_most = 128\nwhy = "The machine has no more."\n'
        '[rules.window]\ncheck = "setting"\nname = "nccl_transport"\nequals = "IB"\nwhy = "Another check is another rule."\n'
    )
    rules = load(rule_file(tmp_path, text)).rules
    assert "data" not in rules
    assert rules["small"].why == "The machine has no more."
    assert rules["window"].check == "setting"


def test_a_chain_of_files_and_a_model_beside_them(tmp_path: Path) -> None:
    model = (catalog.root() / "benchmark" / "models" / "13.toml").read_text()
    model = model.replace("hidden_size = 5120", "hidden_size = 4096").replace("_billion = 13", "_billion = 9.6")
    (tmp_path / "mine.toml").write_text(model)
    rule_file(tmp_path, OWN + 'models = ["mine.toml"]\n', "first.toml")
    rules = load(rule_file(tmp_path, HEAD + 'extends = "first.toml"\n[rules.window]\nat_least = 9\n'))
    assert list(rules.models) == ["mine"]
    assert rules.models["mine"].architecture.hidden_size == 4096


def test_comments_and_order_do_not_change_the_digest(tmp_path: Path) -> None:
    text = "[rules.report-time]\nlimit_s = 400\ntokens = 1000\n[rules.window]\nat_least = 9\n"
    one = load(rule_file(tmp_path, OWN + text, "a.toml"))
    text = "# ours\n[rules.window]\nat_least = 9\n[rules.report-time]\ntokens = 1000\nlimit_s = 400\n"
    assert one.digest == load(rule_file(tmp_path, OWN + text, "b.toml")).digest


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (OWN + "[rules.report-time]\nlimit = 560\n", "rules.report-time.limit: unknown key; did you mean limit_s?"),
        (OWN + "[rules.report-tme]\nlimit_s = 560\n", "rules.report-tme: unknown rule of jupiter-nlp; did you mean report-time?"),
        (OWN + '[rules.report-time]\nlimit_s = "560"\n', "rules.report-time.limit_s: '560' is not a number"),
        (OWN + "[rules.report-time]\nlimit_s = -1\n", "rules.report-time.limit_s: -1 is not above 0"),
        (OWN + "[rules.report-time]\nlimit_s = inf\n", "rules.report-time.limit_s: inf is not a finite number"),
        (OWN + '[rules.report-time]\ndecides = "stedy"\n', "rules.report-time.decides: 'stedy' is unknown; did you mean steady?"),
        (OWN + '[rules.shape]\nsection = "architectur"\n', "rules.shape.section: 'architectur' is unknown; did you mean architecture?"),
        (OWN + '[rules.report-time]\nmodels = ["176"]\n', "rules.report-time.models: '176' is no model; did you mean 175?"),
        (OWN + '[rules.report-time]\noutcome = "FAILED"\n', "rules.report-time.outcome: 'FAILED' is not INVALID or VALID"),
        (OWN + "[rules.parameter-count]\ntolerance = 5\n", "rules.parameter-count.tolerance: 5 is no share"),
        (OWN + "[rules.skipped-iterations]\nallowed_share = { bf16 = 2.0 }\n", "rules.skipped-iterations.allowed_share.bf16: 2 is no share"),
        (OWN + '[rules.agreement]\nwithout = ["gpuu"]\n', "rules.agreement.without: 'gpuu' is no setting of a run; did you mean gpu?"),
        (OWN + '[rules.shape]\nwithout = ["seq_lenght"]\n', "rules.shape.without: 'seq_lenght' is no value of architecture; did you mean seq_length?"),
        (OWN + 'free = ["hidden_size"]\n', "rules.shape: hidden_size is frozen here and named under free"),
        (OWN + 'free = ["tensor_model_parallel"]\n', "free: 'tensor_model_parallel' is no setting of a run; did you mean tensor_model_parallel_size?"),
        (OWN + "titel = 'x'\n", "rules file.titel: unknown key; did you mean title?"),
        (HEAD + 'extends = "jupiter"\n', "rules: 'jupiter' is not a file of benchmark/rules; did you mean jupiter-nlp?"),
        (HEAD + 'extends = "own.toml"\n', "extends: leads back to itself"),
        (HEAD + 'extends = "gone.toml"\n', "gone.toml: No such file"),
        (HEAD, "models: missing; name model files"),
        (HEAD + 'models = ["13"]\n', "rules: there is none"),
        (HEAD + 'models = ["14"]\n[rules.end]\ncheck = "exit-status"\nwhy = "x"\n', "models: model: '14' is not a file of benchmark/models"),
        (HEAD + "rules = 3\n", "rules: expected tables [rules.NAME]"),
        (HEAD + 'models = ["13"]\nrules.end = 3\n', "rules: expected tables [rules.NAME]"),
        (ONE.replace("exit-status", "exit-state"), "rules.end.check: 'exit-state' is unknown; did you mean exit-status?"),
        (ONE.replace('check = "exit-status"\n', ""), "rules.end.check: missing"),
        (ONE.replace('why = "It ends well."\n', ""), "rules.end.why: missing"),
        (ONE.replace("It ends well.", " "), "rules.end.why: empty"),
        (ONE.replace("rules.end", 'rules."\\u001b[31m"'), "rules. [31m: a rule's name has letters, digits, - and _ only"),
        (ONE + '"\\u001b[31mred" = 3\n', "rules.end. [31mred: unknown key"),
        (ONE + "id = 3\n", "rules.end.id: unknown key"),
        (ONE + "[rules.few]\ncheck = 'setting'\nname = 'nods'\nwhy = 'x'\nat_most = 3\n", "rules.few.name: 'nods' is no setting of a run; did you mean nodes?"),
        (ONE + "[rules.few]\ncheck = 'setting'\nname = 'nodes'\nwhy = 'x'\n", "rules.few.equals: missing; give equals, one_of"),
        (ONE.replace("/1", "/2"), "schema is 'nlp-bench/rules/2'; this nlp-bench reads"),
        ("schema = \n", "is not valid TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_file_key_and_nearest_word(tmp_path: Path, text: str, says: str) -> None:
    path = rule_file(tmp_path, text)
    with pytest.raises(UsageError) as refusal:
        load(path)
    assert says in str(refusal.value)
    assert "own.toml" in str(refusal.value) or says.startswith(("rules: 'jupiter'", "gone.toml"))


def test_two_defaults_of_one_model_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nlp_bench.rules.file import defaults_of

    (tmp_path / "benchmark").mkdir()
    (tmp_path / "benchmark" / "models").symlink_to(catalog.root() / "benchmark" / "models")
    (tmp_path / "benchmark" / "rules").mkdir()
    text = ONE.replace('models = ["13"]', 'models = ["13"]\ndefault = true')
    (tmp_path / "benchmark" / "rules" / "two.toml").write_text(text)
    monkeypatch.setenv("NLP_BENCH_ROOT", str(tmp_path))
    forget()
    with pytest.raises(UsageError, match=r"^rules: jupiter-nlp and two are both default = true for model 13"):
        defaults_of("13")


LAX = """schema = "nlp-bench/rules/1"
title = "mine"
default = true
models = ["175"]

[rules.finite-loss]
check = "finite-loss"
why = "mine"
"""


def test_a_bundle_is_not_judged_by_rules_that_it_brings(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is derived in its own folder, where a benchmark/ of the sender's would be found before the shipped one."""
    run = write_our_run(here / "run")
    (here / "lax.toml").write_text(LAX)
    honest = bundled(here / "honest", run, rules="jupiter-nlp")
    original = make.add_rules

    def forged(collected: Collected, options: Options) -> Options:
        collected.add(here / "lax.toml", "benchmark/rules/jupiter-nlp.toml")
        return original(collected, options)

    monkeypatch.setattr(make, "add_rules", forged)
    made = bundled(here / "forged", run, rules="jupiter-nlp")
    said = [(one / "report/report.txt").read_text() for one in (honest.path, made.path)]
    assert said[0] == said[1]
    assert verify(made.path).is_verified


def test_rules_that_are_not_the_shipped_ones_are_named(here: Path, report: Cli) -> None:
    run = write_our_run(here / "run")
    (here / "benchmark/rules").mkdir(parents=True)
    (here / "benchmark/rules/jupiter-nlp.toml").write_text(LAX)
    said = f"rules jupiter-nlp are those of {here}/benchmark/rules/jupiter-nlp.toml, not the ones"
    assert said in report(run, "--rules", "jupiter-nlp").err


PAGE = Path(__file__).resolve().parents[2] / "docs" / "rules.md"


def test_the_tables_name_every_check_and_every_key() -> None:
    text = PAGE.read_text(encoding="utf-8")
    common = {field.name for field in dataclasses.fields(Rule)}
    for name in {*common, *(field.name for field in dataclasses.fields(Head))}:
        assert f"`{name}`" in text, name
    for check, kind in CHECKS.items():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{check}` |"))
        for field in dataclasses.fields(kind):
            assert field.name in common or f"`{field.name}`" in row, (check, field.name)
