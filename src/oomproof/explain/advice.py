"""What to do next: a command or a line of the user's own framework for every cause."""

from __future__ import annotations

from oomproof.explain.amounts import text
from oomproof.explain.facts import Facts

SMI = "nvidia-smi --query-compute-apps=pid,used_memory --format=csv"

_BATCH = {
    "ultralytics": "yolo train ... batch={half}",
    "yolov5": "python train.py --batch-size {half} ...",
    "mmdet": "--cfg-options train_dataloader.batch_size={half} (MMDetection 2: data.samples_per_gpu={half})",
    "detectron2": "SOLVER.IMS_PER_BATCH {half} (and SOLVER.BASE_LR by the same factor)",
    "maskrcnn-benchmark": "SOLVER.IMS_PER_BATCH {half}",
    "transformers": "--per_device_train_batch_size {half} --gradient_accumulation_steps 2",
    "lightning": "DataLoader(batch_size={half}) with Trainer(accumulate_grad_batches=2)",
    "tfod": "train_config {{ batch_size: {half} }} in pipeline.config",
    "keras": "model.fit(..., batch_size={half})",
    "tensorflow": "dataset.batch({half})",
    "jax": "batch_size={half}, or two micro-batches with optax.MultiSteps(tx, 2)",
    "paddle": "TrainReader.batch_size: {half}",
}
_SMALLER = {
    "ultralytics": "imgsz=512 or a smaller model (yolo11s)",
    "yolov5": "--img 512, or a smaller --cfg / --weights",
    "detectron2": "INPUT.MIN_SIZE_TRAIN (640,) INPUT.MAX_SIZE_TRAIN 1066, or SOLVER.AMP.ENABLED True",
    "mmdet": "a smaller scale in dict(type='Resize', scale=(1066, 640)), or --amp",
    "tfod": "image_resizer { fixed_shape_resizer { height: 512 width: 512 } }, or a smaller feature extractor",
    "keras": "keras.mixed_precision.set_global_policy('mixed_float16'), or smaller images",
    "tensorflow": "tf.keras.mixed_precision.set_global_policy('mixed_float16'), or smaller images",
    "transformers": "--bf16 --gradient_checkpointing",
    "lightning": "Trainer(precision='bf16-mixed')",
    "jax": "jax.checkpoint around the blocks, or bfloat16",
}
_WORKERS = {
    "ultralytics": "workers=2",
    "yolov5": "--workers 2",
    "mmdet": "--cfg-options train_dataloader.num_workers=2 (MMDetection 2: data.workers_per_gpu=2)",
    "detectron2": "DATALOADER.NUM_WORKERS 2",
    "maskrcnn-benchmark": "DATALOADER.NUM_WORKERS 2",
    "transformers": "--dataloader_num_workers 2",
    "lightning": "DataLoader(num_workers=2, persistent_workers=True)",
}
_BOXES = {
    "mmdet": (
        "train_cfg: assigner=dict(..., gpu_assign_thr=200): matching goes to the CPU "
        "above 200 boxes; or crop the crowded images"
    ),
    "detectron2": "crop crowded images: INPUT.CROP.ENABLED True; fewer anchors: MODEL.ANCHOR_GENERATOR.SIZES",
    "ultralytics": "batch={half} (the assigner's matrix is batch x most boxes x anchors), or tile the crowded images",
    "tfod": "train_input_reader {{ max_number_of_boxes: 100 }} and unpad_groundtruth_tensors: false in pipeline.config",
    "maskrcnn-benchmark": "crop the crowded images, or move boxlist_iou to the CPU for more than 200 boxes",
}


def next_step(cause: str, facts: Facts) -> str:
    known = {**_FIXED, **_host(facts), **_device(facts)}
    return known[cause]


def _half(facts: Facts) -> str:
    batch = facts.setup.batch
    return str(max(1, batch // 2)) if batch else "N/2"


def _card(facts: Facts) -> str:
    total = facts.main.total if facts.main else None
    size = total or facts.setup.card
    return f"{size / (1 << 30):.2f}GiB" if size else "DEVICE"


def _device(facts: Facts) -> dict[str, str]:
    framework = facts.setup.framework
    half = _half(facts)
    batch = _BATCH.get(framework, "DataLoader(batch_size={half})").format(half=half)
    smaller = _SMALLER.get(framework, "torch.autocast('cuda', torch.bfloat16), smaller images, or checkpointing")
    fit = f"oomproof fit JOB --on {_card(facts)} finds what fits before the next try"
    torch = framework not in ("tfod", "keras", "tensorflow", "jax", "paddle")
    fit = f" ; {fit}" if torch else ""
    boxes = _BOXES.get(
        framework, "cap or crop the fullest images; or match in chunks: oomproof fit JOB --set matching=chunked"
    ).format(half=half)
    eval_batch = {
        "detectron2": "INPUT.MAX_SIZE_TEST 1066 and TEST.DETECTIONS_PER_IMAGE 50",
        "mmdet": "test_cfg: max_per_img=50, and a smaller test scale",
        "ultralytics": "val=False, or a smaller imgsz and max_det=100",
        "transformers": "--per_device_eval_batch_size 1 --eval_accumulation_steps 1",
        "lightning": "a smaller val_dataloader batch, and .cpu() on what validation_step returns",
    }.get(framework, "paste masks one image at a time and on the CPU: masks.cpu(); and a smaller evaluation batch")
    return {
        "batch_too_big": batch + fit,
        "model_or_image_too_big": smaller + fit,
        "variable_shape": f"bound the largest batch: a maximal image size, aspect-ratio grouping, or {batch}" + fit,
        "gt_boxes": boxes,
        "eval_postprocess": eval_batch,
        "cudnn_workspace": "torch.backends.cudnn.benchmark = False" + (f" ; if it stays: {batch}" if torch else ""),
        "xla_compile": "jit_compile=False in model.compile(...), or " + batch
        if framework in ("keras", "tensorflow", "tfod")
        else f"{batch} ; XLA_PYTHON_CLIENT_MEM_FRACTION=.95 if the pool is the limit",
        "mps_limit": (
            f"{batch}, or smaller images; PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 lifts "
            "the limit, at the risk of a frozen Mac"
        ),
        "masked_oom": (
            "tf.config.experimental.set_memory_growth(gpu, True) before anything else ; nvidia-smi"
            if framework in ("tfod", "keras", "tensorflow")
            else f"nvidia-smi while it runs ; then {batch}"
        ),
        "outlier_or_bug": _outlier(facts),
        "other_process": f"{SMI} ; stop it or choose another card (CUDA_VISIBLE_DEVICES=1)",
    }


def _outlier(facts: Facts) -> str:
    failure = facts.main
    if failure is not None and failure.where == "host":
        return (
            "print the shape just before that line; look for a corrupt file or a "
            "wrong width and height in the annotations"
        )
    return (
        "print the shapes just before that line; find the sample with the largest "
        "image or the most boxes and leave it out"
    )


def _host(facts: Facts) -> dict[str, str]:
    framework = facts.setup.framework
    workers = _WORKERS.get(framework, "DataLoader(num_workers=2)")
    maps = any(each.op == "maps" for each in facts.failures)
    windows = any(each.kind == "paging_file" for each in facts.failures)
    limit = next((each.limit for each in facts.failures if each.limit and each.family in ("kernel", "cluster")), None)
    more = f"more than {text(limit)}" if limit else "more memory"
    container = "docker run --memory=... (or leave it out)"
    if "kubernetes" in facts.setup.found:
        container = f"resources: limits: memory: with {more} in the pod's manifest"
    elif "slurm" in facts.setup.found:
        container = f"#SBATCH --mem= with {more}; sacct -j JOBID --format=MaxRSS shows what it took"
    elif any(each.kind == "notebook" for each in facts.failures):
        container = "a runtime with more RAM, or smaller pieces of the data at a time"
    elif limit:
        container = f"docker run --memory= with {more}"
    worker_step = f"{workers} ; keep annotations in one NumPy array instead of lists of dicts"
    if maps:
        worker_step = f"sudo sysctl -w vm.max_map_count=262144 ; or {workers}"
    elif windows:
        worker_step = (
            f"{workers.replace('2', '0')}, or a larger paging file (System > Advanced > Performance > Virtual memory)"
        )
    shuffle = (
        "shuffle_buffer_size: 256 and prefetch_size: 2 in train_input_reader (pipeline.config)"
        if framework == "tfod"
        else "dataset.shuffle(256) before images are decoded, not after"
    )
    cache = {"ultralytics": "cache=False or cache=disk", "yolov5": "leave out --cache, or --cache disk"}.get(
        framework, "switch the cache off, or cache on disk"
    )
    return {
        "host_workers": worker_step,
        "container_limit": f"{container} ; or fewer workers: {workers}",
        "host_shuffle_buffer": shuffle,
        "host_image_cache": cache,
        "shm_too_small": (
            "docker run --shm-size=8g (or --ipc=host) in a new container ; df -h "
            f"/dev/shm ; or {workers.replace('2', '0')}"
        ),
        "host_too_small": f"dmesg -T | grep -i -A2 'killed process' confirms it ; then {workers}, or more RAM or swap",
        "host_eval_results": {"detectron2": "TEST.DETECTIONS_PER_IMAGE 50", "mmdet": "test_cfg: max_per_img=50"}.get(
            framework, "keep run-length masks instead of arrays, fewer detections an image, or evaluate in parts"
        ),
    }


_FIXED = {
    "eval_no_grad": "with torch.no_grad(): around the evaluation, and model.eval() before it",
    "leak": (
        "total += loss.item() (not loss); .detach().cpu() on whatever goes into a list ; then "
        "watch torch.cuda.memory_allocated() after each step"
    ),
    "checkpoint_on_gpu": "torch.load(path, map_location='cpu') ; del checkpoint ; torch.cuda.empty_cache()",
    "fragmentation": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py",
    "tf_greedy_allocation": (
        "tf.config.experimental.set_memory_growth(gpu, True) before anything "
        "else, or TF_FORCE_GPU_ALLOW_GROWTH=true python train.py"
    ),
    "tf_memory_cap": (
        "raise or remove the cap: per_process_gpu_memory_fraction, "
        "LogicalDeviceConfiguration(memory_limit=...), set_per_process_memory_fraction"
    ),
    "train_and_eval_together": (
        "CUDA_VISIBLE_DEVICES=-1 python model_main_tf2.py --checkpoint_dir=... (the evaluation, on the CPU)"
    ),
    "retracing": (
        "@tf.function(reduce_retracing=True) with fixed shapes: pad images to one size, "
        "batch(..., drop_remainder=True), tensors instead of Python numbers"
    ),
    "host_generators": "model.fit(..., workers=1, use_multiprocessing=False, max_queue_size=2)",
    "host_masks": (
        "crop or shrink images before masks are decoded, or keep polygons (mmdet: "
        "LoadAnnotations(with_mask=True, poly2mask=False))"
    ),
    "host_whole_dataset": (
        "load images in the Dataset's __getitem__, or np.load(path, mmap_mode='r'); keep uint8 until the batch"
    ),
    "benign_warning": "nothing has to be done; if it is slow, a smaller batch gives cuDNN room for faster algorithms",
}
