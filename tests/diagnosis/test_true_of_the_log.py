"""Every sentence is true of its log: figures of the run that failed, libraries by their names, no guess as a fact."""

from __future__ import annotations

from pathlib import Path

import pytest

import oomproof

CORPUS = Path(__file__).parent / "corpus"


def explain(log: str) -> oomproof.Diagnosis:
    return oomproof.explain(CORPUS / f"{log}.log")


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("container_limit/kubernetes_limit_above_request", "memory limit of 48.00 GiB"),
        ("container_limit/htcondor_held", "the job's memory limit of 16.00 GiB"),
        ("batch_too_big/second_run_with_half_the_batch", "batch 32 does not fit"),
        ("cudnn_workspace/keras_profiling_exceeds_limit", "6 were refused, the largest with 840 MiB"),
        ("cudnn_workspace/miopen_buffer", "MIOpen found no room"),
        ("masked_oom/nccl_cuda_failure", "no room was left for NCCL itself"),
        ("shm_too_small/nccl_segment_of_shm", "through which NCCL's processes exchange gradients"),
        ("host_too_small/rss_level_then_killed", "«rss» stayed near 20"),
        ("not_memory/fallen_off_the_bus_then_launch_failure", "the GPU itself reports a fault"),
        ("not_memory/driver_803", "the driver and the framework do not go together"),
        ("not_memory/hangup", "the terminal it ran in was closed"),
        ("not_memory/port_in_use", "another process listens on the port"),
        ("gt_boxes/mask2former_matcher", "matching boxes with queries"),
        ("container_limit/pbs_cgroup", "the job's memory limit"),
        ("host_eval_results/rss_grows_in_evaluation", "«rss» rises from 8.10 GiB"),
        ("not_memory/tensorflow_without_libcudart", "the run ended with ValueError"),
        ("leak/swin_with_tests_between", "epoch 3 step 1200"),
        ("host_masks/matterport_masks_are_the_last_side", "1,250 masks x 1024 x 1024 pixels"),
        ("eval_postprocess/lightning_sanity_check", "a batch of the evaluation does not fit"),
        ("not_memory/cuda_error_804", "the driver and the framework do not go together"),
        ("batch_too_big/darknet_mini_batch", "batch 16 does not fit"),
        ("eval_postprocess/monai_sliding_window", "the whole volume"),
        ("gt_boxes/dino_contrastive_denoising", "the denoising queries"),
        ("host_shuffle_buffer/tf1_filled_at_two_thirds", "it had just been filled"),
        ("other_process/nvidia_smi_before_the_start", "held 23.64 GiB of 24.00 GiB before this one began"),
    ],
)
def test_what_is_said(log: str, said: str) -> None:
    found = explain(log)
    assert said in f"{found.verdict}; {found.why}"


@pytest.mark.parametrize(
    ("log", "advised", "never"),
    [
        ("shm_too_small/nccl_segment_of_shm", "NCCL_SHM_DISABLE", "num_workers"),
        ("eval_postprocess/mmseg_whole_inference", "mode='slide'", "max_per_img"),
        ("gt_boxes/mask2former_matcher", "fewer queries", "ANCHOR"),
        ("xla_compile/torch_xla_hbm", "bfloat16", "XLA_PYTHON_CLIENT"),
        ("container_limit/sagemaker_instance", "machine type", "in the pod's manifest"),
        ("host_whole_dataset/keras_array_to_the_gpu", "batch by batch", "most boxes"),
        ("host_whole_dataset/pandas_c_error", "chunksize", "np.load"),
        ("benign_warning/nnunet_moved_to_cpu", "smaller images", "boxes"),
        ("host_too_small/wsl_pin_memory", "pin_memory=False", "batch_size"),
        ("eval_postprocess/keras_validation_batch", "validation_batch_size", ".cpu()"),
        ("eval_postprocess/keras_predict_concatenates", "predict_on_batch", ".cpu()"),
        ("checkpoint_on_gpu/zero3_consolidates", "stage3_gather", "StateDictOptions"),
        ("host_whole_dataset/keras_validation_split", "batch by batch", "batch_size"),
        ("eval_postprocess/yolov5_val_forward", "--noval", "masks"),
    ],
)
def test_advice_is_of_that_library(log: str, advised: str, never: str) -> None:
    found = explain(log)
    assert advised in found.next
    assert never not in found.next


def test_a_refusal_without_figures_is_not_said_to_be_the_batch() -> None:
    found = oomproof.explain(
        ["Epoch 1/9", "gpuarray.GpuArrayException: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY: out of memory"]
    )
    assert found.cause == "batch_too_big"
    assert "most likely" in found.verdict
    assert found.next.startswith("one step with a batch of 1 shows")


OOM = (
    "RuntimeError: CUDA out of memory. Tried to allocate {asked} GiB (GPU 0; 10.00 GiB total capacity; 9.00 GiB "
    "already allocated; 0.50 GiB free; 9.20 GiB reserved in total by PyTorch)"
)


@pytest.mark.parametrize(("asked", "cause"), [("0.60", "leak"), ("2.50", "variable_shape")])
def test_growth_that_is_too_little_did_not_end_the_run(asked: str, cause: str) -> None:
    grown = [f"step {100 * step} loss 0.5 gpu {8.7 + step / 100:.2f}G" for step in range(30)]
    found = oomproof.explain([*grown, OOM.format(asked=asked)])
    assert found.cause == cause
    assert ("too little to fill the card" in found.why) == (cause == "variable_shape")


FORWARD = ['  File "net.py", line 9, in forward', "    x = self.block(x)", OOM.format(asked="2.00")]


@pytest.mark.parametrize(
    ("call", "cause"),
    [
        ("trainer.fit(model, train_loader, val_loader)", "batch_too_big"),
        ("model.train(data=d, val=True)", "batch_too_big"),
        ("trainer.train(resume_from_checkpoint=args.resume)", "batch_too_big"),
        ("score = evaluate(model, val_loader)", "eval_no_grad"),
    ],
)
def test_what_is_handed_to_a_training_is_not_what_it_does(call: str, cause: str) -> None:
    stack = ["Traceback (most recent call last):", '  File "t.py", line 3, in <module>', f"    {call}", *FORWARD]
    assert oomproof.explain(["epoch 0 step 0", *stack]).cause == cause


BARE = "RuntimeError: CUDA error: out of memory"


def test_late_and_without_any_figure_is_not_known_to_be_the_data() -> None:
    found = oomproof.explain([*(f"step {step} loss 0.5" for step in range(0, 900, 50)), BARE])
    assert "cannot tell which of two" in found.verdict
    assert found.alternatives == ("leak",)


def test_a_program_of_xla_that_had_run_is_not_too_large_for_the_device() -> None:
    steps = [f"[{step}] train_loss=1.5, steps_per_second=3.1" for step in range(0, 900, 50)]
    last = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 2147483648 bytes."
    assert oomproof.explain([*steps, last]).cause != "xla_compile"
    assert oomproof.explain([last]).cause == "xla_compile"


def test_counts_with_commas_are_read_whole() -> None:
    steps = [f"<epoch: {step // 4}, iter:   {step},{step}00, lr:1.000e-04> l_pix: 0.3" for step in range(4, 10)]
    found = oomproof.explain([*steps, OOM.format(asked="2.00")])
    assert found.facts["step"] == 9900
    assert found.cause == "variable_shape"


def test_a_resumed_optimizer_had_fitted() -> None:
    stack = ["Traceback (most recent call last):", '  File "/e/torch/optim/adamw.py", line 171, in step', "    adamw("]
    alone = oomproof.explain(["epoch 0", *stack, OOM.format(asked="1.00")])
    resumed = oomproof.explain(["resumed epoch: 12, iter: 14400", *stack, OOM.format(asked="1.00")])
    assert (alone.cause, resumed.cause) == ("model_or_image_too_big", "checkpoint_on_gpu")


@pytest.mark.parametrize(
    ("line", "resumes"),
    [
        ("train: weights=yolov5m.pt, epochs=120, batch_size=24, resume=False, workers=8", False),
        ("Namespace(batch_size=24, resume='', start_epoch=0)", False),
        ("Namespace(resume=None, batch_size=24)", False),
        ("python train.py --resume none --batch-size 24", False),
        ("resume: null", False),
        ("resume:", False),
        ("Resuming training from epoch 9", True),
        ("resume: runs/last.ckpt", True),
    ],
)
def test_an_option_that_is_off_resumes_nothing(line: str, resumes: bool) -> None:
    found = oomproof.explain([line, "epoch 0 step 0", OOM.format(asked="2.00")])
    assert ("checkpoint_on_gpu" in [cause.id for cause in found.causes]) == resumes


@pytest.mark.parametrize(
    "line",
    [
        "Validation samples: 1000",
        "Validation: 500 images",
        "Test images 200",
        "val: data/val.txt",
        "evaluation = dict(interval=1, metric='bbox')",
        "Evaluation interval: 5",
        "validation dataset loaded",
    ],
)
def test_to_say_what_is_evaluated_on_is_no_evaluation(line: str) -> None:
    stack = ["Traceback (most recent call last):", '  File "net.py", line 30, in forward', "    x = self.conv(x)"]
    found = oomproof.explain(["training samples: 9000", line, *stack, OOM.format(asked="2.00")])
    assert found.cause == "batch_too_big"


@pytest.mark.parametrize(
    "lines",
    [
        ["train_dataloader = dict(", "    batch_size=6,", ")", "val_dataloader = dict(", "    batch_size=1,", ")"],
        ["train_dataloader = dict(batch_size=6)", "val_dataloader = dict(batch_size=1)"],
        ["batch_size: 6", "val_batch_size: 1"],
        ["per_device_train_batch_size=6,", "per_device_eval_batch_size=1,"],
        ["train:", "  batch_size: 6", "val:", "  batch_size: 1", "seed: 4"],
    ],
    ids=["blocks", "lines", "names", "arguments", "yaml"],
)
def test_the_batch_of_an_evaluation_is_not_that_of_the_training(lines: list[str]) -> None:
    found = oomproof.explain([*lines, "epoch 0 step 0", OOM.format(asked="2.00")])
    assert found.facts["batch"] == 6
    assert found.cause == "batch_too_big"
