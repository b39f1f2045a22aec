"""A person's own data files come before the shipped ones: ./benchmark, then NLP_BENCH_HOME, then the package; nothing of it is hidden."""

import re
from pathlib import Path

import pytest
from support.forked_commands import Nlp, nlp_bench

from nlp_bench.config import catalog
from nlp_bench.config.accelerators import accelerators

__all__ = ["nlp_bench"]
SHIPPED = Path(__file__).resolve().parents[2] / "benchmark"
SYSTEM = (SHIPPED / "systems/dgx-h100.toml").read_text(encoding="utf-8")
MODEL = (SHIPPED / "models/175.toml").read_text(encoding="utf-8")


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    (here := tmp_path / "here").mkdir()
    (home := tmp_path / "home").mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("NLP_BENCH_HOME", str(home))
    return [here / "benchmark", home]


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def check(nlp_bench: Nlp) -> Nlp:
    return lambda *words: nlp_bench("check", "--offline", *words)


@pytest.mark.slow
def test_a_file_of_ones_own_is_taken_before_the_shipped_one_and_the_nearest_first(
    homes: list[Path], check: Nlp
) -> None:
    for place in (SHIPPED, *reversed(homes)):
        path = place / "systems/dgx-h100.toml"
        if place != SHIPPED:
            put(place, "systems/dgx-h100.toml", SYSTEM.replace("DGX H100 pod", f"one of {place.name}"))
        done = check("--model", "13", "--system", "dgx-h100")
        assert done.returncode == 0, done.stderr
        assert f", {path}\n" in done.stdout
        assert (f"one of {place.name}" in done.stdout) == (place != SHIPPED)


def test_a_system_file_elsewhere_may_be_named_by_the_environment(
    homes: list[Path], check: Nlp, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(homes[0].parent, "mine.toml", SYSTEM)
    monkeypatch.setenv("NLP_BENCH_SYSTEM", str(path))
    done = check("--model", "13")
    assert done.returncode == 0, done.stderr
    assert f", {path}\n" in done.stdout
    monkeypatch.setenv("NLP_BENCH_SYSTEM", "gone")
    assert "system: 'gone' (of NLP_BENCH_SYSTEM) is not a file of benchmark/systems" in check("--model", "13").stderr


def test_a_tilde_in_the_variable_is_the_home_folder(
    homes: list[Path], check: Nlp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No shell replaces it in the variables of an image or of a service."""
    path = put(homes[1], "systems/mine.toml", SYSTEM)
    monkeypatch.setenv("HOME", str(homes[1].parent))
    monkeypatch.setenv("NLP_BENCH_HOME", f"~/{homes[1].name}")
    done = check("--model", "13", "--system", "mine")
    assert done.returncode == 0, done.stderr
    assert f", {path}\n" in done.stdout


def test_a_variable_that_names_no_folder_is_not_passed_over_in_silence(
    homes: list[Path], check: Nlp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slip of the pen gave the shipped model in place of one's own of that name."""
    homes[1].rmdir()
    said = f"nlp-bench: NLP_BENCH_HOME={homes[1]} is no folder: nothing is taken from there; correct or unset it"
    assert said in check("--model", "13", "--system", "dgx-h100").stderr.splitlines()
    homes[1].mkdir()
    assert "NLP_BENCH_HOME" not in check("--model", "13", "--system", "dgx-h100").stderr
    monkeypatch.delenv("NLP_BENCH_HOME")
    assert "NLP_BENCH_HOME" not in check("--model", "13", "--system", "dgx-h100").stderr


def test_a_link_to_nothing_is_not_passed_over_for_the_shipped_file(homes: list[Path], check: Nlp) -> None:
    (homes[1] / "models").mkdir(parents=True)
    (homes[1] / "models/13.toml").symlink_to("/gone/13.toml")
    done = check("--model", "13", "--system", "dgx-h100")
    assert done.returncode == 2
    assert f"cannot read {homes[1]}/models/13.toml: No such file" in done.stderr


def test_a_model_that_shadows_a_shipped_one_is_said_not_to_be_the_benchmark(homes: list[Path], check: Nlp) -> None:
    put(homes[1], "models/175.toml", MODEL.replace("num_attention_heads = 96", "num_attention_heads = 64"))
    done = check("--model", "175", "--system", "juwels-booster")
    assert "model.num_attention_heads: 64 instead of 96: not the benchmark" in done.stderr
    put(homes[1], "models/mine.toml", MODEL)
    done = check("--model", "mine", "--system", "juwels-booster")
    assert "model: mine is a file of your own: not the benchmark" in done.stderr


def test_the_shipped_rules_hold_a_run_to_the_shipped_model(homes: list[Path]) -> None:
    from nlp_bench.rules.file import forget, load

    put(homes[0], "models/175.toml", MODEL.replace("num_attention_heads = 96", "num_attention_heads = 64"))
    forget()
    try:
        assert load("jupiter-nlp").models["175"].architecture.num_attention_heads == 96
    finally:
        forget()
    assert catalog.load_model("175").architecture.num_attention_heads == 64


def test_a_name_that_is_nowhere_is_refused_with_the_places_that_were_searched(homes: list[Path], check: Nlp) -> None:
    put(homes[1], "systems/mine.toml", "")
    done = check("--system", "mien")
    assert done.returncode == 2
    assert "did you mean mine?" in done.stderr
    assert all(str(place / "systems") in done.stderr for place in (*homes, SHIPPED))


def test_a_name_may_have_its_ending_and_a_file_here_goes_first(homes: list[Path]) -> None:
    assert catalog.find("systems", "dgx-h100.toml") == SHIPPED / "systems/dgx-h100.toml"
    path = put(homes[0].parent, "dgx-h100.toml", "")
    assert catalog.find("systems", "dgx-h100.toml") == path


def test_the_tables_are_found_in_the_same_places(homes: list[Path]) -> None:
    assert catalog.table("plan.toml") == SHIPPED / "plan.toml"
    put(homes[1], "accelerators.toml", 'schema = "nlp-bench/accelerators/3"\n')
    accelerators.cache_clear()
    try:
        assert accelerators() == ()
    finally:
        accelerators.cache_clear()


def test_a_layout_of_no_model_is_told(homes: list[Path], check: Nlp) -> None:
    put(homes[0], "systems/mine.toml", f"{SYSTEM}\n[layout.175b]\nnodes = 64\n")
    said = check("--model", "175", "--system", "mine").stderr
    assert "warning: system.layout.175b is of no model of benchmark/models and not used; did you mean 175?" in said
    put(homes[0], "systems/mine.toml", f"{SYSTEM}\n[layout.175]\nnodes = 64\n")
    done = check("--model", "175", "--system", "mine")
    assert (done.stderr, "64 node(s)" in done.stdout) == ("", True)


@pytest.mark.parametrize("value", ["/usr/x/bin:$PATH", "${HOME}/lib", "$(hostname)", "~/lib"])
def test_what_no_shell_replaces_in_a_variable_is_refused(homes: list[Path], check: Nlp, value: str) -> None:
    put(homes[0], "systems/mine.toml", f'{SYSTEM}\nPATH = "{value}"\n')
    done = check("--model", "13", "--system", "mine")
    assert done.returncode == 2
    assert f"system.environment.PATH: '{value}': nothing replaces the $ or ~ in it" in done.stderr


@pytest.mark.slow
def test_constants_that_are_not_the_shipped_ones_are_told_or_refused(homes: list[Path], check: Nlp) -> None:
    words, text = ("--model", "175", "--system", "juwels-booster"), (SHIPPED / "plan.toml").read_text(encoding="utf-8")
    changed = re.sub("products_ampere = { value = [0-9.]+", "products_ampere = { value = 0.85", text)
    path = put(homes[0], "plan.toml", changed)
    assert f"warning: {path}: [time] products_ampere = 0.85 instead of" in check(*words).stderr
    put(homes[0], "plan.toml", re.sub("host_layer_s = .*", "", text))
    assert f"{path}: time.host_layer_s is missing, by which this nlp-bench plans" in check(*words).stdout
    put(homes[0], "plan.toml", 'schema = "nlp-bench/plan/1"\n')
    assert f"{path}: memory is missing, by which this nlp-bench plans" in check(*words).stdout
    put(homes[0], "plan.toml", text)
    assert check(*words).stderr == ""


def test_a_table_of_ones_own_that_lacks_a_shipped_gpu_is_named(homes: list[Path], check: Nlp) -> None:
    path = put(homes[1], "accelerators.toml", 'schema = "nlp-bench/accelerators/3"\n')
    said = check("--model", "13", "--system", "juwels-booster").stdout
    assert f"is not in {path}, read in place of {SHIPPED}/accelerators.toml (copy that" in said


def test_a_root_that_is_no_folder_is_refused(homes: list[Path], check: Nlp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NLP_BENCH_ROOT", str(homes[1] / "nowhere"))
    assert check().stderr.startswith(f"nlp-bench: error: NLP_BENCH_ROOT: {homes[1] / 'nowhere'} is no folder")
