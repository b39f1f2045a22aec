"""Logs of programs that nobody has described, and what is true of each.

Every invented program trains with 64 samples of 2048 tokens in 0.512 s on 8 devices: 256 000 tokens per second, 32 000 of each.
"""

from collections.abc import Callable
from typing import Any

from nlp_bench.measure.sizes import Overrides

RATE = 256000.0
BATCH = Overrides(global_batch_size=64, sequence_length=2048)
LENGTH = Overrides(sequence_length=2048)
DEVICES = Overrides(num_gpus=8)
NOTHING = Overrides()
Line = Callable[[int], str]


def log(line: str | Line, *, head: str = "", every: int = 1, count: int = 12) -> str:
    """Lines of the steps `every`, 2 * `every` and so on behind the settings `head`; {n} in a text is the step."""
    steps = range(every, every * count + 1, every)
    return head + "".join((line.replace("{n}", str(n)) if isinstance(line, str) else line(n)) + "\n" for n in steps)


def case(line: str | Line, added: Overrides = NOTHING, **options: Any) -> tuple[str, Overrides]:
    """A log of such lines, and what a person adds."""
    return log(line, **options), added


def steps_from(first: int) -> Line:
    return lambda n: f"step {first + n} loss 2.31 tokens/s 256000"


def clock(step: int, seconds: float = 0.512) -> str:
    at = step * seconds
    return f"2026-03-01 10:{int(at) // 60:02d}:{at % 60:06.3f}"


# What is read: the log, and what a person has to add.
READ: dict[str, tuple[str, Overrides]] = {
    "bars_between_fields": case("step {n} | loss 2.31 | lr 1.0e-04 | tok/s 256000"),
    "value_before_unit": case(lambda n: f"[{n:4d}/1000] loss: 2.3100 (512.0 ms/step, 256.0k tok/s)"),
    "equal_signs": case("step={n} loss=2.31 tokens_per_second=256000.0 step_time=0.512s"),
    "json_lines": case('{"step": {n}, "train/loss": 2.31, "perf/tokens_per_sec": 256000.0, "perf/step_time_ms": 512.0}'),
    "mlx": case("Iter {n}: Train loss 2.310, It/sec 1.953, Tokens/sec 256000.0, Trained Tokens 9, Peak mem 12.345 GB"),
    "most_memory": case("step {n} | loss 2.31 | tok/s 256000 | max mem 40.1GB | mem_peak 40.1GB"),
    "json_of_words": case('{"global_step": "{n}", "loss": "2.31", "tokens/s": "256000"}'),
    "python_dictionary": case("{'iter': {n}, 'loss': 2.31, 'tokens_per_sec': 256000.0}", every=10),
    "thousands": case("Iteration {n}: loss = 2.31, time/iter = 512 ms, throughput = 256,000 tokens/sec"),
    "kilo_tokens": case("Epoch 1 Step {n}/1000 Loss 2.31 Throughput 256.0 Ktok/s"),
    "exponent": case("update: {n} - train_loss: 2.31 - tokens/s: 2.56e5", every=5),
    "camel_case": case("GlobalStep={n} Loss=2.31 TokensPerSec=256000 StepTimeMs=512"),
    "blanks_only": case("step {n} loss 2.31 tokens/s 256000 ms_per_step 512"),
    "brackets": case("Step [{n}/1000] Loss [2.31] Speed [256000.0 tokens/s]"),
    "unit_in_brackets": case("step: {n} loss: 2.31 throughput [tokens/s]: 256000 time [ms/step]: 512"),
    "of": case("INFO:root:Training: step {n} of 1000, loss = 2.31, speed = 256k tokens/sec, ETA 0:12:30"),
    "words": case("Training step {n} finished: loss 2.31, 256000 tokens per second"),
    "colours": case("\x1b[36mstep: {n}\x1b[0m  \x1b[32mloss: 2.31\x1b[0m  \x1b[34mtok/s: 256,000\x1b[0m"),
    "carriage_returns": case("\rstep {n} loss 2.31 {n}%\rstep {n} loss 2.31 tokens/s 256000"),
    "total_beside_device": case("step {n} | loss 2.31 | tokens_per_second: 256000 | tokens_per_second_per_device: 32000"),
    "device_rate_and_world": case("step {n} loss 2.31 tokens/gpu/s 32000", DEVICES, head="world_size = 8\n"),
    "device_rate": case("step {n} loss 2.31 tok/s/gpu: 32000", DEVICES),
    "evaluation_between": case("step {n} loss 2.31 tokens/s 256000\nvalidation step {n} loss 2.31 tokens/s 900000"),
    "generation_between": case("step {n} loss 2.31 tokens/s 256000\nGenerating sample: step {n} tokens/s 90"),
    "restart": (log("step {n} loss 2.31 tokens/s 256000", count=9) + log(lambda n: f"step {n + 6} loss 2.32 tokens/s 256000", count=20), NOTHING),
    "first_step_without_a_rate": ("step 1 loss 11.0\n" + log(lambda n: f"step {n + 1} loss 2.31 tokens/s 256000"), NOTHING),
    "joey": case("Epoch 1, Step: {n}, Batch Loss: 2.31, Batch Acc: 0.1, Tokens per Sec: 256000, Lr: 0.0003", every=100),
    "prime": case(lambda n: f"step: {n}, loss: 2.31, lr: 1e-4, total_samples: {n * 64}, tokens_per_second: 256000.00, mfu: 30.1, time_taken: 0.51"),
    "one_line_of_pieces": ("".join(f"\rstep {n} loss 2.31 tokens/s 256000 {'#' * 40}" for n in range(1, 400)) + "\n", NOTHING),
    "k_of_the_next_name": case("step {n} loss 2.31 ktok/s=256.0"),
    "k_of_the_next_name_in_words": case("step={n} ktok_per_sec=256.0 loss=2.31"),
    "million_of_the_next_name": case("step={n} loss=2.31 mfu=0.41 Mtok/s=0.256"),
    "k_of_the_next_name_behind_a_blank": case("step {n} loss 2.31 ktok/s 256.0"),
    "unit_with_brackets_in_front": case("step {n} loss 2.31 tok/s (per GPU) 32000", DEVICES),
    "device_in_the_name_of_a_throughput": case("step {n} loss 2.31 per-GPU throughput: 32000 tok/s", DEVICES),
    "device_in_front_of_the_name": case("step {n} loss 2.31 per-device tokens/s: 32000", DEVICES),
    "device_behind_the_value": case("step {n} loss 2.31 tokens/s: 32000 per GPU", DEVICES),
    "device_behind_a_letter": case("step {n} loss 2.31 tokens/s=32k/GPU", DEVICES),
    "device_in_a_word_of_its_own": case("step {n} loss 2.31 | per GPU: tokens/s=32000, mfu=40%", DEVICES),
    "development_set_between": case("step {n} loss 2.31 tokens/s 256000\ndev step {n} loss 2.9 tokens/s 900000", count=20),
    "evaluation_told_by_its_loss": case("step {n}: train loss 2.31, 256000 tok/s\nstep {n}: val loss 2.9, 900000 tok/s"),
    "time_of_day_in_front": case(lambda n: f"[10:00:{n:02d}] INFO     step={n} loss=2.31 tok/s=256.0k"),
    "devices_in_brackets_behind_the_unit": case("step {n} | loss 2.31 | throughput: 256,000 tokens/sec (8 GPUs)"),
    "time_in_brackets_behind_the_unit": case("step {n} | loss 2.31 | speed=256000 tok/s (512.0 ms/step)"),
    "memory_behind_the_unit": case("step {n} | loss 2.31 | throughput 256000 tokens/s 40259 MB"),
    "k_behind_a_blank": case("step {n} | loss 2.31 | tokens/s = 256.0 k"),
    "million_behind_a_blank": case("step {n} | loss 2.31 | 0.256 M tokens/s (40.5% MFU)"),
    "lines_that_two_handlers_print": case("INFO:root:step {n} loss 2.31 tokens/s 256000\nstep {n} loss 2.31 tokens/s 256000"),
    "name_of_a_host": case("eval-node03: step {n} loss 2.31 tokens/s 256000"),
}  # fmt: skip

# What is not read without --pattern: it states no tokens per second of a step outright, or does not say of whom.
UNREAD: dict[str, tuple[str, Overrides]] = {
    "bare_number_in_front": case("{n} | loss 2.31 | lr 1.0e-04 | 512.00ms | 256000 tok/s"),
    "million_tokens_by_name": case("step: {n}, loss: 2.31, tokens_per_second(M): 0.256"),
    "samples_and_length": case("step {n}: loss 2.31; 0.512 s/it; 125.0 samples/s", head="args: seq_len=2048, lr=0.0001\n"),
    "cumulative": case("step {n} | loss 2.31 | cumulative tokens/sec: 256000"),
    "smoothed": case("step {n} | loss 2.31 | smoothed 256.0k tok/s"),
    "overall": case("step {n} | loss 2.31 | overall throughput: 256000 tokens/s"),
    "average_behind": case("step {n} | loss 2.31 | throughput_avg 256000 tokens/s"),
    "mean_in_the_name": case("step {n} loss=2.31 tokens_per_second_avg=256000"),
    "mean_so_far": case("step {n} loss=2.31 tokens_per_sec_so_far=256000"),
    "mean_since_the_start": case("step {n} | loss 2.31 | 256000 tokens/s since start"),
    "moving_mean": case("step {n} | loss 2.31 | EMA tok/s 256000"),
    "samples": case("step {n}: loss 2.31; 125.0 samples/s", LENGTH),
    "time_and_settings": case("step {n} loss 2.31 time/step 0.512s", head="global_batch_size: 64\nseq_length: 2048\n"),
    "time": case("iter {n}, loss 2.31, sec/iter 0.512", BATCH, every=10),
    "steps_per_second": case("step {n} loss=2.31 1.953125 steps/s", BATCH),
    "iterations_per_second": case("Iter {n}: Train loss 2.31, Learning Rate 1e-5, It/sec 1.953125", BATCH),
    "microseconds": case("step={n} loss=2.31 step_time_us=512000", BATCH),
    "minutes": case("step {n}: loss 2.31, 0.0085333333 min/step", BATCH),
    "plain_time_every_step": case("step {n}: loss 2.31, time 512.00ms", BATCH),
    "short_name": case("step: {n}  loss: 2.31  tps: 32,000", DEVICES),
    "rate_without_unit_beside_a_time": case("step: {n} loss: 2.31 throughput: 99 dt: 512ms", head="tokens per iteration will be: 131,072\n"),
    "tokens_seen_and_clock": case(lambda n: f"step {n} loss 2.31 tokens_seen {n * 131072} elapsed {n * 0.512:.3f}s", every=10),
    "tokens_seen_and_clock_text": case(lambda n: f"step {n} | loss 2.31 | consumed tokens: {n * 131072} | elapsed: {n * 512 // 60000}:{n * 0.512 % 60:06.3f}", every=10),
    "tokens_of_the_line": case("step {n} loss 2.31 global_batch_tokens: 131072 step_time: 0.512 s"),
    "batch_of_the_line": case("step {n} | global batch size: 64 | step time (s): 0.512 | loss: 2.31", head="seq-length: 2048\n"),
    "settings_with_dots": case("step {n} loss 2.31 step_time: 0.512 s", head="  global_batch_size ............... 64\n  seq_length ...................... 2048\n"),
    "two_averages_beside_the_value": case("step {n} loss 2.31 tokens/s: 256000 avg tokens/s: 100000 max tokens/s: 300000"),
    "bar": case(lambda n: f"Epoch 0: {n}%|#   | {n}/100 [00:0{n % 10}<00:46,  1.95it/s, v_num=0, train_loss=2.31, tok_per_s=2.56e+5]"),
    "several_lines": case("[step={n}/1000]\n    train/loss=2.31\n    throughput/tokens_per_second=256,000\n    optim/lr=0.1"),
    "own_rate_of_each_rank": case(lambda n: "\n".join(f"[rank{r}]: step {n} loss 2.31 tokens/s {31988 + 8 * ((r + n) % 4)}" for r in range(4)), DEVICES),
    "comma_separated_values": ("step,loss,lr,tokens_per_second\n" + log("{n},2.31,0.0001,256000.0"), NOTHING),
    "table": ("| step | loss | tokens/s | ms/step |\n|------|------|------|------|\n" + log("| {n} | 2.31 | 256,000 | 512 |"), NOTHING),
    "columns": (" step    loss     lr      tok/s\n" + log(lambda n: f" {n:4d}   2.310   1e-4   256000"), NOTHING),
    "libai": case(lambda n: f"[03/01 10:00:00 lb.utils.events]: eta: 0:12:30  iteration: {n}/1000  consumed_samples: {n * 64}  total_loss: 2.31" "  time: 0.5120 s/iter  data_time: 0.0012 s/iter  total_throughput: 125.00 samples/s  lr: 1.0e-04", LENGTH, every=20),
    "rwkv": case(lambda n: f"Epoch 0:  1%| | {n}/40320 [{n // 60:02d}:{n % 60:02d}<14:31:07,  1.00s/it, loss=2.310, lr=0.0006, REAL it/s=1.0, Kt/s=256.0]"),
    "tensorflow": case(lambda n: f"{clock(n)} INFO:tensorflow:loss = 2.31, step = {n} (51.2 sec)", BATCH, every=100),
    "times_devices": case("step {n} loss 2.31 32000 tok/s x 8 GPUs", DEVICES),
    "devices_in_brackets": case("step {n} loss=2.31 tokens/sec=32000 tokens/sec (8 GPUs)=256000"),
    "evaluation_below_a_heading": ("".join(log(steps_from(12 * k)) + log("batch {n} loss 2.9 tokens/s 900000", head="Evaluating...\n", count=40) for k in range(3)), NOTHING),
    "evaluation_of_the_same_form": ("".join(log(steps_from(12 * k)) + log("step {n} loss 2.9 tokens/s 900000", head="=== Validation ===\n", count=30) for k in range(3)) + "Resuming training\n" + log(lambda n: f"step {36 + n} loss 2.31 tokens/s 256000", count=40), NOTHING),
    "rank_inside_the_line": case(lambda n: "\n".join(f"step {n} rank {r} loss 2.31 tokens/s {31988 + 8 * ((r + n) % 4)}" for r in range(8)), DEVICES),
    "batch_of_a_device": case("Step {n}/1000, Loss: 2.31, Step time: 0.512s, Tokens/sec: 32000", head="World size: 8\nBatch size per GPU: 8\nSequence length: 2048\n"),
    "epochs": case("Epoch {n}: loss 2.31, 256000 tokens/s, 512.1s"),
    "name_of_a_job": case("[test_run_eval_cluster] step {n} loss 2.31 tokens/s 256000"),
    "student": case("distill teacher step {n} loss 2 tokens/s 900000\ndistill student step {n} loss 2 tokens/s 256000"),
    "single_record": ("step 300 | loss 3.45 | dt: 512ms | tok/sec: 256,000 | mfu: 18.3%\n", NOTHING),
}  # fmt: skip

# What is refused: the log, and what a person adds in vain.
REFUSED: dict[str, tuple[str, Overrides]] = {
    "samples_without_length": case("step {n}: loss 2.31; 125.0 samples/s"),
    "time_without_batch": case("step {n}: loss 2.31; 0.512 s/step"),
    "time_without_length": case("step {n}: loss 2.31; 0.512 s/step", head="global batch size: 64\n"),
    "device_rate": case("step {n} loss 2.31 tok/s/gpu: 32000"),
    "short_name": case("step: {n}  loss: 2.31  tps: 32,000"),
    "short_name_of_many": case("step: {n} loss: 2.31 tps: 32,000", head="world_size: 8\n"),
    "plain_rate_of_many": case("step: {n} loss: 2.31 tok/s: 32000", head="num_gpus: 8\n"),
    "own_rate_of_each_rank": case(lambda n: "\n".join(f"[rank{r}]: step {n} loss 2.31 tokens/s {31988 + 8 * ((r + n) % 4)}" for r in range(4))),
    "shared_rate_of_ranks": case(lambda n: "\n".join(f"[rank{r}]: step {n} loss 2.31 tokens/s {256000 + n % 2}" for r in range(4))),
    "plain_rate_of_the_last_rank": case("[rank7]: step {n} loss 2.31 tokens/s 32000"),
    "underscores": case("step {n} loss 2.31 tokens/s: 256_000"),
    "apostrophes": case("step {n} loss 2.31 tokens/s 256'000"),
    "torn_by_blanks": case("step {n} loss 2.31 tokens/s: 256 000"),
    "devices_on_the_line": case("rank=0 step={n} loss=2.31 tokens/s=32000 world=8"),
    "loss_that_is_none": case("step {n} loss nan tokens/s: 256000"),
    "per_gpu_without_devices": case("step {n} loss 2.31 tokens/s: 32000 /GPU"),
    "times_devices_without_devices": case("step {n} loss 2.31 32000 tok/s x 8 GPUs"),
    "rate_of_a_node": case("step {n} loss 2.31 tokens/s/node: 128000", DEVICES),
    "rate_of_a_node_in_front": case("step {n} loss 2.31 throughput per node: 64000 tokens/s", DEVICES, head="nnodes = 4\n"),
    "rate_of_a_node_in_brackets": case("step {n} loss 2.31 tokens/s (per node): 64000", DEVICES),
    "k_or_another_name": case("step {n} loss 2.31 tokens/s 256.0 k 4"),
    **{
        f"own_rate_of_each_{name}": case(lambda n, form=form: "\n".join(form % r + f"step {n} loss 2.31 tokens/s {31988 + 8 * ((r + n) % 4)}" for r in range(8)), DEVICES)
        for name, form in {"process_of_torchrun": "[default%d]:", "process_of_mpi": "[1,%d]<stdout>:", "node": "node%02d: ", "pod": "[pod/job-worker-%d/main] ", "gpu": "[GPU %d] "}.items()
    },
    "rate_without_unit": case("step {n} loss 2.31 throughput: 256000", BATCH),
    "running_average": case("step {n} loss 2.31 avg tokens/s: 256000"),
    "two_rates": case("step {n} loss 2.31 student 1000 tok/s teacher 3000 tok/s"),
    "open_lm": case(lambda n: f"2026-03-01,10:00:00 | INFO | Train Epoch: 0 [{n:4d}/1000 (1%)] Loss: 2.31 Data (t): 0.163 Batch (t): 0.512, " "256000.0/s, 32000.0/s/gpu LR: 0.0003", DEVICES),
    "open_nmt": case("[2026-03-01 10:00:00,000 INFO] Step {n}/ 1000; acc: 4.16; ppl: 29.0; bsz: 1234/1000/20; 4568/4532 tok/s;   {n} sec"),
    "marian": case("[2026-03-01 10:00:00] Ep. 1 : Up. {n} : Sen. 65,234 : Cost 7.12 : Time 123.45s : 23456.78 words/s"),
    "tinygrad": case(lambda n: f"{n:5d} 1234.56 ms run,   12.34 ms python, 1222.22 ms CUDA, 2.31 loss, 0.0001 LR, 12.34 GB used"),
}  # fmt: skip

# What is no training of a language model, whatever a person adds.
FOREIGN: dict[str, str] = {
    "pictures": log("Epoch 1 step {n} loss 6.9 throughput: 1234.5 images/s"),
    "resnet": log("[resnet50] step {n} loss 6.9 acc@1 0.1 time/step 0.512s 250 samples/s"),
    "losses": log("step {n} loss 2.31 lr 1e-4 grad_norm 1.1"),
    "losses_and_dates": log(lambda n: f"{clock(n)} step {n} loss 2.31 lr 1e-4 grad_norm 1.1 tokens_seen {n * 131072}"),
    "system_monitor": log(lambda n: f"{clock(n)} gpu0 util 98% mem 70000MiB power 650W step_down 0 clock {n} MHz 1.2GB/s"),
    "nccl_tests": "#       size         count      type     time   algbw   busbw\n" + log(lambda n: f" {n * 8} {n * 2} float sum -1 {n}.5 0.1 0.2"),
    "vllm": log("INFO {n} Avg prompt throughput: 1234.5 tokens/s, Avg generation throughput: {n}6.7 tokens/s, Running: 3 reqs, step {n}"),
    "sglang": log("Decode batch. step: {n}, #token: 100, gen throughput (token/s): 99.10, #queue-req: 0"),
    "llama_cpp": log("llama_perf: prompt eval time = 123.4 ms / {n} tokens (12.3 ms per token, 81.0 tokens per second)"),
    "benchmark_of_a_server": log("step {n}: Request throughput (req/s): 5.2, Output token throughput (tok/s): 1234.5"),
    "map_of_a_data_set": log(lambda n: f"Map: {n}%|#  | {n}000/100000 [00:0{n % 10}<00:09, 9000.00 examples/s]"),
    "tokenising": log("Tokenizing shard {n}/100: 1234567 tokens, 1.2M tokens/s"),
    "preprocessing": log("Processed {n}000 documents ({n}2.5 docs/s, 5.6 MB/s, 256000 tokens/s)"),
    "test_harness": log("tests/test_step.py::test_step[{n}] PASSED [{n}%] in 0.512s"),
    "compiler": log("[{n}/100] Building CXX object src/step_{n}.o 0.512s"),
    "download": log(lambda n: f"model-0000{n % 10}.safetensors: {n}%|#  | {n}.0M/99.0M [00:0{n % 10}<00:09, 9.9MB/s]"),
    "checkpoint_shards": log(lambda n: f"Loading checkpoint shards: {n}%|#  | {n}/12 [00:0{n % 10}<00:09, 1.95it/s]"),
    "checkpoint_saved": log("Saving checkpoint of step {n}: loss 2.31, took 0.512 s, 256000 tokens/s"),
    "evaluation": log("eval step {n} | loss 2.31 | tok/s 900000"),
    "validation_keys": log("{'step': {n}, 'val/loss': 2.31, 'val/tokens_per_sec': 900000.0}"),
    "evaluation_of_the_trainer": log("{'eval_loss': 2.31, 'eval_runtime': 12.3, 'eval_samples_per_second': 50.0, 'step': {n}}"),
    "evaluation_below_a_heading": "Running evaluation on holdout\n" + log("batch {n}/40 loss 2.31 ppl 9.1 tokens/s 900000"),
    "evaluation_below_a_banner": "=== Validation ===\n" + log("step {n} loss 2.31 tok/s 900000"),
    "harness": "lm_eval harness\n" + log("step {n} perplexity 9.1 loss 2.31 tokens/s 900000"),
    "forward_only": log("step {n} forward-only loss 2.31 tokens/s 900000"),
    "speech": "vocoder training\n" + log("step {n} mel_loss 2.31 speed: 12.20 samples/s"),
    "corpus": log("step {n} embedding corpus batch loss 0.0 tokens/s 900000"),
    "development_set": log("dev step {n} loss 2.31 tokens/s 900000"),
    "data_loader": log("dataloader step {n}: data loading 0.512 s/step, 256000 tokens/s"),
    "parts_of_a_step": log("step {n} loss 2.31 | forward: 100.0 ms | backward: 300.0 ms | optimizer: 100.0 ms | data_time: 0.1 s"),
    "reinforcement": log("step:{n} - actor/loss:0.1 - perf/throughput:1000.0 - timing_s/step:10.0 - tokens/s:256000"),
    "sweep_of_batches": "".join(f"batch {2**n}: {1000 * n} tokens/s, 0.512 s/step\n" for n in range(1, 9)),
    "summary_without_step": "Training finished. train loss 2.31, throughput 256000 tokens/s\n",
    "jube_table": "| system | nodes | Iterations | Batch_Size | Tokens/sec | time_to_report_in_seconds |\n|---|---|---|---|---|---|\n" + log(lambda n: f"| machine | {n} | {50 * n} | 64 | 256000.0 | 78.1 |"),
    "table_of_runs": "nodes,gpus,loss,tokens_per_second\n" + log(lambda n: f"{n},{4 * n},2.31,{n}000.0"),
    "falling_counter": log(lambda n: f"step {100 - n} loss 2.31 tokens/s 256000"),
    "wild_counter": log(lambda n: f"step {n * n * n % 17} loss 2.31 tokens/s 256000"),
    "source_code": "    step = 10  # tokens/s: 256000\n    print(f'step {step} loss {loss:.2f} tok/s {rate:.0f}')\n    seq_len: int = 2048\n",
    "prose": "In step 3 of the training the loss fell; about 256000 tokens/s were seen in iteration 5 of 10.\n",
}  # fmt: skip
