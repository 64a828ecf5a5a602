//! The cases.
//!
//! A line is an ID; `{a,b}` in it stands for one line with a and one with b, as in a shell. An empty choice leaves the
//! part out.

use super::Case;

/// Those that take under a minute on a software driver. What takes long there is to compile kernels: each line takes few
/// element types.
const DEFAULT: &str = "
# Channels first: runs that begin at eight elements, at four, anywhere; shorter than four; cut.
batch_norm_backward/{3x8x40,4x6x20,5x33x27}/ncx/f32/channels_first/{gpu,software}
batch_norm_backward/{61x3x3,2x31x1,9x5x2}/ncx/{f16,bf16-f32}/channels_first/{gpu,software}
batch_norm_backward/{5x7x27,4x6x44}/ncx/{f16-f32,bf16,f64}/channels_first
batch_norm_backward/{2x3x1201,3x2x520,40x5x12}/ncx/f32/channels_first/tiny
batch_norm_backward/{5x9x27,4x6x20}/ncx/{constant,constant/frozen,neither,frozen,no_gamma}/f32/channels_first/gpu

# Channels last: packets of a row, rows that end inside of one, several columns a channel, many splits.
batch_norm_backward/{64x128,61x3,300x7}/nxc/f32/channels_last/{gpu,software,tiny}
batch_norm_backward/{17x33x8,9x6x3,13x8x5}/ncx/f32/channels_last/{gpu,software}
batch_norm_backward/{33x20,50x5}/nxc/{f16,bf16-f32,f64}/channels_last
batch_norm_backward/{33x20,50x5}/nxc/{bf16,f16-f32}/channels_last/gpu
batch_norm_backward/{40x12,61x5}/nxc/{constant,constant/frozen,neither,frozen,no_gamma}/f32/channels_last/gpu

# Channels first in one dispatch: blocks of channels, and some of them in turns.
batch_norm_backward/{1x32x30,3x24x9,4x8x92,1x301x7,2x12x10}/ncx/f32/fused_channels_first/{gpu,software}
batch_norm_backward/{4x8x92,5x12x16}/ncx/f32/fused_channels_first/{gpu,software}/fused_block=0,fused_turn=65536
batch_norm_backward/{1x23x3,3x12x9}/ncx/{f16,bf16-f32,f64}/fused_channels_first/{frozen,no_gamma}

# Channels last in one dispatch.
batch_norm_backward/{64x128,9x132,300x4}/nxc/f32/fused_channels_last/{gpu,software}
batch_norm_backward/{70x12,1x8}/nxc/{f16,bf16-f32,f64}/fused_channels_last/{neither,no_gamma}

# Axes that do not fold.
batch_norm_backward/6x5x8/params_6x1x8/f32/general/{gpu,tiny}
batch_norm_backward/6x5x7/params_6x1x7/f16-f32/general/software
batch_norm_backward/3x4x5x37/params_3x1x5x1/{f32,bf16}/general/gpu
batch_norm_backward/3x4x5x20/params_3x1x5x1/constant/f32/general/software
batch_norm_backward/3x4x5x6/params_1x4x1x6/f32/general/{constant,frozen}
batch_norm_backward/2x3x1x2x3x2x3x2/params_2x1x1x2x1x2x1x2/f32/general
batch_norm_backward/2x2x2x2x2x2x2x4/params_1x2x1x2x1x2x1x4/f32/general/no_gamma

# Rows in registers: rows that begin at four elements, at two, anywhere; shorter than four; shared by several.
layer_norm_backward/{16x768,21x129,23x250,70x3}/f32/rows_in_registers/{gpu,software}
layer_norm_backward/{33x28,9x517,5x1,9x2}/{f16,bf16-f32}/rows_in_registers/{gpu,software}
layer_norm_backward/{33x96,9x201}/{f32,f64}/rows_in_registers/row_lane_quads=2,subgroup_size=0
layer_norm_backward/{33x96,9x201,15x72}/{f32,bf16}/rows_in_registers/row_lane_quads=2
layer_norm_backward/{6x2x8x33/axis_2,30x300/frozen,33x28/no_gamma,7x4/neither,1x9}/f32/rows_in_registers

# Rows that are read twice.
layer_norm_backward/{5x1002,64x64,9x517,7x3}/f32/rows_read_twice/{gpu,software,tiny}
layer_norm_backward/{5x402,9x129,15x72,7x1}/{f16-f32,bf16}/rows_read_twice/{gpu,software}
layer_norm_backward/{5x130,9x64}/f64/rows_read_twice
layer_norm_backward/{9x517,9x520}/f32/rows_read_twice/tiny/subgroup_size=0
layer_norm_backward/{6x2x8x33/axis_2,5x300/frozen,33x28/no_gamma,7x6/neither}/f32/rows_read_twice/max_storage_buffers=4

# Buffers: ends, one for all, diff_src over diff_dst.
batch_norm_backward/{3x5x7,4x3x8}/ncx/{f32,f16}/channels_first/{gpu,software}/{exact,pooled,exact/in_place}
batch_norm_backward/{5x7,9x12}/nxc/{f32,bf16-f32}/channels_last/{gpu,software}/{exact,pooled/in_place}
batch_norm_backward/{1x7x9,3x4x11}/ncx/{f32,f16}/fused_channels_first/{exact,pooled/in_place}
batch_norm_backward/9x12/nxc/{f32,f16}/fused_channels_last/{exact,in_place}
layer_norm_backward/{21x129,5x7,8x12}/{f32,bf16}/rows_in_registers/{exact,exact/in_place,pooled/in_place}
layer_norm_backward/{5x7,8x12}/{f32,f16}/rows_read_twice/{exact/in_place,pooled}

# Two halves, and the sums of two parts of the samples.
batch_norm_backward/{7x5x27,7x5x20}/ncx/{f32,bf16}/channels_first/{halves,two_shards}
batch_norm_backward/7x5/nxc/{f32,f64}/channels_last/{halves,two_shards}
batch_norm_backward/7x8x4/ncx/{constant,constant/frozen}/f32/two_shards/fused_block=65536
batch_norm_backward/7x8x4/ncx/f32/two_shards/exact

# Numbers that are not just random.
batch_norm_backward/1x4x16384/ncx/constant/frozen/no_gamma/{f16-f32,bf16-f32}/patterns/channels_first
batch_norm_backward/1x21845x3/ncx/constant/frozen/no_gamma/{f16-f32,bf16-f32}/patterns/channels_last/gpu
batch_norm_backward/1x70000/nxc/constant/frozen/{f16-f32,bf16-f32}/roundings/channels_last
batch_norm_backward/4x9x50/ncx/f32/{tiny_variance,large_mean}/channels_first
batch_norm_backward/50x9/nxc/f32/{tiny_variance,large_mean}/channels_last
batch_norm_backward/4x9x50/ncx/f16-f32/overflow
layer_norm_backward/9x200/f32/{tiny_variance,large_mean}

# Long sums of equal terms.
batch_norm_backward/1x1x1200017/ncx/f32/equal
batch_norm_backward/400037x3/nxc/f32/equal/{gpu,software}
layer_norm_backward/400037x3/f32/equal/{gpu,software}

# Loops that are longer than a software driver lets an invocation make.
batch_norm_backward/4194304x1/nxc/f32/alike/window_unit=256

# Windows give the bits of the whole.
batch_norm_backward/{6x33x729,2x5x30003,60x62x44}/ncx/f32/channels_first/software/window_unit=4096/windows=131072

# What is not a number, or infinite, stays where it is.
batch_norm_backward/{3x5x7,5x4x12}/ncx/{f32,f16}/channels_first/{nan,infinite}
batch_norm_backward/{9x7,3x12}/nxc/{f32,bf16}/channels_last/{nan,infinite}

# The same bits again, and with shader checks.
batch_norm_backward/5x33x27/ncx/{f32,f16}/{repeats,checked}
";

/// The others.
const FULL: &str = "
";

/// The list of cases: a share that takes under a minute on a software driver and seconds on a GPU, or the `full` one.
pub fn cases(full: bool) -> Vec<Case> {
    let more = if full { FULL } else { "" };
    let lines = [DEFAULT, more].into_iter().flat_map(str::lines);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let ids = lines.flat_map(expanded);
    // A test reads every one.
    ids.filter_map(|id| id.parse().ok()).collect()
}

/// The lines that a line with choices stands for.
fn expanded(line: &str) -> Vec<String> {
    let choice = line.split_once('{').and_then(|(before, rest)| {
        let (choices, behind) = rest.split_once('}')?;
        Some((before, choices, behind))
    });
    let Some((before, choices, behind)) = choice else {
        return vec![line.replace("//", "/").trim_end_matches('/').to_owned()];
    };
    let each = choices.split(',');
    each.flat_map(|choice| expanded(&format!("{before}{choice}{behind}")))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_line_is_read_and_no_case_is_there_twice() {
        let lines = [DEFAULT, FULL].into_iter().flat_map(str::lines);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        for id in lines.flat_map(expanded) {
            let case: Case = id.parse().unwrap();
            assert_eq!(case.to_string().parse::<Case>().unwrap(), case, "{id}");
        }
        let all = cases(true);
        let ids: HashSet<_> = all.iter().map(Case::to_string).collect();
        assert_eq!(ids.len(), all.len());
    }
}
