#!/bin/sh
# Measures a GPU within a time limit: verify, a report of all operators and types, comparisons of profiles or binaries
# in turns, PyTorch. It needs built binaries and `timeout`; python3 for the tables, and PyTorch with CUDA for its times.
#
#     sh scripts/measure-gpu.sh [OPTION]... [OUT] BINARY [BINARY]...
#
# OUT is a folder, $OUT by default; it must not have a report yet. Each part writes its files there as it goes, so a run
# that is stopped keeps what it has.
#
#     --seconds N        end before so many seconds are over [360]
#     --part P,...       only these parts: verify, report, compare, pytorch
#     --compare FILE     the comparisons [measure-gpu.txt beside this script]
#     --turns N          at most so many turns of the comparisons [3]
#     --rounds N         samples of each case in the report and the comparisons [5]
#     --cache SIZE       the adapter's last-level cache, for `--cache` of the command
#     --software         time a software driver, too
#
# WGPU_ADAPTER_NAME and WGPU_BACKEND choose the adapter.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
seconds=360 parts=verify,report,compare,pytorch list=$here/measure-gpu.txt turns=3 rounds=5 cache='' software=no
usage() {
    sed -n '/^#     sh/,/^# WGPU/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    case $1 in
        --software) software=yes && shift && continue ;;
        --*) [ $# -ge 2 ] || usage ;;
        *) break ;;
    esac
    case $1 in
        --seconds) seconds=$2 ;;
        --part) parts=$2 ;;
        --compare) list=$2 ;;
        --turns) turns=$2 ;;
        --rounds) rounds=$2 ;;
        --cache) cache="--cache $2" ;;
        *) usage ;;
    esac
    shift 2
done
# A file that can be run is a binary.
if [ $# -ge 1 ] && { [ ! -f "$1" ] || [ ! -x "$1" ]; }; then
    OUT=$1 && shift
fi
[ $# -ge 1 ] && [ -n "${OUT:-}" ] || usage
for binary in "$@"; do
    [ -f "$binary" ] && [ -x "$binary" ] || { echo "not a program: $binary" >&2 && exit 2; }
done
[ -r "$list" ] || { echo "no such list of comparisons: $list" >&2 && exit 2; }
[ ! -e "$OUT/report" ] || { echo "$OUT has a report already: name another folder" >&2 && exit 2; }
first=$1
begun=$(date +%s)
mkdir -p "$OUT/compare"

# The seconds that are left, except some for what a part does at its end.
left() { echo $((begun + seconds - seconds / 20 - 3 - $(date +%s))); }
# The smaller of what is left and a share of all, in percent.
share() {
    part=$((seconds * $1 / 100))
    rest=$(left)
    echo $((part < rest ? part : rest))
}
say() { echo "$(($(date +%s) - begun)) s: $*" | tee -a "$OUT/log.txt"; }
asked() { case ,$parts, in *,"$1",*) ;; *) return 1 ;; esac; }
# Runs a command for at most so many seconds, its output in a file; its status is in `status`.
limited() { # seconds file command...
    within=$1 printed=$2
    shift 2
    status=0
    if [ "$within" -le 0 ]; then
        echo "not run: no time left" >>"$printed"
        status=124
        return
    fi
    timeout --foreground -k 2 "$within" "$@" >>"$printed" 2>&1 </dev/null &
    child=$!
    wait $child || status=$?
}
# Nothing goes on measuring after this script was stopped.
child=''
trap 'kill $child 2>/dev/null; exit 143' INT TERM
outcome() {
    case $status in
        0) echo done ;;
        124 | 137) echo "out of time" ;;
        *) echo "failed, status $status" ;;
    esac
}

# The smallest case there is says which adapter the binary takes.
limited "$(left)" "$OUT/adapter.txt" "$first" bench --shape 4x8 --rounds 1 --json "$OUT/adapter.json"
if [ "$status" -ne 0 ]; then
    cat "$OUT/adapter.txt" >&2
    exit 1
fi
field() { sed -n "s/^  \"$1\": \"\(.*\)\",\$/\1/p" "$OUT/adapter.json"; }
say "$(field adapter) ($(field backend), $(field driver))"
if [ "$(field kind)" = Cpu ] && [ $software = no ]; then
    echo "this is a software driver: name a GPU by WGPU_ADAPTER_NAME, or give --software to time it all the same" >&2
    exit 1
fi
"$first" adapters >"$OUT/adapters.txt" 2>&1 || true

if asked verify; then
    limited "$(share 25)" "$OUT/verify.txt" "$first" verify --full --json "$OUT/verify.json"
    say "verify --full: $(outcome); $(tail -n 1 "$OUT/verify.txt")"
fi

if asked report; then
    most=$(share 33)
    minutes=$(awk "BEGIN { print ($most > 0 ? $most : 0) / 60 }")
    # The report ends by itself after the measurement under way.
    # shellcheck disable=SC2086
    limited $((most + seconds / 20)) "$OUT/report.txt" "$first" report "$OUT/report" --minutes "$minutes" \
        --part adapters,around,bench --op all --dtype f32,f16,bf16 --rounds "$rounds" $cache
    say "report: $(outcome); $(grep -c '"time_ms"' "$OUT/report/report.json" 2>/dev/null || true) cases"
fi

# All sides of all comparisons, once.
compare() { # turn, binaries...
    turn=$1
    shift
    number=0
    while IFS='|' read -r name arguments sides; do
        case $name in '' | '#'*) continue ;; esac
        name=$(echo "$name" | sed 's/ *$//')
        number=$((number + 1)) side=0
        while [ -n "$sides" ]; do
            profile=$(echo "${sides%%|*}" | tr -d ' \t')
            case $sides in *'|'*) sides=${sides#*|} ;; *) sides= ;; esac
            side=$((side + 1)) binary=1
            case $profile in
                @*)
                    binary=${profile#@} && binary=${binary%%:*}
                    case $profile in *:*) profile=${profile#*:} ;; *) profile=- ;; esac
                    ;;
            esac
            if ! path=$(shift "$((binary - 1))" 2>/dev/null && echo "${1:?}") 2>/dev/null; then
                say "compare, $name: there is no binary @$binary"
                continue
            fi
            file=$OUT/compare/$number-$side-$turn
            [ $turn -gt 1 ] || echo "$number|$side|$name|$arguments|@$binary $profile" >>"$OUT/compare/sides.txt"
            set -f
            # shellcheck disable=SC2086
            if [ "$profile" = - ]; then
                limited "$compare_left" "$file.txt" "$path" bench $arguments --rounds "$rounds" --json "$file.json"
            else
                limited "$compare_left" "$file.txt" "$path" bench $arguments --rounds "$rounds" --json "$file.json" \
                    --profile "$profile"
            fi
            set +f
            compare_left=$((compare_end - $(date +%s)))
            case $status in
                0) ;;
                124 | 137) return 1 ;;
                *) say "compare, $name, $profile: $(outcome); $(tail -n 1 "$file.txt")" ;;
            esac
        done
    done <"$list"
}
if asked compare; then
    compare_left=$(left)
    # PyTorch needs some time, too.
    if asked pytorch; then compare_left=$(share 22); fi
    compare_end=$(($(date +%s) + compare_left))
    turn=1
    while [ $turn -le "$turns" ] && compare $turn "$@"; do turn=$((turn + 1)); done
    say "compare: $((turn - 1)) whole turns"
fi

if asked pytorch; then
    script=$here/pytorch.py
    [ -f "$script" ] || script=$here/../benches/peers/pytorch.py
    if ! [ -f "$OUT/report/report.json" ]; then
        say "pytorch: not timed: there is no report"
    elif ! command -v python3 >/dev/null; then
        say "pytorch: not timed: python3 is missing"
    else
        limited "$(left)" "$OUT/pytorch.txt" python3 "$script" --device cuda --like "$OUT/report/report.json" --rounds 2
        if [ $status -eq 2 ]; then # PyTorch or the device is missing
            say "pytorch: not timed: $(tail -n 1 "$OUT/pytorch.txt")"
        else
            "$first" report "$OUT/report" --redraw >>"$OUT/report.txt" 2>&1 || true
            say "pytorch: $(outcome); $(grep -c ' ms' "$OUT/pytorch.txt" || true) cases"
        fi
    fi
fi

if command -v python3 >/dev/null; then
    python3 "$here/measure-gpu.py" "$OUT" >"$OUT/tables.md"
    cat "$OUT/tables.md"
    say "the tables are in $OUT/tables.md"
else
    say "no tables, since python3 is missing; elsewhere: python3 measure-gpu.py $OUT"
fi
