# ruff: noqa
"""Everything from a config with overrides on the command line: model.depth=4 train.batch=8"""

import importlib
import json
import os
import sys
from datetime import datetime

import numpy as np
import torch
from torch.optim.swa_utils import SWALR, AveragedModel

DEFAULTS = {
    "model": {"target": "torchvision.models.mobilenet_v3_small", "args": {"num_classes": 20}},
    "optimizer": {"target": "torch.optim.AdamW", "args": {"lr": 3e-4, "weight_decay": 0.02}},
    "train": {"batch": 8, "size": 96, "steps": 1000, "swa": True, "device": "cuda"},
    "output_dir": "outputs",
}


def override(cfg, pairs):
    for pair in pairs:
        key, value = pair.split("=", 1)
        node = cfg
        *parents, leaf = key.split(".")
        for parent in parents:
            node = node[parent]
        try:
            node[leaf] = json.loads(value)
        except json.JSONDecodeError:
            node[leaf] = value
    return cfg


def instantiate(spec, *args):
    module, name = spec["target"].rsplit(".", 1)
    return getattr(importlib.import_module(module), name)(*args, **spec["args"])


def batches(cfg):
    rng = np.random.default_rng(0)
    while True:
        x = rng.standard_normal((cfg["batch"], 3, cfg["size"], cfg["size"]), dtype=np.float32)
        yield torch.from_numpy(x), torch.from_numpy(rng.integers(0, 20, cfg["batch"]))


def run(cfg):
    out = os.path.join(cfg["output_dir"], datetime.now().strftime("%Y-%m-%d"), "run")
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(cfg, f, indent=2)
    train = cfg["train"]
    device = torch.device(train["device"])
    model = instantiate(cfg["model"]).to(device)
    swa_model = AveragedModel(model) if train["swa"] else None
    optimizer = instantiate(cfg["optimizer"], model.parameters())
    swa_scheduler = SWALR(optimizer, swa_lr=1e-4)
    loss_fn = torch.nn.CrossEntropyLoss()
    it = iter(batches(train))
    for step in range(train["steps"]):
        model.train()
        x, y = (t.to(device) for t in next(it))
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if swa_model is not None:
            swa_model.update_parameters(model)
            swa_scheduler.step()
        if step % 100 == 99:
            torch.save(model.state_dict(), os.path.join(out, f"{step}.pt"))
    with open(os.path.join(out, "config.json")) as f:
        assert json.load(f) == cfg


if __name__ == "__main__":
    run(override(DEFAULTS, sys.argv[1:]))
