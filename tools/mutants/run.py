#!/usr/bin/env python3
"""Damages the kernels, one small change at a time, and checks that `wgpu-norm verify` notices.

    tools/mutants/run.py [--each N] [--jobs N] [--only TEXT] [--list]

It changes every function of shaders/**/*.wgsl, and one of each kind of the generated functions that read and write
storage. In each it makes N changes (2 by default): + becomes -, < becomes <=, 0u becomes 1u, x becomes y, and so on;
the last rules remove a statement. For each change it runs the default `verify`, on the adapter that WGPU_BACKEND and
WGPU_ADAPTER_NAME choose, until the first case fails. A change after which every case passes is a survivor: a gap in the
list of cases (verify/src/list.rs), or a change that cannot be seen, which then belongs to UNSEEN below, with the
reason. Exits with 1 if there is a survivor.

It builds the command once, with `--cfg wgpu_norm_mutants`: such a build writes kernels' texts to the folder
WGPU_NORM_TEXTS, and damages them as the file WGPU_NORM_SWAP says. Needs cargo, and only Python's standard library.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHADERS = ROOT / "shaders"

# Patterns and their replacements. A mutant changes one place.
RULES = [
    (r" \+ ", " - "),
    (r" - ", " + "),
    (r" \* ", " + "),
    (r" / ", " * "),
    (r" % ", " / "),
    (r" \+= ", " -= "),
    (r" < ", " <= "),
    (r" <= ", " < "),
    (r" > ", " >= "),
    (r" >= ", " > "),
    (r" == ", " != "),
    (r" && ", " || "),
    (r" << ", " >> "),
    (r" >> ", " << "),
    (r" & ", " | "),
    (r" \| ", " & "),
    (r"\bmin\(", "max("),
    (r"\bmax\(", "min("),
    (r"\b0u\b", "1u"),
    (r"\b1u\b", "2u"),
    (r"\b2u\b", "1u"),
    (r"\b3u\b", "2u"),
    (r"\b4u\b", "3u"),
    (r"\b1\.0\b", "2.0"),
    (r"0x([0-9a-f]*)([0-7])([0-9a-f]*)u", r"0x\g<1>8\g<3>u"),
    (r"(?<=[\w\])])\.x\b", ".y"),
    (r"(?<=[\w\])])\.y\b", ".x"),
    (r"(?<=[\w\])])\.z\b", ".w"),
    (r"(?<=[\w\])])\.w\b", ".z"),
    (r"\.xy\b", ".yx"),
    (r"\.zw\b", ".wz"),
    (r"\.xz\b", ".yz"),
    (r"\[0\]", "[1]"),
    (r"\[1\]", "[0]"),
    (r"\[i\]", "[0]"),
    (r"\bf\.", "t."),
    (r"\bt\.", "f."),
    (r"\bif !", "if "),
    (r"workgroupBarrier\(\);", ""),
    (r"(?m)^ +[\w.\[\]*()]+ [+-]?= [^;{]*;$", ""),
    (r"(?m)^ +store_\w+\([^;]*\);$", ""),
    (r"(?m)^ +(if [^{}]* \{ )?return;( \})?$", ""),
]

# Changes that cannot change any result: file, function, part of the line, part of the changed line; and the reason.
ABSENT = "pairs of loads or stores exist only for tensors that are not bound: loads are unused, stores do nothing"
ENDS = "a tensor whose buffer ends within a vec4 is never stored by whole vec4s"
OUTSIDE = "accesses memory outside of the binding: software drivers drop that, or nobody sees it"
MASKED = "the value read there, in or out of bounds, is masked out"
UNUSED = "the function does not use it"
UNGATED = "a layer with a gate is scaled, so nobody reads the gate there"
SECOND = "after the second sums δ is the rounding error of the shift"
JOINED = "no case has a product beyond the type: gate_times_gamma_beyond_the_type in tests/library/axes_norm.rs has"
ZEROS = "variables are zero-initialized"
LATER = "the additional writes are overwritten before they are read"
UNSEEN = [
    ("generated/real", "load_vector_TENSOR", "2u * vector", "", ABSENT),
    ("generated/real", "store_vector_TENSOR", "2u * vector", "", ABSENT),
    ("generated/real", "store_first_vector_TENSOR", "2u * vector", "", ABSENT),
    ("generated/real", "store_first_vector_TENSOR", "store_vector_TENSOR", "", "a tensor in such vectors ends with one"),
    ("generated/real", "store_TENSOR", "store_lanes_TENSOR", "", ENDS),
    ("generated/real_exact", "load_TENSOR", "let last", "2u) - 1u", OUTSIDE),
    ("generated/real_exact", "load_TENSOR", "let last", "1u) + 1u", OUTSIDE),
    ("generated/half_exact", "load_TENSOR", "let last", "2u) - 1u", OUTSIDE),
    ("generated/half_exact", "load_TENSOR", "let last", "/ 1u", OUTSIDE),
    ("generated/half_exact", "load_TENSOR", "let last", "* 2u", OUTSIDE),
    ("generated/half", "store_lanes_TENSOR", "0u < lanes.y", "0u <= lanes.y", "only a pair has no lanes"),
    ("generated/half_exact", "store_lanes_TENSOR", "2u < lanes.y", "1u < lanes.y", OUTSIDE),
    ("generated/real_exact", "store_lanes_TENSOR", "2u < lanes.y", "1u < lanes.y", OUTSIDE),
    ("generated/half", "store_lanes_TENSOR", "vec4(0u, 1u, 2u, 3u)", "vec4(0u, 1u, 1u, 3u)", "that word is not stored"),
    ("generated/half_exact", "store_lanes_TENSOR", "vec4(0u, 1u, 2u, 3u)", "2u, 2u)", "with three the buffer holds four"),
    ("generated/half_long", "store_TENSOR", "mean[", "", "statistics are stored by store_lanes alone"),
    ("generated/real_long", "store_TENSOR", "mean[", "", "statistics are stored by store_lanes alone"),
    ("generated/half", "store_TENSOR", "mean[", "", "statistics are stored by store_lanes alone"),
    ("generated/real", "store_TENSOR", "mean[", "", "statistics are stored by store_lanes alone"),
    ("generated/real", "splat_TENSOR", "inputs.diff_dst[i]", "", "a gradient has no shift"),
    ("generated/real", "select_TENSOR", "return Inputs(", "", "the shift of a block without elements is not used"),
    ("generated/real_long", "store_lanes_TENSOR", "lanes.y > 0u", "lanes.y >= 0u", "it stores what was there"),
    ("activations/gelu.wgsl", "activation", "y < real4()", "y <= real4()", "both are 0 at 0"),
    ("activations/gelu.wgsl", "activation_gradient", "y < real4()", "y <= real4()", "both are half of diff at 0"),
    ("parts/near_zero.wgsl", "near_zero", "sign(y)", "256.0) + sign(y)", "t is 0 there, whatever the sign, and 255 will do"),
    ("elements/f32.wgsl", "is_normal", "", "", JOINED),
    ("elements/f64.wgsl", "is_normal", "", "", JOINED),
    ("parts/params.wgsl", "joined_params", "return select_params", "", JOINED),
    ("elements/f64.wgsl", "at_most_zero", "value <= real4()", "<", "at 0 either is right: rounding decides whether it is 0"),
    ("operators/contract.wgsl", "with_sums", "derived(0u", "derived(1u", UNUSED),
    ("operators/gradient.wgsl", "with_sums", "derived(0u", "derived(1u", UNUSED),
    ("elements/f32.wgsl", "at_most_zero", "<= vec4(-8388608)", "<", "no case has −∞ before ReLU: tests/library/activation.rs has"),
    ("elements/f16_probe.wgsl", "probe", "arrayLength", "", "it has an invocation for each element"),
    ("elements/f64.wgsl", "nan_unless_finite", "e308lf", ">=", "no case has the largest number"),
    ("operators/contract.wgsl", "merge_totals", "0u)", "1u)", "all four are alike"),
    ("operators/forward.wgsl", "coefficients_of", "params.gate", "", JOINED),
    ("operators/forward.wgsl", "record_of_coefficients", "gate[i]", "gate[0]", JOINED),
    ("operators/forward.wgsl", "with_sums", "max(sums.count", "2.0", "M2 of one element is 0"),
    ("operators/rows_forward.wgsl", "coefficients_of", "neutral_params", "", LATER),
    ("operators/rows_forward.wgsl", "record_of_coefficients", "r[i]", "r[0]", "all four elements of a row are alike"),
    ("parts/near_zero.wgsl", "near_zero", "256.0) - abs", "256.0) + abs", "t is 0 there, without the bound, too"),
    ("traversals/combine_groups.wgsl", "combine_groups", "min(4u", "max(4u", OUTSIDE),
    ("elements/bf16.wgsl", "encode_bf16", "vec4(0x40u)", "0x48u", "any NaN will do"),
    ("traversals/columns_walk.wgsl", "load_row", "for (var p", "p <= column_vectors", OUTSIDE),
    ("traversals/flat_apply.wgsl", "flat_apply", "tile >= uniforms.end_tile", "tile > ", OUTSIDE),
    ("operators/rows_forward.wgsl", "begin_row", "begun.shift", "", "any number near the mean is a shift"),
    ("parts/columns_in_registers.wgsl", "begin_tile", "load_in_row", "", "any number near the mean is a shift"),
    ("parts/rows_in_registers.wgsl", "begin_tile", "load_in_row", "", "any number near the mean is a shift"),
    ("parts/columns_in_registers.wgsl", "store_statistics_of_tile", "return;", "",
     "any invocation may write what all have; past the end, the last columns' statistics are written again"),
    ("parts/rows_in_registers.wgsl", "store_statistics_of_tile", "> 0u ||", "> 1u ||", "any invocation may write what all have"),
    ("traversals/combine_groups.wgsl", "combine_groups", "4u * vec4_index >=", ">", "no group is left"),
    ("operators/rows_forward.wgsl", "record_of_row", "", "", "all four elements of a row's sums are alike"),
    ("traversals/channels_first_fused.wgsl", "in_group", "0u", "1u", "all four are alike"),
    ("parts/planes_by_teams.wgsl", "plane_coefficients", "planes - 1u", "planes + 1u", OUTSIDE),
    ("traversals/channels_first_fused.wgsl", "plane_coefficients", "tile_channels - 1u", "tile_channels + 1u", OUTSIDE),
    ("traversals/channels_first_fused.wgsl", "apply_to_channel", "next = ", "vector_aligned ||",
     "unless planes are odd, nobody reads them"),
    ("traversals/channels_first_apply.wgsl", "record_of_plane", "0u)", "1u)", "all four are alike"),
    ("parts/columns_in_registers.wgsl", "tile_at", "Tile(0u", "Tile(1u", UNUSED),
    ("parts/columns_in_registers.wgsl", "tile_at", "Tile(0u", ", 1u);", UNUSED),
    ("parts/columns_in_registers.wgsl", "inside_row_of_tile", "select(0u", "select(1u", "rows past the last store no sums"),
    ("parts/columns_in_registers.wgsl", "store_sums_of_row", "row >= ", "row > ",
     "a race, which drivers for the CPU do not show"),
    ("parts/rows_in_registers.wgsl", "step_at", "0u)", "1u)", UNUSED),
    ("parts/rows_in_registers.wgsl", "params_in_row", "uniforms.columns) - 1", "+ 1)", MASKED),
    ("parts/rows_in_registers.wgsl", "weighed_total", "row, 0u)", "1u)", "a plane has one channel's parameters"),
    ("parts/rows_in_registers.wgsl", "store_statistics_of_tile", "0u); }", "1u); }", "all four are alike"),
    ("traversals/finish.wgsl", "finish", "< stride", "<= stride", "a race that invocations in lockstep do not lose"),
    ("parts/columns_aligned.wgsl", "load_in_row", "/ vector_elements - 1u", "", MASKED),
    ("traversals/in_registers.wgsl", "in_registers", "for (var k = 0u", "k <= vector_vec4s", OUTSIDE),
    ("traversals/finish.wgsl", "finish", "if group * uniforms.group_parts >=", "", "below 65,536 of them every workgroup has a tile"),
    ("traversals/in_registers.wgsl", "in_registers", "rows.y - 1u", "", MASKED),
    ("generated/lists", "neutral_params", "real4()", "real4(2.0));", UNGATED),
    ("traversals/columns_walk.wgsl", "walk_tile", "for (var k = 0u", "k <= vector_vec4s", OUTSIDE),
    ("operators/rows_forward.wgsl", "store_row", "coefficients.shift[i] + ", "- coefficients.delta[i]", SECOND),
    ("operators/rows_forward.wgsl", "store_row", "coefficients.shift[i] + ", "delta[0]", SECOND),
    ("generated/lists", "params_side_by_side", "real4(a.", ".y", "all four of a channel's are alike"),
    ("generated/lists", "total_of", "sums.e", "[0]", "i is 0 there"),
    ("parts/columns_of_channels.wgsl", "vector_in_tensor", "return min(vector", "", MASKED),
    ("traversals/in_registers.wgsl", "in_registers", "[p][k] = Accumulator();", "", ZEROS),
    ("traversals/columns_walk.wgsl", "walk_tile", "[p][k] = Accumulator();", "", ZEROS),
    ("parts/columns_of_rows.wgsl", "params_at", "let last", "+ 1u) / 4u", MASKED),
    ("parts/columns_of_rows.wgsl", "params_of_columns", "return select_params", "", "what it multiplies is 0 there"),
    ("parts/axes.wgsl", "kept_index", "var digits", "1u, 1u);", UNUSED),
    ("parts/axes.wgsl", "kept_index", "var digits", "Digits(index, 2u", UNUSED),
    ("parts/axes.wgsl", "join_axes", "var digits", "kept, 2u", UNUSED),
    ("traversals/pack_params.wgsl", "pack_params", "return;", "", LATER),
    ("traversals/pack_statistics.wgsl", "pack_statistics", "if vec4_index >=", "if vec4_index >", LATER),
    ("traversals/channels_first_reduce.wgsl", "channels_first_reduce", "if local == 0u", "if local == 1u", "any invocation may write what all have"),
]


def without_comments(text):
    """The text, with comments replaced by blanks."""
    return re.sub(r"//[^\n]*", lambda found: " " * len(found[0]), text)


def functions(text):
    """The name of each function, and the start and end of its body."""
    for found in re.finditer(r"\bfn (\w+)", text):
        # A body begins at the first brace outside the parameters' parentheses.
        depth, at = 0, found.end()
        while depth > 0 or text[at] != "{":
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        start, depth = at, 0
        while True:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
            if depth == 0:
                break
        yield found[1], start, at


class Mutant:
    """One change of a function."""

    def __init__(self, path, function, text, start, end, new, named=lambda text: text, lines=0):
        """`named` turns a generated function's text, in which TENSOR stands for a tensor, into that for one tensor.
        `lines` is the number of lines before the text in its file."""
        self.path, self.function, self.text = path, function, named(text)
        self.damaged = named(text[:start] + new + text[end:])
        self.number = lines + text.count("\n", 0, start) + 1 + text[start:end].startswith("\n")
        first = text.rfind("\n", 0, start) + 1
        last = text.find("\n", end)
        self.line = text[first:last].strip()
        self.changed = (text[first:start] + new + text[end:last]).strip()

    def __str__(self):
        return f"{self.path}:{self.number} {self.function}: {self.line}  -->  {self.changed}"

    def unseen(self):
        for path, function, line, changed, why in UNSEEN:
            known = (path, function) == (self.path, self.function)
            if known and line in self.line and changed in self.changed:
                return why
        return None


def changes(path, name, text, start, end, **more):
    """All changes to a function that can be seen."""
    code = without_comments(text)
    found = []
    for pattern, new in RULES:
        for place in re.finditer(pattern, code[start:end]):
            a, b = start + place.start(), start + place.end()
            found.append(Mutant(path, name, text, a, b, place.expand(new), **more))
    return [mutant for mutant in found if mutant.unseen() is None]


def some(each, name, found):
    """Up to `each` of them, spread over the rules and the text."""
    count = min(each, len(found))
    # Evenly over the list, which is sorted by rule. The offset depends on the function's name, so that functions begin
    # elsewhere.
    offset = sum(name.encode()) % max(len(found), 1)
    return [found[(offset + i * len(found) // count) % len(found)] for i in range(count)]


def written(each):
    """Changes to the functions in shaders/."""
    for path in sorted(SHADERS.rglob("*.wgsl")):
        text = path.read_text()
        for name, start, end in functions(without_comments(text)):
            # Kernels have the function as it is; the file may not.
            first = text.rfind("fn ", 0, start)
            lines = text.count("\n", 0, first)
            own = text[first:end]
            found = changes(str(path.relative_to(SHADERS)), name, own, start - first, len(own), lines=lines)
            yield from some(each, name, found)


LISTS = (
    r"accumulator|accumulator_of|add_sums|scale_sums|sum_\w+|total_of|words_of_total"
    r"|\w+_params|load_param|params_side_by_side"
)
TENSORS = "src|diff_dst|mean|variance|gamma|diff_src|diff_gamma|diff_beta|workspace|inputs|outputs"


def generated(each, texts):
    """Changes to the functions that read and write storage, those of one tensor of each kind; and to the functions that
    are made from lists of sums and parameters."""
    kinds, lists = {}, {}
    files = [without_comments(path.read_text()) for path in SHADERS.rglob("*.wgsl")]
    written_names = {name for text in files for name, _, _ in functions(text)}
    for path in sorted(texts.glob("*.wgsl")):
        text = path.read_text()
        for name, start, end in functions(text):
            body = text[text.rfind("fn ", 0, start) : end]
            if re.fullmatch(LISTS, name) and name not in written_names:
                lists[body] = name
            of = re.fullmatch(rf"((?:load|store|select|splat|realigned)(?:_part|_vector|_part_vector|_some)?)_({TENSORS})", name)
            if not of:
                continue
            tensor = of[2]
            kind = re.sub(rf"\b({TENSORS})\b", "ARRAY", body.replace(f"_{tensor}(", "_TENSOR("))
            kind = re.sub(r"uniforms\.\w+", "uniforms.LENGTH", kind)
            # For a kind that data and parameters share, the data's.
            known = kinds.get(kind)
            if known is None or TENSORS.split("|").index(tensor) < TENSORS.split("|").index(known[1]):
                kinds[kind] = (of[1], tensor, body)
    for body, name in sorted(lists.items()):
        found = changes("generated/lists", name, body, body.index("{"), len(body))
        yield from some(each, name, found)
    for _, (name, tensor, body) in sorted(kinds.items()):
        half = "half" if "code_" in body else "real"
        form = "_exact" if "u * vec4_index" in body else "_long" if "long" in body else ""
        text = body.replace(f"_{tensor}(", "_TENSOR(")
        back = lambda text, tensor=tensor: text.replace("_TENSOR(", f"_{tensor}(")
        found = changes(f"generated/{half}{form}", f"{name}_TENSOR", text, text.index("{"), len(text), named=back)
        yield from some(each, name, found)


def build():
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "mutants"
    environment = dict(os.environ, RUSTFLAGS="--cfg wgpu_norm_mutants", CARGO_TARGET_DIR=str(target))
    subprocess.run(["cargo", "build", "--release", "--bin", "wgpu-norm"], cwd=ROOT, env=environment, check=True)
    return target / "release/wgpu-norm"


# wgpu's messages about a text that is not valid WGSL.
REFUSED = ("parsing error", "validation error", "Shader '", "is not valid", "pipeline")


def failures(command, swap=None):
    """Runs verify; yields the lines of the cases that fail, and finally the exit status."""
    environment = dict(os.environ)
    if swap:
        environment["WGPU_NORM_SWAP"] = swap
    process = subprocess.Popen(
        ["timeout", "600", str(command), "verify"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for line in process.stderr:
            if line.startswith("failed: "):
                yield line.strip()
        yield process.wait()
    finally:
        process.terminate()
        process.wait()


def case_of(line):
    return line.split(": ")[1]


def verdict(command, mutant, ill):
    """Whether the change is found, refused or a survivor, and the line that shows it. `ill` has the cases that fail
    without any damage."""
    with tempfile.NamedTemporaryFile("w", suffix=".wgsl") as swap:
        swap.write(mutant.text + "\0" + mutant.damaged)
        swap.flush()
        for line in failures(command, swap.name):
            if isinstance(line, int):
                # A process that dies in another way counts as found, too.
                return ("survivor", "") if line in (0, 1) else ("found", f"exit status {line}")
            if any(words in line for words in REFUSED):
                return "refused", line
            if case_of(line) not in ill:
                return "found", line


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=2, help="changes in each function")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs side by side")
    parser.add_argument("--only", default="", help="a part of the mutants' lines, as --list prints them")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    arguments = parser.parse_args()
    command = build()
    with tempfile.TemporaryDirectory() as texts:
        environment = dict(os.environ, WGPU_NORM_TEXTS=texts)
        subprocess.run([str(command), "verify"], env=environment, capture_output=True)
        chosen = [*written(arguments.each), *generated(arguments.each, pathlib.Path(texts))]
    chosen = [mutant for mutant in chosen if arguments.only in str(mutant)]
    if arguments.list:
        print("\n".join(map(str, chosen)))
        return 0
    ill = {case_of(line) for line in failures(command) if isinstance(line, str)}
    for case in sorted(ill):
        print(f"fails without any damage, and does not count: {case}")
    counts = {"found": 0, "refused": 0, "survivor": 0}
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for mutant, (result, by) in zip(chosen, pool.map(lambda mutant: verdict(command, mutant, ill), chosen)):
            counts[result] += 1
            print(f"{result:<8} {mutant}\n         {by[:200]}", flush=True)
    total = ", ".join(f"{count} {result}" for result, count in counts.items())
    print(f"{len(chosen)} mutants: {total}; {len(UNSEEN)} kinds that cannot be seen are left out")
    return 1 if counts["survivor"] or not counts["found"] else 0


if __name__ == "__main__":
    sys.exit(main())
