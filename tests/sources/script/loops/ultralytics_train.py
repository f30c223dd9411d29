# ruff: noqa
from pathlib import Path

import cv2
import numpy as np
from ultralytics import YOLO

root = Path("shapes")
for split in ("train", "val"):
    (root / "images" / split).mkdir(parents=True, exist_ok=True)
    (root / "labels" / split).mkdir(parents=True, exist_ok=True)
    for i in range(64 if split == "train" else 8):
        ok, png = cv2.imencode(".png", np.random.default_rng(i).integers(0, 255, (160, 160, 3), dtype=np.uint8))
        (root / "images" / split / f"{i}.png").write_bytes(png.tobytes())
        (root / "labels" / split / f"{i}.txt").write_text("0 0.5 0.5 0.3 0.3\n1 0.2 0.3 0.1 0.2\n")
Path("shapes.yaml").write_text(f"path: {root.resolve()}\ntrain: images/train\nval: images/val\nnames: [a, b]\n")

model = YOLO("yolo11n.yaml")
model.train(data="shapes.yaml", epochs=3, imgsz=160, batch=8, workers=0, device=0)
