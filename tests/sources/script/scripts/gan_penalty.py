# ruff: noqa
"""WGAN-GP: two networks, two optimizers, a gradient penalty."""

import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.autograd import grad as torch_grad

parser = argparse.ArgumentParser()
parser.add_argument("--n_critic", type=int, default=2)
parser.add_argument("--bs", type=int, default=16)
parser.add_argument("--latent", type=int, default=64)
parser.add_argument("--gp_weight", type=float, default=10.0)
opt = parser.parse_args()
cuda = torch.cuda.is_available()
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor
device = "cuda:0" if cuda else "cpu"


class Generator(nn.Module):
    def __init__(self, nz, nf=64):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, nf * 4, 4, 1, 0),
            nn.BatchNorm2d(nf * 4),
            nn.ReLU(True),
            nn.ConvTranspose2d(nf * 4, nf * 2, 4, 2, 1),
            nn.BatchNorm2d(nf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(nf * 2, nf, 4, 2, 1),
            nn.BatchNorm2d(nf),
            nn.ReLU(True),
            nn.ConvTranspose2d(nf, 3, 4, 2, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z.view(z.size(0), -1, 1, 1))


class Critic(nn.Module):
    def __init__(self, nf=64):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(3, nf, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(nf, nf * 2, 4, 2, 1),
            nn.InstanceNorm2d(nf * 2, affine=True),
            nn.LeakyReLU(0.2),
            nn.Conv2d(nf * 2, nf * 4, 4, 2, 1),
            nn.InstanceNorm2d(nf * 4, affine=True),
            nn.LeakyReLU(0.2),
            nn.Conv2d(nf * 4, 1, 4, 1, 0),
        )

    def forward(self, x):
        return self.main(x).view(-1)


def weights_init(m):
    if "Conv" in m.__class__.__name__:
        nn.init.normal_(m.weight.data, 0.0, 0.02)


G, D = Generator(opt.latent), Critic()
G.apply(weights_init)
D.apply(weights_init)
if cuda:
    G.cuda()
    D.cuda()
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.9))
data = np.random.RandomState(0).randn(256, 3, 32, 32).astype(np.float32)


def gradient_penalty(real, fake):
    alpha = torch.rand(real.size(0), 1, 1, 1, device=device)
    inter = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    score = D(inter)
    grads = torch_grad(score, inter, torch.ones_like(score), create_graph=True, retain_graph=True)[0]
    return opt.gp_weight * ((grads.flatten(1).norm(2, dim=1) - 1) ** 2).mean()


for it in range(100000):
    real = torch.from_numpy(data[np.random.randint(0, 256, opt.bs)]).to(device)
    z = torch.randn(opt.bs, opt.latent, device=device)
    fake = G(z).detach()
    d_loss = D(fake).mean() - D(real).mean() + gradient_penalty(real, fake)
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()
    if it % opt.n_critic == 0:
        g_loss = -D(G(torch.randn(opt.bs, opt.latent, device=device))).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        print(it, d_loss.item(), g_loss.item())
