"""The 107 real logs of third parties, where they lie beside the checkout: read in place, never part of the project."""

import pytest
from support.samples import Sample, problem, samples

SAMPLES = samples()
DISPUTED = {
    # 14 x 512 tokens / 0.79772 s are expected; the window leaves out iterations 2 and 3 (a front that fades) and 11 (a checkpoint), too:
    # 11 x 512 / 0.76482 s = 7363.8. Of that time 0.673 s are iteration 10, a stall, which counts.
    "nanotron__tiny-llama-doc__15_iterations_stage_change_checkpoint.log": "steady is 7363",
    # Expected to lack the batch size; the log prints `Total train batch size (…) = 1,024`.
    "tqdm__awsome-distributed-training__esm2_hf_train.log": "does not name ['--global-batch-size']",
}
pytestmark = pytest.mark.skipif(not SAMPLES, reason="the real logs do not lie beside this checkout")


@pytest.mark.parametrize("sample", SAMPLES, ids=[sample.path.stem for sample in SAMPLES])
def test_sample(sample: Sample) -> None:
    found, disputed = problem(sample), DISPUTED.get(sample.path.name)
    assert found is None if disputed is None else found and disputed in found
