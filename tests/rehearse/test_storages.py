"""Which tensors live, and what they are for: on real tensors."""

import gc

import torch

from nlp_bench.rehearse.storages import Storages
from nlp_bench.rehearse.tracker import Tracker

KIB = 256
"""Elements of float32 in one KiB."""


def of(storages: Storages) -> dict[str, int]:
    return {kind: size for (kind, _), size in storages.at_peak().items()}


def test_a_storage_counts_once_however_many_tensors_view_it() -> None:
    with Tracker().watching() as tracker, torch.no_grad():
        whole = torch.empty(KIB)
        views = [whole[:3], whole.view(2, -1), whole.detach()]
        assert tracker.storages.total == 1024
        del whole, views
    gc.collect()
    assert tracker.storages.total == 0
    assert tracker.storages.peak == 1024


def test_the_peak_knows_what_lived_then_and_not_what_came_later() -> None:
    with Tracker().watching() as tracker, torch.no_grad():
        kept = torch.empty(KIB)
        tracker.storages.label(kept, ("weights", ""))
        passing = torch.empty(3 * KIB)
        del passing
        later = torch.empty(2 * KIB)
    assert (tracker.storages.peak, tracker.storages.total) == (4096, 3072)
    assert of(tracker.storages) == {"weights": 1024, "temporary": 3072}
    del later


def test_begin_forgets_an_earlier_peak() -> None:
    with Tracker().watching() as tracker, torch.no_grad():
        torch.empty(3 * KIB)
        kept = torch.empty(KIB)
        tracker.begin()
    assert tracker.storages.peak == 1024
    del kept


def test_of_a_compiled_kernel_only_what_outlives_it_counts() -> None:
    with Tracker().watching() as tracker, torch.no_grad():
        with tracker.storages.one_kernel():
            result = (torch.empty(KIB) + 1).mul(2)
        assert (tracker.storages.peak, tracker.storages.total) == (1024, 1024)
    del result


def test_a_storage_that_is_emptied_and_filled_again_in_place() -> None:
    with Tracker().watching() as tracker, torch.no_grad():
        tensor = torch.empty(KIB)
        tensor.untyped_storage().resize_(0)
        assert tracker.storages.total == 0
        tensor.untyped_storage().resize_(1024)
        assert tracker.storages.total == 1024
    del tensor


def test_what_a_module_keeps_for_the_backward_pass_is_an_activation_of_that_module() -> None:
    with Tracker().watching() as tracker:
        part = torch.nn.Sequential(torch.nn.Linear(16, 16, bias=False), torch.nn.GELU())
        tracker.name_modules([part])
        inputs = torch.empty(16, 16)  # before the modules
        loss = part(inputs).sum()
        tracker.begin()
        loss.backward()
    made = {module: size for (kind, module), size in tracker.storages.at_peak().items() if kind == "activations"}
    assert made["0"] == 1024  # what GELU reads; what it made nobody needs
    assert tracker.flops == {"mm": 2 * 16**3}  # the gradient of the weight alone: the input needs none
