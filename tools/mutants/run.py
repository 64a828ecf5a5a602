#!/usr/bin/env python3
"""Damages the kernels, one small change at a time, and asks `wgpu-norm verify` whether it sees it.

    tools/mutants/run.py [--each N] [--jobs N] [--only TEXT] [--list]

Takes every function of shaders/**/*.wgsl and makes N changes in it (2 unless told): a + becomes a -, a < a <=, a 0u a 1u,
an x a y, and so on; the last rule takes a statement out. For each change it runs the default `verify`, on the adapter
that WGPU_BACKEND and WGPU_ADAPTER_NAME choose, until the first case fails. A change after which every case passes is a
survivor: a hole in the list of cases (src/verify/list.rs), or a change that cannot be seen, which then belongs to
UNSEEN below, with the reason. Exits 1 if there is a survivor.

Builds the command once, with debug assertions in this crate: such a build reads the damaged text from the file that
WGPU_NORM_SWAP names. Needs cargo and nothing but Python's standard library.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHADERS = ROOT / "shaders"

# What is replaced, by what. One change is one place.
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
    (r"\bif !", "if "),
    (r"workgroupBarrier\(\);", ""),
    (r"(?m)^ +[\w.\[\]*()]+ [+-]?= [^;{]*;$", ""),
    (r"(?m)^ +store_\w+\([^;]*\);$", ""),
    (r"(?m)^ +(if [^{}]* \{ )?return;( \})?$", ""),
]

# Changes that change no result: file, function, a part of the line, a part of it when it is changed; and why.
ABSENT = "a pair of loads or stores is only made of a tensor that is not bound: its loads are not used, its stores are none"
ENDS = "a tensor whose buffer ends inside of a quad is never stored by whole quads"
OUTSIDE = "touches what is outside of the binding: software drivers drop that, or nobody sees it"
MASKED = "what it reads there, in or out of bounds, is masked out"
UNUSED = "the function does not use it"
ZEROS = "a variable begins with zeros"
LATER = "what it writes besides is written again before it is read"
UNSEEN = [
    ("access/load_pair.wgsl", "load_packet_TENSOR", "", "", ABSENT),
    ("access/store_pair.wgsl", "store_packet_TENSOR", "", "", ABSENT),
    ("access/store_pair.wgsl", "store_part_packet_TENSOR", "", "", ABSENT),
    ("access/store_half_exact.wgsl", "store_TENSOR", "", "", ENDS),
    ("access/store_real_exact.wgsl", "store_TENSOR", "", "", ENDS),
    ("access/store_wide_part.wgsl", "store_part_packet_TENSOR", "", "", "a tensor in such packets ends with one"),
    ("access/load_real_exact.wgsl", "load_TENSOR", "let last", "max(uniforms.LENGTH, 2u)", OUTSIDE),
    ("access/load_real_exact.wgsl", "load_TENSOR", "let last", "1u) + 1u", OUTSIDE),
    ("access/load_half_exact.wgsl", "load_TENSOR", "let last", "max(uniforms.LENGTH, 2u)", OUTSIDE),
    ("access/load_half_exact.wgsl", "load_TENSOR", "let last", "/ 1u", OUTSIDE),
    ("access/load_half_exact.wgsl", "load_TENSOR", "let last", "* 2u", OUTSIDE),
    ("access/store_half.wgsl", "store_part_TENSOR", "count > 0u", "count >= 0u", "only a pair has a count of 0"),
    ("access/store_half_exact.wgsl", "store_part_TENSOR", "count > 2u", "count > 1u", OUTSIDE),
    ("access/store_real_exact.wgsl", "store_part_TENSOR", "count > 2u", "count > 1u", OUTSIDE),
    ("access/store_half.wgsl", "store_part_TENSOR", "vec4(0u, 1u, 2u, 3u)", "vec4(0u, 1u, 1u, 3u)", "that word is not stored"),
    ("access/store_half_exact.wgsl", "store_part_TENSOR", "vec4(0u, 1u, 2u, 3u)", "2u, 2u)", "with three the buffer holds four"),
    ("access/store_real_long.wgsl", "store_part_TENSOR", "count > 0u", "count >= 0u", "it stores what was there"),
    ("elements/bf16.wgsl", "encode_bf16", "vec4(0x40u)", "0x48u", "any NaN will do"),
    ("apply_rows.wgsl", "apply_rows", "next = coefficients_of(min(row + 1u", "uniforms.rows + 1u", MASKED),
    ("apply_rows.wgsl", "apply_rows", "for (var p = 0u", "p <= column_packets", OUTSIDE),
    ("fused_rows.wgsl", "fused_rows", "for (var k = 0u", "k <= packet_quads", OUTSIDE),
    ("finish.wgsl", "finish", "if group * uniforms.group_parts >=", "", "below 65,536 of them every workgroup has a tile"),
    ("fused_columns.wgsl", "fused_columns", "min(own, width - 1u)", "width + 1u", MASKED),
    ("fused_rows.wgsl", "fused_rows", "min(own, uniforms.rows - 1u)", "", MASKED),
    ("parts/apply_tiles.wgsl", "apply_tile_of", "if index >=", "", OUTSIDE),
    ("parts/aligned_rows.wgsl", "gamma_of", "min(quad, uniforms.row_quads - 1u)", "", MASKED),
    ("parts/unaligned_rows.wgsl", "gamma_of", "(uniforms.columns - 1u) / 4u", "/ 3u", MASKED),
    ("parts/split_rows.wgsl", "gamma_quad", "let inside", "", MASKED),
    ("parts/columns.wgsl", "packet_of", "return min(packet", "", MASKED),
    ("fused_rows.wgsl", "fused_rows", "[p][k] = real4();", "", ZEROS),
    ("reduce_rows.wgsl", "reduce_rows", "[p][k] = real4();", "", ZEROS),
    ("reduce_columns.wgsl", "reduce_columns", "[p][k] = real4();", "", ZEROS),
    ("parts/axes.wgsl", "kept_part", "var digits", "1u, 1u);", UNUSED),
    ("parts/axes.wgsl", "kept_part", "var digits", "Digits(index, 2u", UNUSED),
    ("parts/axes.wgsl", "join_axes", "var digits", "kept, 2u", UNUSED),
    ("reduce_rows.wgsl", "reduce_rows", "weights = select", "", "what it multiplies is 0 there"),
    ("reduce_rows.wgsl", "reduce_rows", "part < uniforms.row_parts", "part <= ", "the next row, which comes later, writes there"),
    ("pack_weights.wgsl", "pack_weights", "return;", "", LATER),
    ("pack_statistics.wgsl", "pack_statistics", "if quad >=", "if quad >", LATER),
    ("reduce_runs.wgsl", "reduce_runs", "if local == 0u", "if local == 1u", "any invocation may write what all have"),
]


def without_comments(text):
    """The text with blanks for comments."""
    return re.sub(r"//[^\n]*", lambda found: " " * len(found[0]), text)


def functions(text):
    """Name, start and end of each function's body."""
    for found in re.finditer(r"\bfn (\w+)", text):
        # A body begins at the first brace that is outside of the parameters' parentheses.
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

    def __init__(self, path, function, text, start, end, new):
        self.path, self.function, self.text = path, function, text
        self.damaged = text[:start] + new + text[end:]
        self.number = text.count("\n", 0, start) + 1 + text[start:end].startswith("\n")
        first = text.rfind("\n", 0, start) + 1
        last = text.find("\n", end)
        self.line = text[first:last].strip()
        self.changed = (text[first:start] + new + text[end:last]).strip()

    def __str__(self):
        name = self.path.relative_to(ROOT)
        return f"{name}:{self.number} {self.function}: {self.line}  -->  {self.changed}"

    def unseen(self):
        name = str(self.path.relative_to(SHADERS))
        for path, function, line, changed, why in UNSEEN:
            known = (path, function) == (name, self.function)
            if known and line in self.line and changed in self.changed:
                return why
        return None


def mutants(each):
    """Each function's changes, spread over the rules and over its text."""
    for path in sorted(SHADERS.rglob("*.wgsl")):
        text = path.read_text()
        code = without_comments(text)
        for name, start, end in functions(code):
            found = []
            for pattern, new in RULES:
                for place in re.finditer(pattern, code[start:end]):
                    a, b = start + place.start(), start + place.end()
                    found.append(Mutant(path, name, text, a, b, place.expand(new)))
            found = [mutant for mutant in found if mutant.unseen() is None]
            count = min(each, len(found))
            # Evenly over the list, which is sorted by rule: by the function's name, so that functions begin elsewhere.
            offset = sum(name.encode()) % max(len(found), 1)
            for i in range(count):
                yield found[(offset + i * len(found) // count) % len(found)]


def build():
    command = ["cargo", "build", "--release", "--bin", "wgpu-norm"]
    option = "profile.release.package.wgpu-norm.debug-assertions=true"
    subprocess.run(command + ["--config", option], cwd=ROOT, check=True)
    target = ROOT / "target/mutants"
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "target/release/wgpu-norm", target)
    return target / "wgpu-norm"


# wgpu's words for a text that is no WGSL.
REFUSED = ("parsing error", "validation error", "Shader '", "is not valid", "pipeline")


def failures(command, swap=None):
    """Runs verify, and gives the lines of the cases that fail, and at last the exit status."""
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
    """found, refused or survivor, and by which line. `ill` are the cases that fail without any damage."""
    with tempfile.NamedTemporaryFile("w", suffix=".wgsl") as swap:
        swap.write(mutant.text + "\0" + mutant.damaged)
        swap.flush()
        for line in failures(command, swap.name):
            if isinstance(line, int):
                # A process that dies otherwise is seen too.
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
    chosen = [mutant for mutant in mutants(arguments.each) if arguments.only in str(mutant)]
    if arguments.list:
        print("\n".join(map(str, chosen)))
        return 0
    command = build()
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
