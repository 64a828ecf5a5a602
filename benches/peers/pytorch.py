#!/usr/bin/env python3
"""Times PyTorch's batch, layer, RMS, group and instance norm, adaptive layer norm and layer norm over channels: their
gradients and forward passes.

    python3 pytorch.py --like report.json [--device cuda|cpu] [--rounds N] [--least]
    python3 pytorch.py [--json FILE] [--device cuda|cpu] [--op OP]... [--shape SHAPE]... [--rounds N] [--least]

The first times the cases of a report of `wgpu-norm report`: the same shapes, layouts and element types. It adds
them to the report after each, so that a run that is cut off leaves what it has; `wgpu-norm report DIR --redraw`
puts them into the tables and the picture. It needs this file and PyTorch, nothing else.

The second is for the table of peers: a list of shapes in f32; batch, group and instance norm over NCX.

On CUDA there are two times: by the host's clock from submission to completion, and by events on the stream, which
leave out the latency of submission; work shorter than 50 us is repeated between two events, each time on the next
tensors. In the table of peers they are peers of their own. Exits with 2 where PyTorch or
the device is missing.
"""

import argparse
import datetime
import json
import math
import os
import platform
import statistics
import sys
import time
import types

EPSILON = 1e-5

# Milliseconds, as in wgpu-norm: shorter work is repeated between two events until all of it takes as long as the
# second, at most as often as there are sets of small tensors.
SHORT, REPEATED, MOST_REPEATS = 0.05, 0.5, 64
# The cycles of the longest sleep before the events, for work that itself waits for the GPU.
MOST_CYCLES = 1 << 23

# The same shapes as in src/case.rs.
CHANNELS = [
    (32, 64, 56, 56),
    (32, 256, 14, 14),
    (4, 64, 112, 112),
    (8, 512, 28, 28),
    (16, 1024, 14, 14),
    (2, 3, 512, 512),
    (4096, 256),
    (4, 32, 64, 64, 64),
]
ROWS = [(4096, 768), (512, 4096), (65536, 64)]
TOKENS = [(8, 256, 1152), (2, 1024, 1536)]
POSITIONS = [(8, 96, 56, 56), (8, 192, 28, 28), (16, 384, 14, 14), (1, 256, 64, 64)]
OF_SAMPLES = [(8, 256, 64, 64), (32, 64, 56, 56), (2, 320, 64, 64), (8, 1280, 16, 16)]


def shape_of(text):
    try:
        shape = tuple(int(part) for part in text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a shape: {text}") from None
    if len(shape) < 2 or min(shape) < 1:
        raise argparse.ArgumentTypeError(f"not a shape: {text}")
    return shape


def select(ops, shapes):
    """Each operator, or gradient where none is named, with each shape, or its default ones."""
    ops = ops or [op for op, (_, work) in OPERATORS.items() if work == "backward"]
    return [(op, shape) for op in ops for shape in shapes or OPERATORS[op][0].shapes]


def case_of(op, shape, dtype="f32", data_format="NCX"):
    has_format = OPERATORS[op][0].channel == 1
    return {"op": op, "shape": shape, "dtype": dtype, "data_format": data_format if has_format else None}


def cases_of(report):
    """A report's usual cases of these operators: batch statistics, both parameter gradients, no activation."""
    return [
        case_of(row["op"].replace("-", "_"), shape_of(row["shape"]), row["dtype"], row["data_format"])
        for row in report["results"]
        if row["op"].replace("-", "_") in OPERATORS
        and (row["statistics"], row["param_grads"]) == ("batch", "both")
        and row.get("activation", "none") == "none"
    ]


def describe(case):
    words = (case["op"], "x".join(map(str, case["shape"])), case["dtype"], case["data_format"])
    return " ".join(word for word in words if word)


def dtypes(torch):
    return {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}


class Layer:
    """A layer's pass on several sets of tensors, which take turns so that they leave the caches: a gigabyte in all,
    64 sets at most and 2 at least, one where a set is that large."""

    # The default ones.
    shapes = ROWS
    # The axis of gamma and beta.
    channel = -1
    # Whether it subtracts a mean and has beta.
    centers = True
    # Whether its kernels take parameters of another type than the data's.
    mixes = True

    def __init__(self, torch, case, device):
        self.torch, self.aten = torch, torch.ops.aten
        self.shape, self.device = case["shape"], device
        self.work = getattr(self, OPERATORS[case["op"]][1])
        self.gradient = self.work == self.backward
        self.dtype = dtypes(torch)[case["dtype"]]
        size = torch.empty(0, dtype=self.dtype).element_size()
        self.tolerance = 5e-2 if size == 2 else 1e-3
        self.last = case["data_format"] == "NXC"
        torch.manual_seed(1)
        # The parameters' type is f32 where PyTorch can do that, as wgpu-norm's is; its CUDA layer norm cannot.
        accumulator = torch.float64 if self.dtype == torch.float64 else torch.float32
        try:
            self.params_dtype = accumulator if self.mixes else self.dtype
            self.sets = [self.tensors()]
            self.work(self.sets[0])
        except RuntimeError:
            self.params_dtype = self.dtype
            self.sets = [self.tensors()]
        whole = (3 if self.gradient else 2) * size * math.prod(self.shape)
        count = 1 if whole >= 1 << 30 else max(2, min(64, (1 << 30) // whole))
        while len(self.sets) < count:
            self.sets.append(self.tensors())
        # The results stay, so that they are not written to the same memory each time.
        self.results = [None] * count
        self.next = 0
        # The GPU's cycles for which the host may enqueue work.
        self.cycles = 1_000_000
        for _ in range(count):
            self.step()

    def tensors(self):
        """A set."""

        def random(low):
            shape = self.shape
            if self.last:
                shape = (shape[0], *shape[2:], shape[1])
            values = (self.torch.rand(shape, device=self.device) * 2 + low).to(self.dtype)
            return values.movedim(-1, 1) if self.last else values

        def parameter(low):
            values = self.torch.rand(self.param_shape(), device=self.device) + low
            return values.to(self.params_dtype)

        one = types.SimpleNamespace()
        one.src, one.diff_dst = random(-0.5), random(-1.0) if self.gradient else None
        one.gamma, one.beta = parameter(0.5), parameter(-0.5) if self.centers else None
        self.prepare(one)
        return one

    def param_shape(self):
        return (self.shape[self.channel],)

    def prepare(self, one):
        """Adds what a pass is given of PyTorch's own forward pass: mean and the inverse deviation."""
        _, one.mean, one.scale = self.forward(one)

    def step(self, work=None):
        """Enqueues the work, or other work, on the set whose turn it is."""
        self.next = (self.next + 1) % len(self.sets)
        self.results[self.next] = None
        self.results[self.next] = (work or self.work)(self.sets[self.next])

    def definition(self, one):
        """The results in float64."""
        shape, group, params = self.grid()
        # Axes along which a parameter is the same.
        others = [axis for axis, size in enumerate(params) if size == 1]

        def mean_of(values):
            return values.mean(group, keepdim=True)

        def along_channel(values):
            return values.detach().double().view(params)

        src, gamma = one.src.detach().double().reshape(shape), along_channel(one.gamma)
        beta = along_channel(one.beta) if self.centers else 0.0
        mean = mean_of(src) if self.centers else 0.0
        scale = (mean_of((src - mean).square()) + EPSILON).rsqrt()
        normalized = (src - mean) * scale
        if not self.gradient:
            return {"dst": normalized * gamma + beta, "mean": mean, "scale": scale}
        diff_dst = one.diff_dst.double().reshape(shape)
        scaled = diff_dst * gamma
        offset = mean_of(scaled) if self.centers else 0.0
        slope = mean_of(scaled * normalized)
        return {
            "diff_src": scale * (scaled - offset - normalized * slope),
            "diff_gamma": (diff_dst * normalized).sum(others),
            "diff_beta": diff_dst.sum(others),
        }

    def grid(self):
        """The tensor's shape with an axis or more for what is normalized together, those axes, and the parameters'
        shape, of 1 along all other axes."""
        rows, columns = math.prod(self.shape[:-1]), self.shape[-1]
        return (rows, columns), [1], (1, columns)

    def check(self):
        """Compares the first set's results, as many as there are, with the definition."""
        one = self.sets[0]
        for (name, want), got in zip(self.definition(one).items(), self.work(one)):
            difference = ((got.double() - want.reshape(got.shape)).abs().max() / want.abs().max()).item()
            if not difference < self.tolerance:  # NaN fails too
                raise RuntimeError(f"{name} is wrong by {difference:.1e}")


class BatchNorm(Layer):
    shapes = CHANNELS
    channel = 1

    def grid(self):
        samples, channels, *rest = self.shape
        return (samples, channels, math.prod(rest)), [0, 2], (1, channels, 1)

    def prepare(self, one):
        super().prepare(one)
        one.variance = one.scale**-2 - EPSILON

    def forward(self, one):
        return self.aten.native_batch_norm(one.src, one.gamma, one.beta, None, None, True, 0.1, EPSILON)

    def inference(self, one):
        statistics = one.mean, one.variance
        return self.aten.native_batch_norm(one.src, one.gamma, one.beta, *statistics, False, 0.1, EPSILON)[:1]

    def backward(self, one):
        return self.aten.native_batch_norm_backward(
            one.diff_dst, one.src, one.gamma, None, None, one.mean, one.scale, True, EPSILON, [True, True, True]
        )


class LayerNorm(Layer):
    def forward(self, one):
        return self.aten.native_layer_norm(one.src, self.shape[-1:], one.gamma, one.beta, EPSILON)

    def backward(self, one):
        return self.aten.native_layer_norm_backward(
            one.diff_dst, one.src, self.shape[-1:], one.mean, one.scale, one.gamma, one.beta, [True, True, True]
        )


class ByAutograd(Layer):
    """One of PyTorch's functions; the gradient is autograd's."""

    def prepare(self, one):
        if self.gradient:
            for tensor in self.inputs(one):
                tensor.requires_grad_()
            (one.dst,) = self.forward(one)

    def inputs(self, one):
        """What has a gradient."""
        return [tensor for tensor in (one.src, one.gamma, one.beta) if tensor is not None]

    def backward(self, one):
        return self.torch.autograd.grad(one.dst, self.inputs(one), one.diff_dst, retain_graph=True)


class RmsNorm(ByAutograd):
    centers = False
    mixes = False

    def forward(self, one):
        return (self.torch.rms_norm(one.src, self.shape[-1:], one.gamma, EPSILON),)


class AdaptiveLayerNorm(ByAutograd):
    """Layer norm with gamma and beta of each sample, as diffusion transformers write it."""

    shapes = TOKENS
    mixes = False

    def param_shape(self):
        return (self.shape[0], *[1] * (len(self.shape) - 2), self.shape[-1])

    def grid(self):
        samples, *tokens, channels = self.shape
        return (samples, math.prod(tokens), channels), [2], (samples, 1, channels)

    def forward(self, one):
        normalized = self.torch.nn.functional.layer_norm(one.src, self.shape[-1:], eps=EPSILON)
        return (self.torch.addcmul(one.beta, normalized, one.gamma),)


class ChannelLayerNorm(ByAutograd):
    """Layer norm over the channels of NCX, as ConvNeXt writes it: the result lies channels last."""

    shapes = POSITIONS
    channel = 1
    mixes = False

    def grid(self):
        samples, channels, *rest = self.shape
        return (samples, channels, math.prod(rest)), [1], (1, channels, 1)

    def forward(self, one):
        channels = (self.shape[1],)
        src = one.src.movedim(1, -1)
        dst = self.torch.nn.functional.layer_norm(src, channels, one.gamma, one.beta, EPSILON)
        return (dst.movedim(-1, 1),)


class OfSamples(Layer):
    """Normalizes groups of a sample's channels."""

    shapes = OF_SAMPLES
    channel = 1

    def groups(self):
        """32, as most networks have it, or the most below that divide the channels."""
        channels = self.shape[1]
        return next(groups for groups in range(min(32, channels), 0, -1) if channels % groups == 0)

    def grid(self):
        samples, channels, *rest = self.shape
        groups = self.groups()
        of_group = channels // groups
        return (samples, groups, of_group, math.prod(rest)), [2, 3], (1, groups, of_group, 1)


class GroupNorm(OfSamples):
    def sizes(self):
        """What its kernels take beside tensors."""
        samples, channels, *rest = self.shape
        return samples, channels, math.prod(rest), self.groups()

    def packed(self, values):
        """The copy that PyTorch's function makes of a tensor which the kernels do not take."""
        last = self.torch.channels_last
        takes = self.device == "cpu" and values.dim() == 4 and values.is_contiguous(memory_format=last)
        return values if takes else values.contiguous()

    def forward(self, one):
        src = self.packed(one.src)
        return self.aten.native_group_norm(src, one.gamma, one.beta, *self.sizes(), EPSILON)

    def backward(self, one):
        diff_dst, src = self.packed(one.diff_dst), self.packed(one.src)
        return self.aten.native_group_norm_backward(
            diff_dst, src, one.mean, one.scale, one.gamma, *self.sizes(), [True, True, True]
        )


class InstanceNorm(ByAutograd, OfSamples):
    def groups(self):
        return self.shape[1]

    def forward(self, one):
        return (self.torch.instance_norm(one.src, one.gamma, one.beta, None, None, True, 0.1, EPSILON, True),)


# Each operator's layer and pass.
OPERATORS = {
    "batch_norm": (BatchNorm, "backward"),
    "layer_norm": (LayerNorm, "backward"),
    "rms_norm": (RmsNorm, "backward"),
    "batch_norm_forward": (BatchNorm, "forward"),
    "batch_norm_inference": (BatchNorm, "inference"),
    "layer_norm_forward": (LayerNorm, "forward"),
    "rms_norm_forward": (RmsNorm, "forward"),
    "group_norm": (GroupNorm, "backward"),
    "instance_norm": (InstanceNorm, "backward"),
    "group_norm_forward": (GroupNorm, "forward"),
    "instance_norm_forward": (InstanceNorm, "forward"),
    "adaptive_layer_norm": (AdaptiveLayerNorm, "backward"),
    "adaptive_layer_norm_forward": (AdaptiveLayerNorm, "forward"),
    "channel_layer_norm": (ChannelLayerNorm, "backward"),
    "channel_layer_norm_forward": (ChannelLayerNorm, "forward"),
}


def host_clock(torch, layer, work=None):
    start = time.perf_counter()
    layer.step(work)
    if layer.device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def events(torch, layer, work=None, repeats=1):
    """The milliseconds of the work, the mean of some in a row."""
    while True:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # The stream is busy while the host enqueues what follows, so that no wait for the host is between the events.
        torch.cuda._sleep(layer.cycles)
        begin.record()
        for _ in range(repeats):
            layer.step(work)
        end.record()
        late = begin.query()
        torch.cuda.synchronize()
        if not late or layer.cycles >= MOST_CYCLES:
            return begin.elapsed_time(end) / repeats
        layer.cycles *= 2


def repeats_of(torch, layer, work=None):
    one = statistics.median(events(torch, layer, work) for _ in range(3))
    return 1 if one >= SHORT else max(1, min(MOST_REPEATS, int(REPEATED / one)))


def measure(torch, layer, rounds, least):
    """The median of the rounds' medians, or the least of all times, by each clock: `wall`, and `events` on CUDA; and,
    beside a gradient, `forward` by the best clock. Then the number of repeats between two events; 1 without."""
    statistic = min if least else statistics.median
    warm = min(host_clock(torch, layer) for _ in range(5))
    repeats, samples = 1, max(1, min(20, int(30 / warm)))
    clocks = {"wall": (samples, lambda: host_clock(torch, layer))}

    def by_events(work=None):
        repeats = repeats_of(torch, layer, work)
        # Samples of many runs differ less.
        few = samples if repeats == 1 else min(samples, 5)
        return repeats, (few, lambda: events(torch, layer, work, repeats))

    if layer.device == "cuda":
        repeats, clocks["events"] = by_events()
    if layer.gradient and layer.device == "cuda":
        _, clocks["forward"] = by_events(layer.forward)
    elif layer.gradient:
        clocks["forward"] = (samples, lambda: host_clock(torch, layer, layer.forward))
    of_rounds = {name: [] for name in clocks}
    for _ in range(rounds):
        for name, (count, clock) in clocks.items():
            of_rounds[name].append(statistic(clock() for _ in range(count)))
    return {name: statistic(values) for name, values in of_rounds.items()}, repeats


def timed(torch, case, device, rounds, least):
    """The times of a case, its repeats between two events, and its parameters' type."""
    kind, _ = OPERATORS[case["op"]]
    layer = kind(torch, case, device)
    layer.check()
    times, repeats = measure(torch, layer, rounds, least)
    names = {dtype: name for name, dtype in dtypes(torch).items()}
    return times, repeats, names[layer.params_dtype]


def add_to_report(torch, path, place, device, rounds, least):
    """Times the report's cases, and writes the report anew after each. Whether all were timed."""
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    found = {**place, "results": [], "skipped": []}
    report["pytorch"] = found
    for case in cases_of(report):
        shape = "x".join(map(str, case["shape"]))
        try:
            times, repeats, params_dtype = timed(torch, case, device, rounds, least)
        except RuntimeError as error:  # the other cases are still worth their time
            print(f"{describe(case)}  not timed: {error}", flush=True)
            found["skipped"].append({"case": describe(case), "reason": str(error).split("\n", 1)[0]})
        else:
            time_ms = times.get("events", times["wall"])
            print(f"{describe(case)}  {time_ms:.4f} ms, {repeats} between events", flush=True)
            found["results"].append(
                {
                    "op": case["op"].replace("_", "-"),
                    "shape": shape,
                    "dtype": case["dtype"],
                    "data_format": case["data_format"],
                    "params_dtype": params_dtype,
                    "time_ms": time_ms,
                    "repeats": repeats,
                    "wall_ms": times["wall"],
                    "forward_ms": times.get("forward", time_ms),
                }
            )
        if device == "cuda":
            torch.cuda.empty_cache()
        write(path, report)
    return not found["skipped"]


def write(path, value):
    """Replaces the file as a whole."""
    beside = f"{path}.part"
    with open(beside, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


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
    parser.add_argument("--like", metavar="report.json", help="time this report's cases, and add them to it")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--device", choices=["cuda", "cpu"], help="by default cuda where there is one")
    parser.add_argument("--op", action="append", choices=OPERATORS, default=[])
    parser.add_argument("--shape", action="append", type=shape_of, default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--least", action="store_true", help="take the least of all times instead of the median")
    args = parser.parse_args()
    if args.like and (args.json or args.op or args.shape):
        parser.error("--like takes its cases from the report")
    if args.shape and not args.op:
        parser.error("--shape needs --op")
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
    print(f"PyTorch {torch.__version__} on {name}, {driver}", flush=True)
    place = {
        "version": torch.__version__,
        "device": name,
        "driver": driver,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        **({"times": "minima"} if args.least else {}),
    }
    if args.like:
        complete = add_to_report(torch, args.like, place, device, args.rounds, args.least)
        print(f"now: wgpu-norm report {os.path.dirname(args.like) or '.'} --redraw")
        return 0 if complete else 1

    peers = {"wall": "PyTorch", "events": "PyTorch (CUDA events)"}
    results, failed = {}, False
    for op, shape in select(args.op, args.shape):
        case = case_of(op, shape)
        try:
            times, repeats, _ = timed(torch, case, device, args.rounds, args.least)
        except RuntimeError as error:  # the other shapes are still worth their time
            print(f"{describe(case)}  not timed: {error}")
            failed = True
            continue
        for clock, peer in peers.items():
            if clock not in times:
                continue
            print(f"{describe(case)}  {times[clock]:.4f} ms  {peer}")
            entry = {**case, "shape": "x".join(map(str, shape)), "time_ms": times[clock], "variant": "native"}
            if clock == "events":
                entry["repeats"] = repeats
            results.setdefault(peer, []).append(entry)
    if args.json:
        write(args.json, [{"peer": peer, **place, "results": entries} for peer, entries in results.items()])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
