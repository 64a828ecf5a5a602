#!/usr/bin/env python3
"""Training steps of the bench's networks in PyTorch, eager and compiled, beside those of the bench.

    python3 networks.py OUT [BENCH] [--small] [--steps N] [--seconds N] [--device cuda|cpu]

Runs the built bench, if it is given, which writes OUT/burn.json; then PyTorch, for OUT/pytorch.json; then joins both
into OUT/networks.md. Networks, shapes, types and fields are those of the bench (main.rs). It needs this file alone, and
PyTorch for its times: without it, or without a CUDA device, the table has the bench's and the exit status is 2.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    torch = nn = None

Base = nn.Module if nn else object


def convolution(channels, size, groups=1):
    return nn.Conv2d(channels, channels, size, padding=size // 2, groups=groups, bias=False)


def normed(norm, use):
    return norm if use else nn.Identity()


class Attention(Base):
    def __init__(self, width):
        super().__init__()
        self.heads = min(width // 8, 16)
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        parts = (part(x).unflatten(2, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value))
        return self.output(F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))


class ResNet(Base):
    def __init__(self, shape, norms):
        super().__init__()
        channels = shape[1]
        self.first, self.second = (convolution(channels, 3) for _ in range(2))
        self.norms = nn.ModuleList(normed(nn.BatchNorm2d(channels), norms) for _ in range(2))

    def forward(self, x):
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + x)


class ConvNeXt(Base):
    def __init__(self, shape, norms):
        super().__init__()
        channels = shape[1]
        self.convolution = convolution(channels, 7, channels)
        self.norm = normed(nn.LayerNorm(channels, eps=1e-6), norms)
        self.linear = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))

    def forward(self, x):
        y = self.norm(self.convolution(x).permute(0, 2, 3, 1))
        return x + self.linear(y).permute(0, 3, 1, 2)


class Transformer(Base):
    def __init__(self, shape, norms):
        super().__init__()
        width = shape[3]
        self.norms = nn.ModuleList(normed(nn.RMSNorm(width, eps=1e-5), norms) for _ in range(2))
        self.attention = Attention(width)
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x):
        x = x.squeeze(1)
        x = x + self.attention(self.norms[0](x))
        y = self.norms[1](x)
        return (x + self.down(F.silu(self.gate(y)) * self.up(y))).unsqueeze(1)


class DiT(Base):
    def __init__(self, shape, norms):
        super().__init__()
        width = shape[3]
        self.condition = nn.Linear(width, 6 * width)
        self.norm = normed(nn.LayerNorm(width, elementwise_affine=False), norms)
        self.attention = Attention(width)
        self.linear = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x.squeeze(1)
        parts = self.condition(F.silu(x.mean(1))).unsqueeze(1).chunk(6, 2)
        x = x + self.attention(self.norm(x) * (1 + parts[0]) + parts[1]) * parts[2]
        y = self.linear(self.norm(x) * (1 + parts[3]) + parts[4])
        return (x + y * parts[5]).unsqueeze(1)


class UNet(Base):
    def __init__(self, shape, norms):
        super().__init__()
        channels = shape[1]
        groups = min(channels // 2, 32)
        self.norms = nn.ModuleList(normed(nn.GroupNorm(groups, channels), norms) for _ in range(2))
        self.first, self.second = (convolution(channels, 3) for _ in range(2))
        self.time = nn.Linear(channels, channels)

    def forward(self, x):
        embedding = self.time(F.silu(x.mean((2, 3))))[:, :, None, None]
        y = self.first(F.silu(self.norms[0](x))) + embedding
        return x + self.second(F.silu(self.norms[1](y)))


# The bench's small and large shapes.
NETWORKS = {
    "ResNet": (ResNet, (4, 16, 32, 32), (32, 64, 56, 56)),
    "ConvNeXt": (ConvNeXt, (4, 16, 16, 16), (32, 96, 28, 28)),
    "transformer": (Transformer, (2, 1, 64, 128), (8, 1, 512, 1024)),
    "DiT": (DiT, (2, 1, 64, 128), (8, 1, 256, 1152)),
    "UNet": (UNet, (4, 16, 32, 32), (8, 192, 64, 64)),
}


class Training:
    """A block that learns the absolute values of its input, as in train.rs."""

    def __init__(self, kind, shape, dtype, device, name):
        torch.manual_seed(1)
        self.name, self.device, self.times, self.losses = name, device, [], []
        self.block = kind(shape, "none" not in name).to(device, dtype)
        self.forward = torch.compile(self.block) if "compiled" in name else self.block
        self.optimizer = torch.optim.SGD(self.block.parameters(), lr=0.1 / 1024)
        self.input = torch.randn(shape, device=device).to(dtype)

    def sync(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def step(self, timed):
        cuda, first = self.device == "cuda", not self.losses
        if cuda and first:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        self.sync()
        start = time.perf_counter()
        x = self.input.detach().requires_grad_()
        loss = (self.forward(x) - self.input.abs()).float().pow(2).mean()
        self.optimizer.zero_grad()
        (loss * 1024).backward()
        self.optimizer.step()
        self.sync()
        if timed:
            self.times.append((time.perf_counter() - start) * 1e3)
        if first:
            self.memory = (torch.cuda.max_memory_allocated() - before) / 2**20 if cuda else None
        self.losses.append(loss.item())


def timed(name, shape, dtype, args, end):
    """The rows of a network: eager and compiled, each with norms and without."""
    kind = NETWORKS[name][0]
    names = ["eager", "eager, none", "compiled", "compiled, none"]
    torch._dynamo.reset()
    sides = [Training(kind, shape, getattr(torch, dtype), args.device, side) for side in names]
    warm = min(2, args.steps - 1)
    for step in range(args.steps):
        for side in sides:
            side.step(step >= warm)
        if step > warm and time.monotonic() > end:
            break
    for side, none in zip(sides, (sides[1], sides[1], sides[3], sides[3])):
        pairs = zip(side.losses, (sides[1] if "none" in side.name else sides[0]).losses)
        yield {
            "network": name,
            "shape": "x".join(map(str, shape)),
            "dtype": {"float32": "f32", "float16": "f16"}[dtype],
            "norms": f"PyTorch, {side.name}",
            "steps": len(side.losses),
            "least_ms": min(side.times),
            "median_ms": statistics.median(side.times),
            "norms_share": 1 - min(none.times) / min(side.times),
            "memory_mib": side.memory,
            "last_loss": side.losses[-1],
            "losses_differ_by": max(abs(a - b) / b for a, b in pairs),
        }


def pytorch(args):
    cuda = args.device == "cuda"
    name = torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads"
    print(f"PyTorch {torch.__version__} on {name}", flush=True)
    begun, runs, rows = time.monotonic(), [(d, n) for d in ("float32", "float16") for n in NETWORKS], []
    for index, (dtype, network) in enumerate(runs):
        shape = NETWORKS[network][1 if args.small else 2]
        try:
            rows += timed(network, shape, dtype, args, begun + args.seconds * (index + 1) / len(runs))
        except RuntimeError as error:  # the other networks are still worth their time
            print(f"{network} {dtype}: {error}", flush=True)
        else:
            print(f"{network} {dtype}: done", flush=True)
    return {"side": f"PyTorch {torch.__version__}", "adapter": name, "results": rows}


def table(sides):
    """All sides as Markdown. Times are the smallest; a ratio is that to the time with Burn's norms in the same run."""
    for side in sides:
        yield f"{side['side']} on {side['adapter']}  "
    yield ""
    yield "| network | type | norms | steps | smallest, ms | median, ms | of Burn's | norms' share | memory, MiB |"
    yield "|---|---|---|---|---|---|---|---|---|"
    rows = [row for side in sides for row in side["results"]]
    keys = list(dict.fromkeys((row["network"], row["shape"], row["dtype"]) for row in rows))
    for key in keys:
        same = [row for row in rows if (row["network"], row["shape"], row["dtype"]) == key]
        burns = [row["least_ms"] for row in same if row["norms"] == "Burn's"]
        for row in same:
            ratio = f"{row['least_ms'] / burns[0]:.2f}" if burns else ""
            memory = "" if row["memory_mib"] is None else f"{row['memory_mib']:.1f}"
            yield (
                f"| {key[0]} {key[1]} | {key[2]} | {row['norms']} | {row['steps']} | {row['least_ms']:.2f} "
                f"| {row['median_ms']:.2f} | {ratio} | {row['norms_share']:.0%} | {memory} |"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("out")
    parser.add_argument("bench", nargs="?")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=300, help="of the bench, and of PyTorch")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    burn, peer = (os.path.join(args.out, name) for name in ("burn.json", "pytorch.json"))
    status = 0
    if args.bench:
        options = ["--json", burn, "--steps", str(args.steps), "--seconds", str(args.seconds)]
        options += ["--small"] if args.small else []
        status = subprocess.run([args.bench, *options], check=False).returncode
    if torch is None or (args.device == "cuda" and not torch.cuda.is_available()):
        print("PyTorch is not installed here" if torch is None else "PyTorch sees no CUDA device", file=sys.stderr)
        status = status or 2
    else:
        with open(peer, "w", encoding="utf-8") as file:
            json.dump(pytorch(args), file, indent=1)
    sides = []
    for path in (burn, peer):
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                sides.append(json.load(file))
    path = os.path.join(args.out, "networks.md")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(table(sides)) + "\n")
    print(f"the table is in {path}")
    return status


if __name__ == "__main__":
    sys.exit(main())
