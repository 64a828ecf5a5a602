#!/usr/bin/env python3
"""Times PyTorch's gradients of batch norm and layer norm.

    python3 pytorch.py --like report.json [--device cuda|cpu] [--rounds N]
    python3 pytorch.py [--json FILE] [--device cuda|cpu] [--op OP] [--shape SHAPE]... [--rounds N]

The first times the cases of a report of `wgpu-norm report`: the same shapes, layouts and element types. It adds
them to the report after each, so that a run that is cut off leaves what it has; `wgpu-norm report DIR --redraw`
puts them into the tables and the picture. It needs this file and PyTorch, nothing else.

The second is for the table of peers: a list of shapes in f32, batch norm over NCX.

On CUDA there are two times: by the host's clock from submission to completion, and by events on the stream, which
leave out the latency of submission. In the table of peers they are peers of their own. Exits with 2 where PyTorch or
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

EPSILON = 1e-5

OPERATORS = ("batch_norm", "layer_norm")

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


def case_of(op, shape, dtype="f32", data_format="NCX"):
    return {"op": op, "shape": shape, "dtype": dtype, "data_format": data_format if op == "batch_norm" else None}


def cases_of(report):
    """A report's usual cases of these operators: batch statistics, both parameter gradients."""
    return [
        case_of(row["op"].replace("-", "_"), shape_of(row["shape"]), row["dtype"], row["data_format"])
        for row in report["results"]
        if row["op"].replace("-", "_") in OPERATORS
        and (row["statistics"], row["param_grads"]) == ("batch", "both")
    ]


def describe(case):
    words = (case["op"], "x".join(map(str, case["shape"])), case["dtype"], case["data_format"])
    return " ".join(word for word in words if word)


def dtypes(torch):
    return {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}


class Layer:
    """A gradient on several sets of tensors, which take turns so that they leave the caches: a gigabyte in all,
    64 sets at most and 2 at least, one where a set is that large."""

    def __init__(self, torch, case, device):
        self.torch = torch
        self.op, shape = case["op"], case["shape"]
        self.columns = [shape[-1]]
        self.channels = shape[1] if self.op == "batch_norm" else shape[-1]
        self.dtype = dtypes(torch)[case["dtype"]]
        size = torch.empty(0, dtype=self.dtype).element_size()
        self.tolerance = 5e-2 if size == 2 else 1e-3
        self.last = case["data_format"] == "NXC"
        self.shape, self.device = shape, device
        torch.manual_seed(1)
        # The parameters' type is f32 where PyTorch can do that, as wgpu-norm's is; its CUDA layer norm cannot.
        accumulator = torch.float64 if self.dtype == torch.float64 else torch.float32
        try:
            self.params_dtype = accumulator
            self.sets = [self.tensors()]
            self.backward(0)
        except RuntimeError:
            self.params_dtype = self.dtype
            self.sets = [self.tensors()]
        whole = 3 * size * math.prod(shape)
        count = 1 if whole >= 1 << 30 else max(2, min(64, (1 << 30) // whole))
        while len(self.sets) < count:
            self.sets.append(self.tensors())
        # The results stay, so that they are not written to the same memory each time.
        self.results = [None] * count
        self.next = 0
        for _ in range(count):
            self.step()

    def tensors(self):
        """src, diff_dst, gamma, beta and, by PyTorch's own forward pass, mean and the inverse deviation."""

        def random(low):
            shape = self.shape
            if self.last:
                shape = (shape[0], *shape[2:], shape[1])
            values = (self.torch.rand(shape, device=self.device) * 2 + low).to(self.dtype)
            return values.movedim(-1, 1) if self.last else values

        src, diff_dst = random(-0.5), random(-1.0)
        gamma = (self.torch.rand(self.channels, device=self.device) + 0.5).to(self.params_dtype)
        beta = self.torch.zeros_like(gamma)
        _, mean, scale = self.normalize(src, gamma, beta)
        return src, diff_dst, gamma, beta, mean, scale

    def normalize(self, src, gamma, beta):
        aten = self.torch.ops.aten
        if self.op == "batch_norm":
            return aten.native_batch_norm(src, gamma, beta, None, None, True, 0.1, EPSILON)
        return aten.native_layer_norm(src, self.columns, gamma, beta, EPSILON)

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

    def forward(self, index):
        src, _, gamma, beta, _, _ = self.sets[index]
        return self.normalize(src, gamma, beta)

    def step(self, work=None):
        """Enqueues the gradient, or other work, on the set whose turn it is."""
        self.next = (self.next + 1) % len(self.sets)
        self.results[self.next] = None
        self.results[self.next] = (work or self.backward)(self.next)

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
            if not difference < self.tolerance:  # NaN fails too
                raise RuntimeError(f"{name} is wrong by {difference:.1e}")


def host_clock(torch, layer, cuda, work=None):
    start = time.perf_counter()
    layer.step(work)
    if cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def events(torch, layer, work=None):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    # The stream is busy while the host enqueues what follows, so that no wait for the host is between the events.
    torch.cuda._sleep(1_000_000)
    begin.record()
    layer.step(work)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def measure(torch, layer, rounds, cuda):
    """The median of the rounds' medians, by each clock: `wall`, and `events` on CUDA; and `forward`, by the best clock."""
    clocks = {"wall": lambda: host_clock(torch, layer, cuda)}
    if cuda:
        clocks["events"] = lambda: events(torch, layer)
        clocks["forward"] = lambda: events(torch, layer, layer.forward)
    else:
        clocks["forward"] = lambda: host_clock(torch, layer, cuda, layer.forward)
    warm = min(host_clock(torch, layer, cuda) for _ in range(5))
    runs = max(1, min(20, int(30 / warm)))
    medians = {name: [] for name in clocks}
    for _ in range(rounds):
        for name, clock in clocks.items():
            medians[name].append(statistics.median(clock() for _ in range(runs)))
    return {name: statistics.median(values) for name, values in medians.items()}


def timed(torch, case, device, rounds):
    """The times of a case, and its parameters' type."""
    layer = Layer(torch, case, device)
    layer.check()
    times = measure(torch, layer, rounds, device == "cuda")
    names = {dtype: name for name, dtype in dtypes(torch).items()}
    return times, names[layer.params_dtype]


def add_to_report(torch, path, place, device, rounds):
    """Times the report's cases, and writes the report anew after each. Whether all were timed."""
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    found = {**place, "results": [], "skipped": []}
    report["pytorch"] = found
    for case in cases_of(report):
        shape = "x".join(map(str, case["shape"]))
        try:
            times, params_dtype = timed(torch, case, device, rounds)
        except RuntimeError as error:  # the other cases are still worth their time
            print(f"{describe(case)}  not timed: {error}", flush=True)
            found["skipped"].append({"case": describe(case), "reason": str(error).split("\n", 1)[0]})
        else:
            time_ms = times.get("events", times["wall"])
            print(f"{describe(case)}  {time_ms:.4f} ms", flush=True)
            found["results"].append(
                {
                    "op": case["op"].replace("_", "-"),
                    "shape": shape,
                    "dtype": case["dtype"],
                    "data_format": case["data_format"],
                    "params_dtype": params_dtype,
                    "time_ms": time_ms,
                    "wall_ms": times["wall"],
                    "forward_ms": times["forward"],
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
    parser.add_argument("--op", choices=OPERATORS)
    parser.add_argument("--shape", action="append", type=shape_of, default=[])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if args.like and (args.json or args.op or args.shape):
        parser.error("--like takes its cases from the report")
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
    }
    if args.like:
        complete = add_to_report(torch, args.like, place, device, args.rounds)
        print(f"now: wgpu-norm report {os.path.dirname(args.like) or '.'} --redraw")
        return 0 if complete else 1

    peers = {"wall": "PyTorch", "events": "PyTorch (CUDA events)"}
    results, failed = {}, False
    for op, shape in select(args.op, args.shape):
        case = case_of(op, shape)
        try:
            times, _ = timed(torch, case, device, args.rounds)
        except RuntimeError as error:  # the other shapes are still worth their time
            print(f"{describe(case)}  not timed: {error}")
            failed = True
            continue
        for clock, peer in peers.items():
            if clock not in times:
                continue
            print(f"{describe(case)}  {times[clock]:.4f} ms  {peer}")
            entry = {**case, "shape": "x".join(map(str, shape)), "time_ms": times[clock], "variant": "native"}
            results.setdefault(peer, []).append(entry)
    if args.json:
        write(args.json, [{"peer": peer, **place, "results": entries} for peer, entries in results.items()])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
