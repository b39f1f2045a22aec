"""Programs of accelerator vendors: Cerebras, Graphcore's PopTorch, PopXL and PopART examples, AWS Neuron, MindSpore on Ascend."""

from nlp_bench.logs.dialect import Dialect
from nlp_bench.logs.pattern import At, Pattern, PatternParser, Values, late
from nlp_bench.logs.quantity import number

_SAMPLES = rb"<samples_per_second> (?:samples|sequences)/s(?:ec)?\b"
# The arguments are printed as one line `args Namespace(..., seq_len=4096, ...)`.
_ARGUMENTS = (rb"[(\s]seq_len=<sequence_length>[,)]",)


class _Graphcore(PatternParser):
    """Joins the epochs of GPT-2, each of which numbers its steps from 0."""

    offset = last = -1.0

    def values(self, values: Values, at: At) -> Values:
        if epoch := at.found.groupdict().get("gpt2_epoch"):
            step = values["iteration"]
            if int(epoch) and step <= self.last:
                self.offset += self.last + 1
            self.last = step
            values["iteration"] = self.offset + 1 + step
        return values


_RATE_OF_ONE = late(rb"\| {0,9}([\d.]{1,20}) samples/s/p\b")
_MAX_NEXT = 2  # the second line follows at once, or after one of another rank


class _MindFormers(PatternParser):
    """Looks for the samples per second of one processor in the line of a step and the next ones."""

    def values(self, values: Values, at: At) -> Values:
        for text in (at.found.string, *at.line.following(_MAX_NEXT)):
            if text is not at.found.string and b"per_step_time" in text:
                break
            if rate := _RATE_OF_ONE.search(text):
                value = number(rate[1])
                return values if value is None else {**values, "samples_per_second_per_device": value}
        return values


DIALECTS = (
    Dialect(
        name="cerebras",
        title="Cerebras Model Zoo on Wafer-Scale Clusters",
        source="Cerebras/modelzoo src/cerebras/modelzoo/trainer (progress logger); argonne-lcf/user-guides",
        example="2026-01-01 10:00:00,000 INFO:   | Train Device=CSX, Step=100, Loss=9.50000, Rate=40.00 samples/sec, "
        "GlobalRate=39.50 samples/sec, LoopTimeRemaining=0:10:00, TimeRemaining=0:10:00",
        trap="Eval lines look alike; Rate is samples of the machine, and the length of a sample is never printed",
        needles=(
            b"| Train Device=",
            b"|Train Device=",
            b"| Eval Device=",
            b"Effective batch size is ",
            b" to execute using ",
        ),
        parser=Pattern(
            # Rate is that of the last interval (smoothed by the program), GlobalRate the mean since the start.
            record=rb"\| ?Train Device=[\w:]{1,40}, (?:Global)?Step=<iteration>,(?: Loss=<lm_loss>,)?[^\r\n]{0,200}? "
            rb"Rate=(?P<samples_per_second>[\d.eE+]{1,40}) samples/sec",
            torn=rb"Device=[^\r\n]{0,4000}Device=|\bBatch=|, Loss=(?:[-+\d.eE]{1,40}|nan|inf), (?!(?:Global)?Rate=)",
            facts=(
                rb"Effective batch size is <global_batch_size>(?![\w-])",
                rb"Preparing to execute using <num_devices> CSX\b",
            ),
            refused=(
                (rb"\| ?Eval Device=",),
                "evaluation only: the log has no training step, and the rate of an evaluation is none of training",
            ),
        ),
    ),
    Dialect(
        name="graphcore",
        title="Graphcore examples (GPT-2, GPT-J, BERT)",
        source="graphcore/examples nlp/gpt2/pytorch/train_gpt2.py, nlp/gpt_j/popxl/run_finetuning.py, "
        "nlp/bert/pytorch/run_pretraining.py, nlp/bert/popart/utils/iteration.py",
        example="step 20 of epoch 0, loss: 7.5, acc: 0.1, lr: 0.0001, throughput: 64.0 samples/sec",
        trap="the rate is of samples of the machine, for image models just the same; their length is not printed",
        needles=(b" samples/s", b" sequences/s", b"[INFO] accuracy: "),
        parser=Pattern(
            record=(
                rb"\bstep <iteration> of epoch (?P<gpt2_epoch>\d{1,9}), loss: [^\r\n]{0,200}?, lr: [-+\d.eE]{1,40}, throughput: "
                + _SAMPLES,
                # PopTorch BERT, as a bar or as a line.
                rb"\bStep: <iteration> / <total_iterations> - LR: [-+\d.eE]{1,40} - Loss: <lm_loss> - [^\r\n]{0,400}?"
                + _SAMPLES,
                # PopXL.
                rb"\bStep: <iteration>/<total_iterations> Loss: {1,9}<lm_loss> Duration: {1,9}[\d.]{1,30} s [Tt]hroughput: {1,9}"
                + _SAMPLES,
                # PopART BERT; inference has no learning rate.
                rb"\bIteration: {1,9}<iteration>(?:/<total_iterations>)? [^\r\n]{0,300}?"
                rb"Learning Rate: [-+\d.eE]{1,40} Duration: {1,9}[\d.]{1,30} s Throughput: {1,9}" + _SAMPLES,
            ),
            refused=(
                (rb"\[INFO\] throughput: [\d.]{1,30} samples/sec", rb"\[INFO\] accuracy: [\d.]{1,30} %"),
                "not an LLM training log: samples per second beside an accuracy in percent are those of a classification",
            ),
            reads_each_line=False,
            reading=_Graphcore,
        ),
        counts_from=0,
    ),
    Dialect(
        name="neuronx-distributed",
        title="AWS Neuron, neuronx-distributed examples",
        source="aws-neuron/neuronx-distributed examples/training/llama (tp_zero1 and tp_pp: logger.py, training_utils.py)",
        example="LOG Thu Jan  1 10:00:00 2026 - (0, 200) step_loss : 7.1250 learning_rate : 3.00e-05 "
        "throughput : 16.00 seq/s grad-norm : 1.53125",
        trap="throughput is sequences of the machine, a mean of ten steps: the first ones hold the compilation",
        needles=(b" step_loss : ", b"s throughput ", b"Namespace("),
        parser=Pattern(
            record=rb"\bLOG [^\r\n]{10,60}? - \(\d{1,9}, <iteration>\) step_loss : <lm_loss> learning_rate : [-+\d.eE]{1,40} "
            rb"throughput : (?P<samples_per_second>[-+\d.eE]{1,40}|nan|inf)(?=\s|$)",
            facts=_ARGUMENTS,
        ),
    ),
    Dialect(
        name="neuronx-distributed-pipeline",
        title="AWS Neuron, neuronx-distributed examples with pipeline parallelism",
        source="aws-neuron/neuronx-distributed examples/training/llama/tp_pp_llama_hf_pretrain/logger.py",
        example="step 12 step_time 16.5s throughput 64.25 seq/s loss 8.125 grad norm 2.5",
        trap="throughput is a mean of ten steps, step_time of one, and lazy execution makes single ones swing",
        needles=(b"s throughput ", b"Namespace("),
        parser=Pattern(
            record=rb"\bstep <iteration> step_time (?P<elapsed_s>[-+\d.eE]{1,40}|nan|inf)s throughput "
            rb"(?P<samples_per_second>[-+\d.eE]{1,40}|nan|inf) seq/s (?:step )?loss <lm_loss>(?=\s|$)",
            facts=_ARGUMENTS,
        ),
    ),
    Dialect(
        name="mindformers",
        title="MindSpore Transformers (MindFormers)",
        source="mindspore/mindformers mindformers/core/callback/callback.py (MFLossMonitor), "
        "mindformers/pynative/callback (LossCallback)",
        example="2026-01-01 10:00:00,000 - [mindformers/core/callback/callback.py:529] - INFO - "
        "{ Epoch:[  1/  2], step:[   10/  100], loss: 8.500, per_step_time: 2000ms, lr: 1e-05, overflow cond: False, "
        "loss_scale: 1.0, global_norm: [1.5], train_throughput_per_npu: 150.000T",
        trap="train_throughput_per_npu is in TFLOP/s, samples/s/p is of one processor, the first step compiles",
        needles=(b"per_step_time:", b", loss_scale:", b", overflow cond:"),
        parser=Pattern(
            record=rb"(?:\{ ?)?(?:Epoch:\[ {0,9}(?P<epoch>\d{1,9})/ {0,9}(?P<epochs>\d{1,9})\], )?"
            rb"\bstep:? ?\[? {0,9}<iteration> ?/ {0,9}<total_iterations>\]?, "
            rb"loss:? ?\[? {0,20}(?:<lm_loss>|N/A)[^\r\n]{0,200}?"
            rb"(?:per_step_time: {0,9}|, time: {0,9})<elapsed_ms> ?ms",
            reading=_MindFormers,
        ),
    ),
)
