"""The table of peaks: exact names, families, and what is refused."""

from pathlib import Path

import pytest

from nlp_bench.config.accelerators import FORMATS, accelerators, bound_of, peak_of
from nlp_bench.errors import UsageError


@pytest.mark.parametrize(
    ("words", "name", "peak"),
    [
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100 SXM", 312),
        ("A100-SXM4-80GB", "NVIDIA A100 SXM", 312),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM", 989.4),
        ("NVIDIA H100 80GB HBM3 is used", "NVIDIA H100 SXM", 989.4),
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe", 756),
        ("h100 pcie", "NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", "NVIDIA H100 NVL", 835.5),
        ("NVIDIA H200", "NVIDIA H200 SXM", 989.4),
        ("NVIDIA H200 NVL", "NVIDIA H200 NVL", 835.5),
        ("NVIDIA GB200", "NVIDIA GB200", 2500),
        ("AMD Instinct MI300X", "AMD Instinct MI300X", 1307.4),
        ("MI300X", "AMD Instinct MI300X", 1307.4),
        ("AMD Instinct MI250X", "AMD Instinct MI250X GCD", 191.5),
        ("TPU v5 lite", "Google TPU v5e", 197),
        ("A100", "A100, all variants alike", 312),
        ("A100 80GB", "A100, all variants alike", 312),
    ],
)
def test_the_names_that_logs_print(words: str, name: str, peak: float) -> None:
    found = peak_of(words, "bf16")
    assert (found.accelerator, found.tflops, found.number_format) == (name, peak, "bf16")
    assert "data sheet" in found.source or "white paper" in found.source or "documentation" in found.source


@pytest.mark.parametrize(
    ("words", "number_format", "message"),
    [
        ("NVIDIA H100", "bf16", "ambiguous: NVIDIA H100 SXM .989.4 TFLOP/s in bf16. or NVIDIA H100 PCIe"),
        ("H100 80GB", "bf16", "ambiguous"),
        ("H200", "bf16", "ambiguous"),
        ("MI250X", "bf16", "ambiguous"),
        ("V100", "fp16", "ambiguous"),
        ("NVIDIA H900", "bf16", "'NVIDIA H900' is not in benchmark/accelerators.toml"),
        ("NVIDIA A100-SXM-64GB", "bf16", "is not in"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bf16", "is not in"),
        ("NVIDIA H200 141GB", "bf16", "ambiguous"),
        ("", "bf16", "is not in"),
        ("\x1b[31mgpu\n", "bf16", r"\\x1b"),
        ("NVIDIA A100-SXM4-40GB", "fp8", "has no fp8 peak for NVIDIA A100 SXM, only fp32, tf32, bf16, fp16"),
        ("Tesla V100-SXM2-32GB", "bf16", "has no bf16 peak"),
    ],
)
def test_what_is_not_known_for_sure_is_refused(words: str, number_format: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        peak_of(words, number_format)


def test_every_entry_says_its_source_and_its_formats_rise() -> None:
    for entry in accelerators():
        assert entry.source
        rising = [peak for name in FORMATS if name != "fp16" and (peak := entry.peak_tflops.get(name))]
        assert rising == sorted(rising), entry.name
        for name in (entry.name, *entry.logged):
            assert peak_of(name, next(iter(entry.peak_tflops))).accelerator == entry.name


def test_the_disagreement_about_the_gb200_is_printed() -> None:
    assert "2450" in peak_of("NVIDIA GB200", "bf16").source
    assert "not compared with a second source" in peak_of("NVIDIA A800-SXM4-80GB", "bf16").source


@pytest.mark.parametrize(
    ("words", "bound"),
    [
        ("NVIDIA A100-SXM4-40GB", ("A100", 312)),
        ("NVIDIA H100", ("H100", 1978.9)),
        ("MI250X", ("MI250X", 383)),
        ("NVIDIA GB300", ("GB300", 15000)),
        ("NVIDIA L40S", ("L40S", 733)),
        ("NVIDIA A10", None),
        ("CPU", None),
    ],
)
def test_the_bound_is_the_fastest_variant_in_the_fastest_format(words: str, bound: tuple[str, float] | None) -> None:
    assert bound_of(words) == bound


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("peak_tflops = { bf16 = 0 }", "peak_tflops.bf16 = 0"),
        ("peak_tflops = { bf17 = 1 }", "peak_tflops.bf17"),
        ("peak_tflops = { bf16 = inf }", "peak_tflops.bf16: inf is not a finite number"),
        ("peak_tflop = { bf16 = 1 }", "peak_tflop: unknown key"),
        ("peak_tflops = { bf16 = 1 }\nlogged = ['OTHER x']", "names both"),
    ],
)
def test_a_wrong_entry_of_a_centre_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, message: str
) -> None:
    (tmp_path / "benchmark" / "models").mkdir(parents=True)
    logged = "" if "logged" in entry else "logged = []\n"
    other = '[[accelerator]]\nname = "other X"\nfamily = "X"\nlogged = []\npeak_tflops = { bf16 = 1 }\nsource = "s"\n'
    text = f'schema = "nlp-bench/accelerators/3"\n{other}[[accelerator]]\nname = "mine"\nfamily = "M"\n{logged}source = "s"\n{entry}\n'
    (tmp_path / "benchmark" / "accelerators.toml").write_text(text)
    monkeypatch.setenv("NLP_BENCH_ROOT", str(tmp_path))
    accelerators.cache_clear()
    with pytest.raises(UsageError, match=message):
        accelerators()
    accelerators.cache_clear()
