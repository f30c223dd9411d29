"""What is said beside the cause: figures that are right, steps that the framework has, nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

import oomproof

CORPUS = Path(__file__).parent / "corpus"
KILL = "Out of memory: Killed process 811 (python3) total-vm:71312244{gap}kB, anon-rss:{held}kB, shmem-rss:0kB, UID:0"
REAPER = "[61.2] oom_reaper: reaped process 811 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:12296kB"
TF = "ResourceExhaustedError: OOM when allocating tensor with shape{shape} on /device:GPU:0 by allocator GPU_0_bfc"


@pytest.mark.parametrize("gap", ["", " " * 90])
def test_what_the_killed_process_held_is_said_of_before_the_kill(gap: str) -> None:
    first = "[61.0] oom-kill:constraint=CONSTRAINT_NONE,global_oom,task_memcg=/user.slice,task=python3,pid=811,uid=0"
    found = oomproof.explain([first, f"[61.1] {KILL.format(gap=gap, held=25 << 20)}", REAPER])
    assert "which held 25.00 GiB" in found.verdict
    assert found.facts["process"] == 25 << 30


@pytest.mark.parametrize(
    ("shape", "node", "step"),
    [
        ("[400,256,14,14]", "mrcnn_mask_conv2/convolution", "TRAIN_ROIS_PER_IMAGE"),
        ("[4,64,256,256]", "res2a_branch2a/convolution", "dataset.batch(2)"),
        ("[48,64,300,300]", "FirstStageFeatureExtractor/Conv2d_1a_7x7", "batch_size: 24"),
        ("[600,17,17,1088]", "SecondStageFeatureExtractor/Mixed_6a", "first_stage_max_proposals"),
        ("[300,17,17,1088]", "ROI_pool/Conv2D", "fewer boxes or proposals"),
        ("[32,64,128,128]", "conv1/Conv2D", "dataset.batch(16)"),
    ],
)
def test_a_tensor_of_boxes_is_no_batch(shape: str, node: str, step: str) -> None:
    found = oomproof.explain([TF.format(shape=shape), f"\t [[Node: {node} = Conv2D[T=DT_FLOAT]]]"])
    assert found.cause == "batch_too_big"
    assert step in found.next
    boxes = "batch" not in step
    assert ("boxes or crops, not images" in found.why) == boxes
    assert ("this batch" in found.verdict) == boxes


def test_a_suppression_gets_fewer_boxes_not_masks() -> None:
    frames = [
        "Traceback (most recent call last):",
        '  File "t.py", line 9, in test',
        "    out = non_max_suppression(p)",
    ]
    inner = ['  File "utils/general.py", line 7, in non_max_suppression', "    keep = torchvision.ops.nms(b, s, 0.6)"]
    found = oomproof.explain([*frames, *inner, "RuntimeError: CUDA out of memory. Tried to allocate 7.00 GiB"])
    assert found.cause == "eval_postprocess"
    assert "conf_thres" in found.next
    assert "masks" not in found.next


@pytest.mark.parametrize(
    ("asked", "said"), [("16.00", "more than all of the device's 15.50 GiB"), ("31.00", "2.0 times")]
)
def test_one_time_is_not_a_multiple(asked: str, said: str) -> None:
    message = (
        f"CUDA out of memory. Tried to allocate {asked} GiB. GPU 0 has a total capacity of 15.50 GiB of which 15 GiB"
    )
    found = oomproof.explain([f"torch.OutOfMemoryError: {message} is free."])
    assert found.cause == "outlier_or_bug"
    assert said in found.why


def test_one_cure_for_two_causes_is_said_once() -> None:
    found = oomproof.explain(
        ["tensorflow.errors.InternalError: Blas GEMM launch failed : a.shape=(32, 4096), b.shape=(4096, 8), m=32, n=8"]
    )
    assert found.alternatives
    assert found.next.count("set_memory_growth") == 1


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ("(9000, 300, 300, 3)", "9,000 images at once"),
        ("(9000, 2048, 3)", "9,000 samples at once"),
        ("(700, 512, 512)", "700 slices or images at once"),
        ("(700, 512, 3)", "is one image"),
    ],
)
def test_what_an_array_counts(shape: str, said: str) -> None:
    error = f"MemoryError: Unable to allocate 6.00 GiB for an array with shape {shape} and data type float64"
    stack = [] if "512)" in shape else ['  File "prepare.py", line 5, in load_data', "    x = np.array(parts)"]
    found = oomproof.explain([*stack, error])
    assert found.cause == "host_whole_dataset"
    assert said in found.why


def test_a_detector_that_went_on_on_the_cpu() -> None:
    warning = "WARNING: CUDA OutOfMemoryError in TaskAlignedAssigner, using CPU"
    ended = oomproof.explain(["Epoch 1/9 step 3 loss 0.4", warning])
    assert (ended.cause, "no step behind it" in ended.why) == ("benign_warning", True)
    assert "boxes" in ended.next
    went_on = oomproof.explain([warning, "Epoch 1/9 step 4 loss 0.4"])
    assert "the run went on (line 2)" in went_on.why
    assert went_on.causes[0].confidence > ended.causes[0].confidence


def test_another_errors_traceback_is_not_that_of_the_message_before_it() -> None:
    log = (CORPUS / "checkpoint_on_gpu" / "logged_before_its_traceback.log").read_text().splitlines()
    assert oomproof.explain([*log, "FileNotFoundError: best.pt"]).cause == "batch_too_big"


def test_a_job_that_was_killed_while_it_loaded() -> None:
    found = oomproof.explain(CORPUS / "host_too_small" / "loading_shards_minus_9.log")
    assert "while it loaded a checkpoint" in found.verdict
    assert "low_cpu_mem_usage" in found.next


def test_matterports_own_settings() -> None:
    log = ["IMAGES_PER_GPU                 4", TF.format(shape="[4,64,256,256]"), "\t [[{{node conv1/convolution}}]]"]
    found = oomproof.explain(log)
    assert "IMAGES_PER_GPU = 2 in the Config" in found.next


@pytest.mark.parametrize("shape", ["[1024,32,224,224]", "[512,28,28,32]"])
def test_a_large_batch_is_not_taken_for_boxes(shape: str) -> None:
    found = oomproof.explain([TF.format(shape=shape), "\t [[Node: conv1_1/convolution = Conv2D[T=DT_FLOAT]]]"])
    assert found.next == "dataset.batch(N/2)"
    assert "boxes" not in found.why


def test_a_turned_activation_is_no_weight() -> None:
    node = "gradients/conv1/convolution_grad/Conv2DBackpropFilter{}"
    turned = node.format("-0-TransposeNHWCToNCHW-LayoutOptimizer")
    log = [TF.format(shape="[16,256,28,28]"), f"\t [[Node: {turned} = Transpose[T=DT_FLOAT]]]"]
    assert oomproof.explain(log).cause == "batch_too_big"
    log[1] = f"\t [[Node: {node.format('')} = Conv2DBackpropFilter[T=DT_FLOAT]]]"
    assert oomproof.explain(log).cause == "model_or_image_too_big"


def test_numbers_that_were_cut_off_and_numbers_that_never_were() -> None:
    cut, bare = (
        oomproof.explain([f"RuntimeError: {text}"]) for text in ("CUDA out of memory.", "CUDA error: out of memory")
    )
    assert "cut before" in cut.why
    assert "CUDA_LAUNCH_BLOCKING" not in cut.next
    assert "CUDA_LAUNCH_BLOCKING" in bare.next


def test_where_no_algorithm_works_a_smaller_batch_comes_first() -> None:
    found = oomproof.explain(
        ["train: batch_size=150", "RuntimeError: Unable to find a valid cuDNN algorithm to run convolution"]
    )
    assert found.next.startswith("DataLoader(batch_size=75)")


def test_no_exit_code_that_the_log_does_not_have() -> None:
    assert "137" not in oomproof.explain(["Epoch 1/4", "Killed"]).verdict
    assert "(exit code -9)" in oomproof.explain(["Epoch 1/4", "exits with return code = -9"]).verdict


def test_a_victim_that_held_next_to_nothing() -> None:
    found = oomproof.explain([f"[61.1] {KILL.format(gap='', held=4288)}"])
    assert "something else fills it" in found.why
    assert "ps aux" in found.next


@pytest.mark.parametrize(
    ("lines", "requested"),
    [
        (["XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 19029400304 bytes."], 19029400304),
        (["E local_client.cc:672] Execution of replica 0 failed: Resource exhausted: Out ",
          "of memory while trying to allocate 6520758552 bytes."], 6520758552),
    ],
)  # fmt: skip
def test_how_much_xla_asked_for(lines: list[str], requested: int) -> None:
    found = oomproof.explain(lines)
    assert (found.cause, found.facts["requested"]) == ("xla_compile", requested)


def test_an_operation_that_was_refused_is_no_refusal_of_the_driver() -> None:
    found = oomproof.explain(
        ["ResourceExhaustedError: failed to allocate memory", "\t [[{{node model/h18/ln_2/add_1}}]]"]
    )
    assert found.cause == "batch_too_big"
    assert "driver" not in found.why


def test_a_driver_that_is_too_old() -> None:
    found = oomproof.explain("RuntimeError: The NVIDIA driver on your system is too old (found version 11040).")
    assert "do not go together" in found.verdict
