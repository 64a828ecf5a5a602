#!/usr/bin/env python3
"""Times PyTorch's gradients of batch norm (NCX) and layer norm.

    python3 benches/peers/pytorch.py [--json FILE] [--device cuda|cpu] [--op OP] [--shape SHAPE]... [--rounds N]

On CUDA there are two times: by the host's clock from submission to completion, which is what the other
peers' times are, and by events on the stream, which leave out the latency of submission and are a peer
of their own. Exits with 2 where PyTorch or the device is missing.
"""

import argparse
import datetime
import json
import math
import platform
import statistics
import sys
import time

EPSILON = 1e-5

# The same list as in src/case.rs.
DEFAULTS = [
    ("batch_norm", (32, 64, 56, 56)),
    ("batch_norm", (32, 256, 14, 14)),
    ("batch_norm", (4, 64, 112, 112)),
    ("batch_norm", (8, 512, 28, 28)),
    ("batch_norm", (16, 1024, 14, 14)),
    ("batch_norm", (2, 3, 512, 512)),
    ("batch_norm", (4096, 256)),
    ("batch_norm", (4, 32, 64, 64, 64)),
    ("layer_norm", (4096, 768)),
    ("layer_norm", (512, 4096)),
    ("layer_norm", (65536, 64)),
]


def shape_of(text):
    try:
        shape = tuple(int(part) for part in text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a shape: {text}") from None
    if len(shape) < 2 or min(shape) < 1:
        raise argparse.ArgumentTypeError(f"not a shape: {text}")
    return shape


def select(op, shapes):
    """The default list, narrowed; other shapes are added where the operator is named."""
    listed = [case for case in DEFAULTS if op in (None, case[0])]
    if not shapes:
        return listed
    cases = []
    for shape in shapes:
        found = [case for case in listed if case[1] == shape]
        if not found and op is None:
            sys.exit("a shape that is not in the default list needs --op")
        cases.append(found[0] if found else (op, shape))
    return cases


class Layer:
    """A gradient on several sets of tensors, which take turns so that small ones leave the cache."""

    def __init__(self, torch, op, shape, device):
        self.torch = torch
        self.op = op
        self.columns = [shape[-1]]
        channels = shape[1] if op == "batch_norm" else shape[-1]
        # Axes that are reduced for the statistics.
        axes = [a for a in range(len(shape)) if a != 1] if op == "batch_norm" else [len(shape) - 1]
        count = max(1, min(8, (256 << 20) // (12 * math.prod(shape))))
        torch.manual_seed(1)
        self.sets = []
        for _ in range(count):
            src = torch.rand(shape, device=device) * 2 - 0.5
            diff_dst = torch.rand(shape, device=device) * 2 - 1
            gamma = torch.rand(channels, device=device) + 0.5
            keep = op == "layer_norm"
            mean = src.double().mean(axes, keepdim=keep)
            variance = src.double().var(axes, unbiased=False, keepdim=keep)
            scale = (variance + EPSILON).rsqrt()
            self.sets.append((src, diff_dst, gamma, torch.zeros_like(gamma), mean.float(), scale.float()))
        self.next = 0

    def backward(self, index):
        """diff_src, diff_gamma and diff_beta, enqueued."""
        aten = self.torch.ops.aten
        src, diff_dst, gamma, beta, mean, scale = self.sets[index]
        if self.op == "batch_norm":
            return aten.native_batch_norm_backward(
                diff_dst, src, gamma, None, None, mean, scale, True, EPSILON, [True, True, True]
            )
        return aten.native_layer_norm_backward(
            diff_dst, src, self.columns, mean, scale, gamma, beta, [True, True, True]
        )

    def step(self):
        self.next = (self.next + 1) % len(self.sets)
        return self.backward(self.next)

    def check(self):
        """Compares the first set's gradients with the definition in float64."""
        src, diff_dst, gamma, _, mean, scale = (tensor.double() for tensor in self.sets[0])
        rank = src.dim()
        if self.op == "batch_norm":
            channel = [1, -1] + [1] * (rank - 2)
            mean, scale, gamma = (tensor.view(channel) for tensor in (mean, scale, gamma))
            group = [axis for axis in range(rank) if axis != 1]
            params = group
        else:
            group, params = [rank - 1], list(range(rank - 1))
        normalized = (src - mean) * scale
        scaled = diff_dst * gamma
        slope = (scaled * normalized).mean(group, keepdim=True)
        want = (
            scale * (scaled - scaled.mean(group, keepdim=True) - normalized * slope),
            (diff_dst * normalized).sum(params),
            diff_dst.sum(params),
        )
        for name, got, want in zip(("diff_src", "diff_gamma", "diff_beta"), self.backward(0), want):
            difference = ((got.double() - want).abs().max() / want.abs().max()).item()
            if not difference < 1e-3:  # NaN fails too
                raise RuntimeError(f"{name} is wrong by {difference:.1e}")


def host_clock(torch, layer, cuda):
    start = time.perf_counter()
    gradients = layer.step()
    if cuda:
        torch.cuda.synchronize()
    elapsed = time.perf_counter() - start
    del gradients
    return elapsed * 1e3


def events(torch, layer):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    gradients = layer.step()
    end.record()
    torch.cuda.synchronize()
    del gradients
    return begin.elapsed_time(end)


def measure(torch, layer, rounds, cuda):
    """The median of the rounds' medians, by each clock, under the names of the peers."""
    clocks = {"PyTorch": lambda: host_clock(torch, layer, cuda)}
    if cuda:
        clocks["PyTorch (CUDA events)"] = lambda: events(torch, layer)
    warm = min(host_clock(torch, layer, cuda) for _ in range(5))
    runs = max(1, min(20, int(30 / warm)))
    medians = {name: [] for name in clocks}
    for _ in range(rounds):
        for name, clock in clocks.items():
            medians[name].append(statistics.median(clock() for _ in range(runs)))
    return {name: statistics.median(values) for name, values in medians.items()}


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--device", choices=["cuda", "cpu"], help="by default cuda where there is one")
    parser.add_argument("--op", choices=["batch_norm", "layer_norm"])
    parser.add_argument("--shape", action="append", type=shape_of, default=[])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")

    try:
        import torch
    except ImportError as error:
        print(f"PyTorch is not installed here: {error}", file=sys.stderr)
        return 2
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    cuda = device == "cuda"
    if cuda and not torch.cuda.is_available():
        print("PyTorch sees no CUDA device", file=sys.stderr)
        return 2

    if cuda:
        name, driver = torch.cuda.get_device_name(), f"CUDA {torch.version.cuda}"
    else:
        name, driver = cpu_name(), f"{torch.get_num_threads()} threads"
    print(f"PyTorch {torch.__version__} on {name}, {driver}")

    results, failed = {}, False
    for op, shape in select(args.op, args.shape):
        shape_name = "x".join(map(str, shape))
        try:
            layer = Layer(torch, op, shape, device)
            layer.check()
            times = measure(torch, layer, args.rounds, cuda)
        except RuntimeError as error:  # the other shapes are still worth their time
            print(f"{op} {shape_name}  not timed: {error}")
            failed = True
            continue
        for peer, time_ms in times.items():
            print(f"{op} {shape_name}  {time_ms:.4f} ms  {peer}")
            results.setdefault(peer, []).append(
                {
                    "op": op,
                    "shape": shape_name,
                    "dtype": "f32",
                    "data_format": "NCX" if op == "batch_norm" else None,
                    "time_ms": time_ms,
                    "variant": "native",
                }
            )
    if args.json:
        reports = [
            {
                "peer": peer,
                "version": torch.__version__,
                "device": name,
                "driver": driver,
                "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
                "results": entries,
            }
            for peer, entries in results.items()
        ]
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(reports, file, indent=2)
            file.write("\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
