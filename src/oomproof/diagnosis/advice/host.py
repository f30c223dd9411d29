"""What to do about host memory and /dev/shm."""

from __future__ import annotations

from oomproof.diagnosis.causes.host import LITTLE, TRAINING
from oomproof.diagnosis.facts import Facts

_WORKERS = {
    "ultralytics": "workers={few}",
    "yolov5": "--workers {few}",
    "yolox": "data_num_workers = {few} in the exp file",
    "timm": "--workers {few}",
    "mmdet": "--cfg-options train_dataloader.num_workers={few} (MMDetection 2: data.workers_per_gpu={few})",
    "mmseg": "--cfg-options train_dataloader.num_workers={few} (MMSegmentation 0: data.workers_per_gpu={few})",
    "detectron2": "DATALOADER.NUM_WORKERS {few}",
    "maskrcnn-benchmark": "DATALOADER.NUM_WORKERS {few}",
    "transformers": "--dataloader_num_workers {few}",
    "lightning": "DataLoader(num_workers={few}, persistent_workers=True)",
    "paddle": "worker_num: {few}",
    "nnunet": "nnUNet_n_proc_DA={few} nnUNetv2_train ...",
}
_WITHOUT_WORKERS = ("keras", "tensorflow", "tfod", "matterport", "jax")
_CACHE = {"ultralytics": "cache=False or cache=disk", "yolov5": "leave out --cache, or --cache disk"}
_ANNOTATIONS = " ; keep annotations in one NumPy array instead of lists of dicts"
_RESULTS = {"detectron2": "TEST.DETECTIONS_PER_IMAGE 50", "mmdet": "test_cfg: max_per_img=50"}


def steps(facts: Facts) -> dict[str, str]:
    framework = facts.setup.framework
    return {
        "host_workers": _for_workers(facts),
        "container_limit": _container(facts),
        "shm_too_small": "docker run --shm-size=8g (or --ipc=host) in a new container ; df -h /dev/shm ; or "
        + _workers(facts, 0),
        "host_shuffle_buffer": "shuffle_buffer_size: 256 and num_prefetch_batches: 1 in train_input_reader"
        if framework == "tfod"
        else "dataset.shuffle(256) before images are decoded, not after",
        "host_image_cache": _advise_on_cache(facts),
        "host_generators": _generators(facts),
        "host_masks": "LoadAnnotations(with_mask=True, poly2mask=False), or crop before masks are decoded"
        if framework == "mmdet"
        else "crop or shrink images before their masks are decoded, or keep polygons",
        "host_whole_dataset": _load_in_parts(facts),
        "host_eval_results": _RESULTS.get(
            framework, "keep run-length masks instead of arrays, fewer detections an image, or evaluate in parts"
        ),
        "host_too_small": _too_small(facts),
    }


def _advise_on_cache(facts: Facts) -> str:
    if "CacheDataset" in facts.setup.found.get("cache", ""):
        return "CacheDataset(..., cache_rate=0.2), or PersistentDataset, which caches on disk"
    return _CACHE.get(facts.setup.framework, "switch the cache off, or cache on disk")


def _load_in_parts(facts: Facts) -> str:
    dtype = facts.main.dtype if facts.main else ""
    if any("read_csv" in frame.code for frame in (facts.main.frames if facts.main else ())):
        return (
            "pd.read_csv(path, chunksize=100_000), only the columns that are used (usecols), and smaller types (dtype)"
        )
    smaller = "float32 halves it" if dtype == "float64" else "keep uint8 until the batch"
    return f"load images in the Dataset's __getitem__, or np.load(path, mmap_mode='r'); {smaller}"


def _generators(facts: Facts) -> str:
    options = "workers=1, use_multiprocessing=False, max_queue_size=2"
    frames = facts.main.frames if facts.main else ()
    called = "fit_generator" if any(frame.name == "fit_generator" for frame in frames) else "fit"
    if facts.setup.framework == "matterport":
        return f"in mrcnn/model.py, keras_model.fit_generator(..., {options})"
    # Keras 3 took these arguments from fit and gave them to the dataset.
    newer = any("keras/src" in frame.file or "py_dataset" in frame.file for frame in frames)
    return f"super().__init__({options}) in the PyDataset" if newer else f"model.{called}(..., {options})"


def _workers(facts: Facts, few: int | None = None) -> str:
    count = facts.setup.workers
    if few is None:
        few = 0 if count is not None and count <= 2 else 2
    if facts.setup.framework in _WITHOUT_WORKERS and "generator" in facts.setup.found:
        return _generators(facts)
    if facts.setup.framework in _WITHOUT_WORKERS:
        return "fewer parallel calls: dataset.map(..., num_parallel_calls=2).prefetch(1)"
    return _WORKERS.get(facts.setup.framework, "DataLoader(num_workers={few})").format(few=few)


def _for_workers(facts: Facts) -> str:
    if any(each.op == "maps" for each in facts.failures):
        return f"sudo sysctl -w vm.max_map_count=262144 ; or {_workers(facts)}"
    if any(each.kind == "paging_file" for each in facts.failures):
        where = "System > Advanced > Performance > Virtual memory"
        return f"{_workers(facts, 0)}, or a larger paging file ({where})"
    annotations = "" if facts.setup.framework in _WITHOUT_WORKERS else _ANNOTATIONS
    return f"{_workers(facts)}{annotations}"


def _container(facts: Facts) -> str:
    limits = [each.limit for each in facts.failures if each.limit and each.family in ("kernel", "cluster")]
    size = -(-limits[0] * 3 // 2 >> 30) if limits else None
    fewer = f" ; or {_workers(facts)}"
    if "kubernetes" in facts.setup.found:
        return f"resources: {{limits: {{memory: {size or '...'}Gi}}}} in the pod's manifest{fewer}"
    if "slurm" in facts.setup.found:
        return f"#SBATCH --mem={size or '...'}G ; sacct -j JOBID --format=MaxRSS shows what it took{fewer}"
    if any(each.kind == "notebook" for each in facts.failures):
        return "a runtime with more RAM, or the data in smaller pieces"
    if any("instance type" in each.quote or "replica " in each.quote for each in facts.failures):
        return f"a machine type with more memory{fewer}"
    if any(sign in each.quote for each in facts.failures for sign in ("PBS", "LSF", "request_memory")):
        return f"ask the batch system for more memory, {f'{size} GiB' if size else 'half as much again'}{fewer}"
    return f"docker run --memory={size or '...'}g{fewer}"


def _too_small(facts: Facts) -> str:
    family = facts.main.family if facts.main else ""
    victim = facts.main.victim if facts.main else ""
    held = facts.main.process if facts.main else None
    if victim and (not TRAINING.search(victim) or 0 < (held or 0) < LITTLE):
        return "ps aux --sort=-rss | head shows who holds the RAM ; end that, or more RAM or swap"
    if family == "cluster" and "kubernetes" in facts.setup.found:
        used = facts.main.process if facts.main else None
        size = f"{-(-used * 6 // 5 >> 30)}Gi" if used else "..."
        return (
            f"resources: {{requests: {{memory: {size}}}}} in the pod's manifest: it then gets a node that has so much"
        )
    if family in ("kernel", "cluster"):
        return f"{_workers(facts)}, or more RAM or swap ; free -g while it runs shows how near it is"
    if family == "exit":
        return f"dmesg -T | grep -i 'killed process' confirms it ; then {_workers(facts)}, or more RAM or swap"
    return f"free -g while it runs ; {_workers(facts)}, or more RAM or swap"
