"""What a log shows of how the training was set up: framework, batch, workers, GPU, and switches that matter."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oomproof.diagnosis.amounts import amount
from oomproof.diagnosis.facts import Line, Setup
from oomproof.diagnosis.patterns import Pattern, any_of
from oomproof.errors import InputError

_FRAMEWORKS: Sequence[tuple[str, re.Pattern[str]]] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        (
            "ultralytics",
            r"ultralytics[/\\ ](?!yolov5)|Ultralytics (?:YOLO)?v?8|Ultralytics \d|\byolo (?:task="
            r"|train|detect|segment)",
        ),
        ("yolov5", r"YOLOv5|yolov5|yolov3[/\\]|yolov7"),
        ("yolox", r"yolox[/\\.]|YOLOX"),
        ("darknet", r"\bdarknet\b(?!53|19)|dark_cuda\.c|\bcuda_make_array\b"),
        ("mmseg", r"mmseg"),
        ("mmdet", r"mmdet|mmengine|mmcv|mmrotate"),
        ("caffe2", r"caffe2[/\\.]"),
        ("detectron2", r"detectron2|d2\.|\bIMS_PER_BATCH"),
        ("maskrcnn-benchmark", r"maskrcnn_benchmark|fcos_core"),
        ("transformers", r"transformers[/\\]|per_device_train_batch_size|\*{5} Running training"),
        ("lightning", r"pytorch_lightning|lightning[/\\.]pytorch|lightning_fabric|Trainer\.fit"),
        ("timm", r"Data processing configuration for current model|^Training with a single process on \d"),
        ("nnunet", r"nnunet|nnUNet|batchgenerators"),
        ("paddle", r"paddle|Out of memory error on GPU \d"),
        ("matterport", r"mrcnn[/\\_.]|\bIMAGES_PER_GPU|TRAIN_ROIS_PER_IMAGE"),
        (
            "tfod",
            r"object_detection[/\\.]|pipeline\.config|model_main(?:_tf2)?\.py|model_lib"
            r"|(?:First|Second)Stage(?:FeatureExtractor|BoxPredictor)|WeightSharedConvolutionalBoxPredictor",
        ),
        ("caffe", r"\bcaffe\.cpp:\d|\bcaffe::|syncedmem\.cpp:\d"),
        ("dlib", r"\bdlib::|dlib/dnn"),
        ("jax", r"\bjax[/\\.]|jaxlib|flax|\bjit\("),
        ("keras", r"keras|\d(?:m|u)?s/step\b"),
        (
            "tensorflow",
            r"tensorflow|allocator GPU_\d+_bfc|/job:localhost/replica|\[Op:\w{1,80}\]|\{\{node |No algorithm worked!",
        ),
        ("torch", r"\btorch[/\\.]|PyTorch|CUDA out of memory|MPS backend|DefaultCPUAllocator|DataLoader worker"),
    )
)
_BATCH = Pattern(
    r"(?:per_device_train_batch_size|train_batch_size|IMS_PER_BATCH|samples_per_gpu"
    r"|(?<!eval_)(?<!val_)(?<!test_)(?<!valid_)(?<!validation_)[Bb]atch[ _-]?[Ss]ize|batch_size_per_(?:gpu|card)"
    r"|\bmini_batch|\bbatch|\bbs)['\"]?\s{0,3}[=: ]\s{0,3}['\"]?(\d{1,6})\b(?!\s*/|\.\d)"
)
_OF_AN_EVALUATION = re.compile(
    r"\s{0,8}['\"]?(?:val|valid|validation|eval|evaluation|test)(?:_\w{1,30})?['\"]?\s?[=:]\s?(?:dict\(|\{|$)"
)
"""where a configuration begins to speak of the evaluation, up to its next line that is not indented"""
_WORKERS = any_of(
    r"(?:num_workers|NUM_WORKERS|workers_per_gpu|dataloader_num_workers|\bworkers"
    r"|worker_num)['\"]?\s{0,3}[=: ]\s{0,3}['\"]?(\d{1,4})\b",
    r"Using (\d{1,4}) dataloader workers",
)
_EPOCHS = any_of(
    r"(?:max_epochs|num_epochs|n_epochs|total_epochs|num_train_epochs"
    r"|\bepochs)['\"]?\s{0,3}[=: ]\s{0,3}['\"]?(\d{1,6})\b(?!\s*/|\.\d)",
    r"\bfor (\d{1,6}) epochs\b",
    r"\bmax: (\d{1,6}) epochs\b",
)
_CARD = re.compile(r"((?:NVIDIA |GeForce |Tesla |Quadro )[A-Z][\w -]{1,40}?)(?:,|\)|\s{2,}|\(|$| with| pci|: )")
_CARD_SIZE = re.compile(r"totalMemory: ([\d.]{1,8}GiB) freeMemory: ([\d.]{1,8}[KMG]iB)")
_CARD_MIB = re.compile(r"(?:NVIDIA|GeForce|Tesla|Quadro|CUDA:\d)[^,\n]{0,60}, (\d{4,6})Mi?B")
_POOL = re.compile(r"device:GPU:\d+ with (\d{1,7}) MB memory\)?.{0,120}name: ([^,]{1,60})")
_SMI = re.compile(r"(\d{1,6})MiB /\s*(\d{3,6})MiB")
_SWITCHES: Sequence[tuple[str, re.Pattern[str]]] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        (
            "benchmark_off",
            r"benchmark['\"]?\s*[=:]?\s*(?:off|False|disabled)|(?:no|without)[-_ ](?:cudnn[-_. ])?benchmark",
        ),
        ("benchmark", r"cudnn[._]benchmark['\"]?\s*[=:]\s*True|CUDNN_BENCHMARK:? True|--cudnn[_-]benchmark"),
        (
            "multiscale",
            r"multi[_-]?scale['\"]?\s*[=: ]\s*True|--multi[_-]scale|RandomChoiceResize"
            r"|RandomResize|multiscale_mode|MIN_SIZE_TRAIN:? \(?\[?\d+, \d+|random_size"
            r"|\[multi[_-]scale",
        ),
        (
            "cap",
            r"per_process_gpu_memory_fraction|gpu_memory_fraction|set_per_process_memory_fraction"
            r"|memory_limit['\"]?\s*=|set_logical_device_configuration"
            r"|set_virtual_device_configuration|XLA_PYTHON_CLIENT_MEM_FRACTION"
            r"|gpu_options\.per_process",
        ),
        (
            "cache",
            r"cache_dataset_ops|\bCacheDataset\(|dataset\.cache\(\)"
            r"|cache['\"]?\s*[=:]\s*['\"]?(?:True|ram)|--cache(?:-images)?\b(?! disk)",
        ),
        (
            "generator",
            r"fit_generator|use_multiprocessing|max_queue_size|GeneratorEnqueuer|OrderedEnqueuer"
            r"|keras\.utils\.Sequence|ImageDataGenerator",
        ),
        (
            "eval_job",
            r"Waiting for new checkpoint|--checkpoint_dir|eval_continuously|eager_eval_loop"
            r"|legacy/eval\.py|\beval\.py --|evaluator\.py",
        ),
        (
            "kubernetes",
            r"kubectl|kubelet|Kubernetes|\bpod\b|Namespace:|\bReason: +(?:OOM|Evicted|Error|Completed|\w+BackOff)"
            r"|node was low on resource",
        ),
        ("slurm", r"slurm|srun|sbatch"),
        ("batch_option", r"(?:^|\s)--batch[-_]size[ =]\d"),
    )
)
MOST_BATCHES = 100
MOST_TABLES = 64
_ADVICE = re.compile(r"see documentation|to avoid fragmentation|If reserved|try setting", re.IGNORECASE)


def setup(lines: Sequence[Line]) -> Setup:
    """The last value wins: logs of several runs end with the run that is asked about."""
    # What builds on PyTorch or Keras tells more than these do: the list is in that order, and only looked at so far.
    best = len(_FRAMEWORKS)
    batches = _find_batches(lines)
    workers = epochs = card = pool = free = None
    gpu = ""
    in_use: list[tuple[int, int, int]] = []
    found: dict[str, str] = {}
    for line in lines:
        content = line.text[:1500]
        best = next((place for place in range(best) if _FRAMEWORKS[place][1].search(content)), best)
        if "=" in content or ":" in content:
            workers = _integer(_WORKERS, content, workers)
        if "poch" in content:
            epochs = _integer(_EPOCHS, content, epochs)
        if "MiB" in content or "GiB" in content or "MB" in content:
            if sizes := _CARD_SIZE.search(content):
                card, free = amount(sizes[1]), amount(sizes[2])
            elif sizes := _CARD_MIB.search(content):
                card = amount(f"{sizes[1]}M")
            elif sizes := _SMI.search(content):
                card = amount(f"{sizes[2]}M")
                in_use.append((line.number, int(sizes[1]) << 20, int(sizes[2]) << 20))
            if made := _POOL.search(content):
                pool, gpu = amount(f"{made[1]}M"), made[2].strip()
        if not gpu and (named := _CARD.search(content)):
            gpu = named[1].strip()
        for switch, pattern in _SWITCHES:
            if switch not in found and pattern.search(content) and not _ADVICE.search(content):
                found[switch] = f"line {line.number}: {' '.join(content.split())[:160]}"
    return Setup(
        framework=_FRAMEWORKS[best][0] if best < len(_FRAMEWORKS) else "",
        batch=batches[-1][1] if batches else None,
        batches=batches,
        epochs=epochs,
        workers=workers,
        gpu=gpu,
        card=card or _size_of(gpu),
        pool=pool,
        free_at_start=free,
        in_use=tuple(in_use[:MOST_TABLES]),
        found=found,
    )


def _find_batches(lines: Sequence[Line]) -> tuple[tuple[int, int], ...]:
    """Every line that names another batch of the training than before."""
    found: list[tuple[int, int]] = []
    of_an_evaluation = False
    for line in lines:
        content = line.text[:1500]
        if _OF_AN_EVALUATION.match(content):
            of_an_evaluation = True
        elif not content.startswith((" ", "\t", ")", "}")):
            of_an_evaluation = False
        if of_an_evaluation or not ("=" in content or ":" in content or "atch" in content):
            continue
        batch = _integer(_BATCH, content, None)
        if batch is not None and (not found or found[-1][1] != batch):
            found[MOST_BATCHES - 1 :] = [(line.number, batch)]
    return tuple(found)


def _integer(pattern: Pattern, content: str, known: int | None) -> int | None:
    found = pattern.search(content)
    value = next((group for group in found.groups() if group), None) if found else None
    return int(value) if value else known


def _size_of(gpu: str) -> int | None:
    if not gpu:
        return None
    from oomproof.memory.cards.devices import find_device

    try:
        return find_device(gpu).total
    except InputError:
        return None
