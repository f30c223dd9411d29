# ruff: noqa
"""A text classifier on padded batches, its layers checkpointed."""

import argparse
import random

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader


class Encoder(nn.Module):
    def __init__(self, vocab, dim, layers, classes):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=0)
        self.pos = nn.Embedding(512, dim)
        self.layers = nn.ModuleList(
            [
                nn.TransformerEncoderLayer(dim, 4, dim * 4, dropout=0.1, batch_first=True, norm_first=True)
                for _ in range(layers)
            ]
        )
        self.out = nn.Linear(dim, classes)

    def forward(self, tokens):
        mask = tokens == 0
        x = self.embed(tokens) + self.pos(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = checkpoint(layer, x, None, mask, use_reentrant=False)
        keep = (~mask).unsqueeze(-1)
        return self.out((x * keep).sum(1) / keep.sum(1))


def collate(samples):
    return pad_sequence([torch.tensor(s) for s, _ in samples], batch_first=True), torch.tensor([l for _, l in samples])


def main(args):
    random.seed(0)
    torch.manual_seed(0)
    device = torch.device(f"cuda:{args.gpu}" if torch.cuda.is_available() else "cpu")
    torch.cuda.set_device(args.gpu)
    samples = [([random.randint(1, 4999) for _ in range(96)], random.randint(0, 3)) for _ in range(200)]
    loader = DataLoader(samples, batch_size=args.batch, collate_fn=collate)
    model = Encoder(5000, 128, 3, 4).to(device)
    optimizer = torch.optim.NAdam(model.parameters(), lr=3e-4)
    total, correct = 0, 0
    for epoch in range(3):
        for tokens, labels in loader:
            tokens, labels = tokens.to(device), labels.to(device)
            optimizer.zero_grad()
            logits = model(tokens)
            loss = nn.functional.cross_entropy(logits, labels)
            loss.backward()
            optimizer.step()
            correct += (logits.argmax(-1) == labels).sum().item()
            total += labels.numel()
            print(f"{loss.item():.3f} {correct / total:.2%} {torch.cuda.max_memory_allocated() / 2**20:.0f} MiB")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--gpu", type=int, default=0)
    main(p.parse_args())
