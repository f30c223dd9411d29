"""The third line: what to do next exists in the framework and the version that the log is from, and fits the case."""

from __future__ import annotations

from pathlib import Path

import pytest

import oomproof

CORPUS = Path(__file__).parent / "corpus"
IDLE = "Tried to allocate 1.00 GiB (GPU 0; 10.00 GiB total capacity; 5.00 GiB already allocated; 100.00 MiB free; "


@pytest.mark.parametrize(
    ("message", "advised"),
    [
        (f"RuntimeError: CUDA out of memory. {IDLE}4.60 GiB cached)", "torch.cuda.empty_cache()"),
        (f"RuntimeError: CUDA out of memory. {IDLE}9.60 GiB reserved in total by PyTorch)", "torch.cuda.empty_cache()"),
        (
            f"RuntimeError: CUDA out of memory. {IDLE}9.60 GiB reserved in total by PyTorch) If reserved memory is >> "
            "allocated memory try setting max_split_size_mb to avoid fragmentation.",
            "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb",
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of "
            "10.00 GiB of which 100.00 MiB is free. Of the allocated memory 5.00 GiB is allocated by PyTorch, and 4.60 "
            "GiB is reserved by PyTorch but unallocated.",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        ),
    ],
    ids=["1.3", "1.9", "1.12", "2.5"],
)
def test_fragmentation_is_met_with_what_the_version_has(message: str, advised: str) -> None:
    found = oomproof.explain([message])
    assert found.cause == "fragmentation"
    assert found.next.startswith(advised)


@pytest.mark.parametrize(
    ("log", "advised"),
    [
        ("model_or_image_too_big/adam_state", "AdamW8bit"),
        ("model_or_image_too_big/weights_half_jetson", "torch.bfloat16"),
        ("model_or_image_too_big/batch_one_seg", "autocast"),
        ("tf_memory_cap/torch_set_fraction", "torch.cuda.set_per_process_memory_fraction"),
        ("tf_memory_cap/logical_device", "LogicalDeviceConfiguration"),
        ("train_and_eval_together/legacy_eval_py", "legacy/eval.py"),
        ("masked_oom/jax_dnn_initialization", "XLA_PYTHON_CLIENT_PREALLOCATE=false"),
        ("gt_boxes/torchvision_box_iou", "matching=chunked"),
        ("gt_boxes/hf_rtdetr_hungarian", "crop"),
        ("host_too_small/dmesg_chrome", "ps aux"),
        ("host_too_small/kubernetes_evicted", "requests: {memory: 71Gi}"),
        ("container_limit/kubectl_describe", "limits: {memory: 36Gi}"),
        ("container_limit/slurm_old_limit", "#SBATCH --mem=60G"),
        ("batch_too_big/timm_swin", "--batch-size 64"),
        ("batch_too_big/caffe_syncedmem", "batch_size: 16 in the prototxt"),
        ("batch_too_big/sagemaker_batch_option", "--batch-size 32"),
        ("batch_too_big/darknet_mini_batch", "subdivisions="),
        ("batch_too_big/matterport_starting_at_epoch", "IMAGES_PER_GPU = 2"),
        ("host_generators/matterport_killed", "keras_model.fit_generator("),
        ("host_image_cache/monai_loading_dataset", "PersistentDataset"),
        ("eval_postprocess/monai_sliding_window", "device='cpu'"),
        ("gt_boxes/dino_contrastive_denoising", "dn_number"),
        ("leak/tf_gpu_current", "get_memory_info"),
        ("leak/mps_driver_allocated", "torch.mps.current_allocated_memory()"),
    ],
)
def test_the_next_step_fits_the_case(log: str, advised: str) -> None:
    assert advised in oomproof.explain(CORPUS / f"{log}.log").next


def test_keras_3_has_its_arguments_elsewhere() -> None:
    for file, advised in (
        ("keras/utils/data_utils.py", "model.fit("),
        ("keras/src/trainers/data_adapters/py_dataset_adapter.py", "PyDataset"),
    ):
        frame = f'  File "/e/site-packages/{file}", line 9, in get'
        log = f"Traceback (most recent call last):\n{frame}\n    return self.dataset[i]\nMemoryError\n"
        found = oomproof.explain(log)
        assert found.cause == "host_generators"
        assert advised in found.next


CAUGHT = (
    "CUDA out of memory. Tried to allocate 800.00 MiB. GPU 0 has a total capacity of 11.76 GiB of which 310.00 MiB is "
    "free."
)


def test_a_failure_that_the_program_outlived_is_none() -> None:
    steps = ["Epoch: [0]  [ 10/90]", "Epoch: [0]  [ 20/90]"]
    assert oomproof.explain([CAUGHT, *steps]).cause == "benign_warning"
    assert oomproof.explain([*steps, CAUGHT]).is_memory
    assert oomproof.explain([f"torch.OutOfMemoryError: {CAUGHT}", *steps]).is_memory


@pytest.mark.parametrize(
    "line",
    [
        "MyFrameworkError: GPU ran out of memory. Please reduce the batch size if you can",
        "foo.bar.DeviceError: failed to allocate buffer of 123456789 bytes; see https://example.org",
        "java.lang.OutOfMemoryError: Java heap space",
        "ResourceExhausted: out of memory",
    ],
)
def test_unknown_programs_that_ran_out_are_not_called_another_error(line: str) -> None:
    assert oomproof.explain([line]).is_memory


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: oom handling must be 'skip' or 'raise'",
        "KeyError: 'out of memory'",
        "AssertionError: not enough memory slots configured",
        "RuntimeError: cannot allocate resources for trial",
        "OSError: [Errno 5] Input/output error",
        "cv2.error: OpenCV(4.5.5) resize.cpp:4052: error: (-215:Assertion failed) !ssize.empty() in function 'resize'",
        "google.api_core.exceptions.ResourceExhausted: 429 Quota exceeded",
        "ImportError: libgomp.so.1: cannot allocate memory in static TLS block",
    ],
)
def test_errors_that_only_sound_like_it(line: str) -> None:
    assert oomproof.explain([line]).cause == "not_memory"


def test_an_error_that_training_outlived_does_not_explain_a_kill() -> None:
    error, steps = "ValueError: image 17 is broken, skipped", ["Epoch 1/9", "Epoch 2/9"]
    assert oomproof.explain([error, *steps, "Killed"]).cause == "host_too_small"
    assert oomproof.explain([*steps, error, "Killed"]).cause == "not_memory"


def test_names_of_loggers_are_no_exceptions() -> None:
    assert oomproof.explain(["pkg.engine.Trainer: warming up", "Killed"]).cause == "host_too_small"


def test_the_tail_that_a_supervisor_keeps_may_be_bytes(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("Shuffle buffer filled.\nKilled\n")
    assert oomproof.explain([b"Shuffle buffer filled.\n", b"Killed\n"]).cause == "host_shuffle_buffer"
    with path.open("rb") as stream:
        assert oomproof.explain(stream).cause == "host_shuffle_buffer"
    with path.open() as stream:
        assert oomproof.explain(stream).cause == "host_shuffle_buffer"


@pytest.mark.parametrize(
    "last",
    [
        "No algorithm worked!  Error messages:",
        "NOT_FOUND: nothing worked for this convolution [Op:__inference_train_function_9921]",
        "\t [[{{node model/conv2d_7/Conv2D}}]]",
    ],
)
def test_tensorflow_is_known_without_its_name(last: str) -> None:
    trial = "Profiling failure on CUDNN engine eng28: RESOURCE_EXHAUSTED: Allocating 9663676416 bytes exceeds the limit"
    found = oomproof.explain([trial, last])
    assert found.facts["framework"] == "tensorflow"
    if "No algorithm worked" in last:
        assert "TF_CUDNN_USE_AUTOTUNE" in found.next and "torch" not in found.next
