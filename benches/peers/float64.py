#!/usr/bin/env python3
"""Computes normalization layers by PyTorch in float64, to compare wgpu-norm-verify's float64 reference with.

    python3 float64.py cases.json
    cargo run -p wgpu-norm-verify --example pytorch -- cases.json

A case is the ID of a forward pass (verify/src/lib.rs explains its parts), what it and its gradient read, and what they
write. Gradients are autograd's. The forms are those of models: layer norm over channels is permute, layer_norm,
permute; adaptive norms are a norm without parameters, then (1 + scale) and shift of each sample, gate and residual.
"""

import json
import sys

import torch
from torch.nn import functional as F

EPSILON = 1e-5
WEIGHT = 0.25  # of the batch in running statistics

CASES = [
    "batch_norm_forward/3x7x5/ncx",
    "batch_norm_forward/11x3/nxc/no_gamma/no_beta",
    "batch_norm_forward/3x7x5/ncx/running_unbiased",
    "batch_norm_forward/3x7x5/ncx/residual",
    "batch_norm_forward/3x7x5/ncx/residual/relu",
    "batch_norm_inference/3x7x5/ncx",
    "group_norm_forward/2x9x5/ncx/groups_3",
    "group_norm_forward/2x5x9/nxc/groups_3",
    "instance_norm_forward/3x5x7x3/ncx",
    "instance_norm_forward/3x7x5/nxc",
    *(
        f"{norm}_norm_forward/{options}"
        for norm in ["layer", "rms"]
        for options in ["5x7", "5x7/no_gamma", "3x5x7/axis_1", "5x7/zero_centered_gamma", "5x7/residual"]
    ),
    *(
        f"axes_norm_forward/{options}{centered}"
        for centered in ["", "/uncentered"]
        for options in [
            # Layer norm over channels.
            "3x7x5x2/over_1/along_1",
            "3x7x5x2/over_1/along_1/no_beta",
            # Adaptive layer norm: rows of tokens, parameters of each sample.
            "3x5x7/over_2/along_0-2",
            "3x5x7/over_2/along_0-2/zero_centered_gamma",
            "3x5x7/over_2/along_0-2/zero_centered_gamma/gate/residual",
            "3x5x7/over_2/along_0-2/no_gamma/no_beta/gate/residual",
            # Adaptive instance norm, and group norm of samples, groups, channels of a group, pixels.
            "3x5x7x3/over_2-3/along_0-1",
            "3x5x7x3/over_2-3/along_0-1/gate/residual",
            "3x2x5x7/over_2-3/along_0-1-2/zero_centered_gamma",
            "3x2x5x7/over_2-3/along_0-1-2/gate",
            # Statistics around an axis, of two axes around one, and one gamma for all.
            "3x4x5/over_0-2/along_1",
            "3x4x5x2/over_1-3/along_2",
            "5x7/over_0-1/along_none",
        ]
    ),
    *(f"axes_norm_forward/3x7x5/over_1/along_1/{name}" for name in ["relu", "silu", "gelu", "gelu_tanh"]),
]


def activation(options, y):
    if "gelu_tanh" in options:
        return F.gelu(y, approximate="tanh")
    for name in ["relu", "silu", "gelu"]:
        if name in options:
            return getattr(F, name)(y)
    return y


class Case:
    def __init__(self, text):
        name, sizes, *self.options = text.split("/")
        self.norm, self.work = name.split("_norm_")
        self.shape = [int(size) for size in sizes.split("x")]
        self.channel = len(self.shape) - 1 if "nxc" in self.options else 1
        self.centered = self.norm != "rms" and "uncentered" not in self.options
        rank = len(self.shape)
        # The axes of the statistics (those of group norm are of groups, too) and of the parameters.
        if self.norm in ["layer", "rms"]:
            self.over = self.along = list(range(*self.numbers("axis_", [rank - 1]), rank))
        elif self.norm == "axes":
            self.over, self.along = self.numbers("over_"), self.numbers("along_")
        else:
            self.over, self.along = [axis for axis in range(rank) if axis != self.channel], [self.channel]

    def numbers(self, prefix, otherwise=None):
        found = [option.removeprefix(prefix) for option in self.options if option.startswith(prefix)]
        return [int(number) for number in found[0].split("-") if number != "none"] if found else otherwise

    def groups(self):
        """Of a sample's channels, each with statistics of its own."""
        return {"group": self.numbers("groups_", [1])[0], "instance": self.shape[self.channel]}.get(self.norm)

    def inputs(self):
        def random(shape, low, high):
            return torch.rand(shape, dtype=torch.float64) * (high - low) + low

        params = [self.shape[axis] for axis in self.along]
        inputs = {"src": random(self.shape, -1.0, 2.0)}
        if self.work == "inference":
            inputs["mean"], inputs["variance"] = random(params, 0.0, 1.0), random(params, 0.5, 1.5)
        if "no_gamma" not in self.options:
            inputs["gamma"] = random(params, -1.0, 1.5)
            if self.norm != "rms" and "no_beta" not in self.options:
                inputs["beta"] = random(params, -1.0, 1.0)
        if "gate" in self.options:
            inputs["gate"] = random(params, -1.0, 1.0)
        if "residual" in self.options:
            inputs["residual"] = random(self.shape, -1.0, 1.0)
        if "running_unbiased" in self.options:
            inputs["running_mean"], inputs["running_variance"] = random(params, 0.0, 1.0), random(params, 0.5, 1.5)
        inputs["diff_dst"] = random(self.shape, -1.0, 1.0)
        return inputs

    def along_params(self, values):
        """A parameter with src's axes."""
        sizes = [size if axis in self.along else 1 for axis, size in enumerate(self.shape)]
        return values.view(sizes)

    def layer(self, x, gamma, beta, given):
        """The layer before gate and residual. given: mean and variance, or running ones."""
        ncx = x.movedim(self.channel, 1)
        if self.norm == "batch":
            ncx = F.batch_norm(ncx, *given, gamma, beta, self.work == "forward", WEIGHT, EPSILON)
        elif self.norm == "group":
            ncx = F.group_norm(ncx, self.groups(), gamma, beta, EPSILON)
        elif self.norm == "instance":
            ncx = F.instance_norm(ncx, weight=gamma, bias=beta, eps=EPSILON)
        else:
            return self.rows(x, gamma, beta)
        return ncx.movedim(1, self.channel)

    def rows(self, x, gamma, beta):
        """Any other layer: the axes of the statistics are made rows."""
        order = [axis for axis in range(x.dim()) if axis not in self.over] + self.over
        back = [order.index(axis) for axis in range(x.dim())]
        rows, sizes = x.permute(order), [self.shape[axis] for axis in self.over]
        # Parameters that the rows' function does not take come afterwards.
        of_rows = [gamma, beta] if self.over == self.along else [None, None]
        if self.centered:
            y = F.layer_norm(rows, sizes, *of_rows, EPSILON)
        else:
            of_rows[1] = None
            y = F.rms_norm(rows, sizes, of_rows[0], EPSILON)
        y = y.permute(back)
        if gamma is not of_rows[0]:
            y = y * self.along_params(gamma)
        if beta is not of_rows[1]:
            y = y + self.along_params(beta)
        return y

    def statistics(self, x):
        over = self.over
        if self.groups():
            x, over = x.movedim(self.channel, 1).reshape(self.shape[0], self.groups(), -1), [2]
        if not self.centered:
            return {"mean_square": x.square().mean(over)}
        return {"mean": x.mean(over), "variance": x.var(over, correction=0)}

    def compute(self):
        inputs = self.inputs()
        running = {name: inputs[name].clone() for name in ["running_mean", "running_variance"] if name in inputs}
        given = list(running.values()) or [inputs.get("mean"), inputs.get("variance")]
        params = ["src", "gamma", "beta", "gate", "residual"]
        leaves = {name: inputs[name].clone().requires_grad_() for name in params if name in inputs}
        src, gamma, beta, gate, residual = (leaves.get(name) for name in params)
        if "zero_centered_gamma" in self.options:
            gamma = 1 + gamma
        before = residual is not None and self.norm in ["layer", "rms"]
        x = src + residual if before else src
        y = self.layer(x, gamma, beta, given)
        if gate is not None:
            y = y * self.along_params(gate)
        if residual is not None and not before:
            y = y + residual
        dst = activation(self.options, y)
        dst.backward(inputs["diff_dst"])

        return inputs, {
            "dst": dst,
            **({"sum": x} if before else {}),
            **(self.statistics(x) if self.work == "forward" else {}),
            **running,
            **{f"diff_{name}": leaf.grad for name, leaf in leaves.items()},
        }


def main():
    torch.manual_seed(1)

    def numbers(tensors):
        return {name: tensor.flatten().tolist() for name, tensor in tensors.items()}

    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump([(case, *map(numbers, Case(case).compute())) for case in CASES], file)
    print(f"PyTorch {torch.__version__}: {len(CASES)} cases")


if __name__ == "__main__":
    main()
