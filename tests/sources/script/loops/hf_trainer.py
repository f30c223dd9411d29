# ruff: noqa
import numpy as np
import torch
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification


class Noise(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return {
            "pixel_values": torch.from_numpy(np.random.default_rng(i).standard_normal((3, 64, 64), dtype=np.float32)),
            "labels": i % 5,
        }


config = ViTConfig(
    hidden_size=192,
    num_hidden_layers=4,
    num_attention_heads=3,
    intermediate_size=768,
    image_size=64,
    patch_size=8,
    num_labels=5,
)
model = ViTForImageClassification(config)
args = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=8,
    gradient_accumulation_steps=2,
    num_train_epochs=3,
    fp16=True,
    report_to="none",
    save_strategy="epoch",
    logging_steps=1,
)
trainer = Trainer(model=model, args=args, train_dataset=Noise())
trainer.train()
trainer.save_model("out/final")
