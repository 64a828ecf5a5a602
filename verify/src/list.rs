//! The list of cases.
//!
//! A line is an ID, in which `{a,b}` is a choice between a and b; an empty alternative leaves the part out. The default
//! list uses each alternative of a line at least once, the full list uses all combinations.

use super::Case;
use std::collections::HashSet;

/// Lines that take about a minute on a software driver if each alternative is used once. Most of that is compiling
/// kernels, so each line has few element types.
const DEFAULT: &str = "
# Channels first: planes that begin at multiples of eight elements, of four, anywhere; shorter than four; cut.
batch_norm_backward/{3x8x40,4x6x20,5x33x27}/ncx/f32/channels_first/{gpu,software}
batch_norm_backward/{61x3x3,2x31x1,9x5x2}/ncx/{f16,bf16-f32}/channels_first/{gpu,software}
batch_norm_backward/{5x7x27,4x6x44}/ncx/{f16-f32,bf16,f64}/channels_first
batch_norm_backward/{2x3x1201,3x2x520,40x5x12,31x7x9}/ncx/f32/channels_first/tiny/in_place

# Channels last: rows of whole vectors, rows that end within a vector, several columns per channel, many splits.
batch_norm_backward/{64x128,61x3,300x7}/nxc/f32/channels_last/{gpu,software,tiny/in_place}
batch_norm_backward/{17x33x8,9x6x3,13x8x5}/ncx/f32/channels_last/{gpu,software}
batch_norm_backward/17x10x12/ncx/f16-f32/channels_last/gpu
{batch,group}_norm_{backward,forward}/{5x36x30,9x64x3}/{ncx,nxc}/f32/{gpu/subgroup_size=0,workgroup=32,fused_workgroup=32}
{batch,layer,group}_norm_{backward,forward}/4x6x44/f16/{gpu,software}/{f16_encoder=0,f16_encoder=1}
{batch,group}_norm_inference/4x6x44/f16/{gpu,software}/{f16_encoder=0,f16_encoder=1}
batch_norm_backward/33x20/nxc/{f16,bf16-f32,f64}/channels_last
batch_norm_backward/50x5/nxc/{f16-f32,bf16}/channels_last
batch_norm_backward/{40x12,61x5}/nxc/{constant,constant/frozen,frozen,no_gamma}/f32/channels_last/gpu

# Channels first in one dispatch: blocks of channels, some of them processed in turns.
batch_norm_backward/{1x32x30,3x24x9,4x8x92,1x301x7,2x12x10}/ncx/f32/fused_channels_first/{gpu,software}
batch_norm_backward/4x8x92/ncx/f32/fused_channels_first/software/cheap_barriers=1,fused_block=800
batch_norm_backward/{1x23x3,3x12x9}/ncx/{f16,bf16-f32,f64}/fused_channels_first/{frozen,no_gamma}

# Channels last in one dispatch.
batch_norm_backward/{64x128,9x132,300x4}/nxc/f32/fused_channels_last/{gpu,software}
batch_norm_backward/{70x12,1x8}/nxc/{f16,bf16-f32,f64}/fused_channels_last/no_gamma

# Axes that cannot be merged.
batch_norm_backward/6x5x8/params_6x1x8/f32/general/{gpu,tiny}
batch_norm_backward/6x5x7/params_6x1x7/f16-f32/general/software
batch_norm_backward/3x4x5x37/params_3x1x5x1/{f32,bf16}/general/gpu
batch_norm_backward/3x4x5x20/params_3x1x5x1/constant/f32/general/software
batch_norm_backward/3x4x5x6/params_1x4x1x6/f32/general/{constant,frozen}
batch_norm_backward/2x3x1x2x3x2x3x2/params_2x1x1x2x1x2x1x2/f32/general
batch_norm_backward/2x2x2x2x2x2x2x4/params_1x2x1x2x1x2x1x4/f32/general/no_gamma
batch_norm_backward/{6x5x7/params_6x1x7,3x4x5x6x7/params_1x4x1x6x1,3x4x5x7/params_1x4x1x7,9x2x3/params_9x1x3}/{f16,bf16-f32,f64,f32/relu,f16/relu/residual,f16/constant,f32/constant/relu}/general/{gpu,software}
batch_norm_backward/{6x5x7/params_6x1x7,3x4x5x7/params_1x4x1x7}/{f16,f32}/general/{in_place,exact,pooled,frozen}
batch_norm_{backward,forward}/40x301x35/params_40x1x35/{f32,f16}/general/max_binding=262144
batch_norm_{forward,inference}/{6x5x7/params_6x1x7,3x4x5x7/params_1x4x1x7,9x2x3/params_9x1x3}/{f16,bf16-f32,f64,f32/relu,f16/relu/residual}/general/{gpu,software}
axes_norm_{backward,forward,inference}/{4x8x49x6/over_2-3/along_1-3,3x4x9x5/over_2-3/along_1-3,3x5x30/over_1/along_0-2}/{f32,f16,bf16-f32/uncentered,f32/gate}

# Rows in registers: rows at multiples of four elements, of two, anywhere; shorter than four; several per workgroup.
layer_norm_backward/{16x192,23x101,23x50,301x3}/f32/rows_in_registers/{gpu,software}
layer_norm_backward/{301x2,301x6}/bf16/rows_in_registers/in_place
layer_norm_backward/{9x130,9x134}/bf16/rows_in_registers/tiny/in_place
layer_norm_backward/{33x28,9x2}/{f16,bf16-f32}/rows_in_registers/{gpu,software}
layer_norm_backward/300x300/f32/rows_in_registers/gpu/subgroup_size=0
layer_norm_backward/{33x24,9x29}/f64/rows_in_registers
layer_norm_backward/{6x2x8x33/axis_2,30x300/frozen,33x28/no_gamma,33x28/no_gamma/no_beta,1x9}/f32/rows_in_registers

# Rows that are read twice.
layer_norm_backward/{64x64,23x101}/f32/rows_read_twice/{gpu,software,tiny/in_place}
layer_norm_backward/70x3/f32/rows_read_twice/{gpu,tiny/in_place}
layer_norm_backward/5x1002/f32/rows_read_twice/software
layer_norm_backward/{9x37,15x72}/f16-f32/rows_read_twice/{gpu,software}
layer_norm_backward/{5x42,7x1}/bf16/rows_read_twice/{gpu,software}
# Rows that share words: each stores its half.
layer_norm_backward/{5x1,301x3,301x5,9x67}/{f16,bf16-f32}/{rows_in_registers,rows_read_twice}/in_place
{layer,rms}_norm_forward/{5x1,301x3,300x7,9x67}/residual/{f16,bf16-f32}/rows_in_registers{,/tiny}
layer_norm_backward/{5x7,9x1}/{f16,bf16-f32}/rows_in_registers/{exact,pooled,exact/in_place,nan}
rms_norm_{backward,forward}/{9001x3,1x9}/bf16/rows_in_registers/software/tile=1024,window_unit=4096,max_workgroups=255
layer_norm_{backward,forward}/9001x67/f16/rows_in_registers/software/tile=1024,window_unit=16384,max_workgroups=255/windows=1048576
layer_norm_backward/{5x30,9x16}/f64/rows_read_twice
layer_norm_backward/{6x2x8x33/axis_2,5x300/frozen,33x28/no_gamma,33x28/no_gamma/no_beta}/f32/rows_read_twice/max_storage_buffers=4

# Any axes: channels between other axes, parameters of each sample, and channels that share statistics or parameters but
# are not side by side.
axes_norm_{backward,forward}/{3x6x20/over_1/along_1,3x6x21/over_1/along_1,4x7x12/over_2/along_0-2,2x5x40/over_2/along_0-1,4x5x6x7/over_1-3/along_none}/{f32,bf16-f32/uncentered}
axes_norm_{backward,forward}/{5x6x7x9/over_0-2/along_0-1,5x6x3x36/over_1-2/along_0-2,3x4x5x6/over_0-3/along_1-3,4x6x8/over_0/along_0-2}/{f32/uncentered,f32,f16}
axes_norm_{backward,forward}/{2x6x35/over_2/along_0-1,3x9x8/over_1/along_0-2,6x4x10/over_0-2/along_0-1}/{relu,residual/relu,silu}/{f32/uncentered,f32}
axes_norm_{backward,forward}/{23x101,6x192}/{f32,bf16}/{rows_in_registers,rows_read_twice}
axes_norm_{backward,forward}/{3x7x192/along_0-2/over_2,2x5x300/along_0-2/over_2,300x5x8/along_0-2/over_2,40x64/along_0-1/over_1}/{f32,bf16-f32,f32/uncentered}/{rows_in_registers,rows_read_twice}/{gpu,software}
axes_norm_{backward,forward,inference}/{3x7x191/along_0-2/over_2,2x5x301/along_0-2/over_2,5x9x66/along_0-2/over_2,300x1x7/along_0-2/over_2,4x37x2/along_0-2/over_2,41x63/along_0-1/over_1}/{f32,bf16,f16-f32,f32/uncentered,f64/relu}/{gpu,software,tiny}
axes_norm_{backward,forward}/{3x7x191/along_0-2/over_2,2x50x33/along_0-2/over_2,9x4x3/along_0-2/over_2,300x1x7/along_0-2/over_2}/{f32,bf16,f16/gate,f32/uncentered/relu}/{rows_in_registers/gpu,rows_in_registers/software,rows_read_twice/gpu,rows_read_twice/tiny,rows_read_twice/max_storage_buffers=4}
axes_norm_backward/{3x7x191/along_0-2/over_2,2x50x33/along_0-2/over_2}/{f16,bf16-f32}/{rows_in_registers,rows_read_twice}/in_place
axes_norm_{backward,forward,inference}/{3x7x191/along_0-2/over_2,3x4x10/along_0-2/over_2,2x5x1x3/along_0-3/over_3}/{f32,f16,bf16-f32,f32/gate}/exact
axes_norm_{backward,forward}/{3x7x191/along_0-2/over_2,3x4x10/along_0-2/over_2}/{f32,f16}/rows_read_twice/{exact,exact/max_storage_buffers=4}
axes_norm_{backward,forward}/300x2x1023/along_0-2/over_2/f16/max_binding=4194304
axes_norm_{backward,forward}/2x9x1152/along_0-2/over_2/{f16,f32/uncentered/relu}/rows_read_twice/max_storage_buffers=4
axes_norm_{backward,forward}/{7x37x64/over_1/along_1,2x300x12/over_1/along_0-1,129x40/over_0/along_0}/{f32,bf16-f32/uncentered,f64}/columns_read_twice/{gpu,software,tiny}
axes_norm_{backward,forward}/{5x17x1040/over_1/along_0-1,3x1000x4/over_1/along_1}/{f32/silu,f16,f64/uncentered,f32/zero_centered_gamma}/columns_read_twice/{software,max_storage_buffers=4}
axes_norm_{backward,forward}/2x600x128/over_1/along_1/{f32,bf16-f32}/columns_read_twice/max_binding=131072
# Several tiles of rows, of several workgroups each.
axes_norm_{backward,forward}/{3x90x300,3x64x180}/over_1/along_1/f32/columns_read_twice/tiny
# Rows of columns that begin inside a vec4; ranges of columns, one after another.
axes_norm_{backward,forward,inference}/{7x37x65/over_1/along_1,2x300x13/over_1/along_0-1,129x43/over_0/along_0,3x5x6/over_1/along_1,40x6x2/over_1/along_0-1}/{f32,bf16-f32/uncentered,f16,f64}/columns_read_twice/{gpu,software,tiny}
axes_norm_{backward,forward,inference}/{7x37x64/over_1/along_1,5x17x1040/over_1/along_0-1}/{f32/silu,bf16-f32/uncentered,f16,f64}/columns_read_twice/{gpu,software,tiny}
axes_norm_{backward,forward,inference}/{7x37x65/over_1/along_1,2x300x13/over_1/along_0-1,129x43/over_0/along_0,3x5x6/over_1/along_1}/{f32/silu,f16-f16-f32}/columns_read_twice/{gpu,software,tiny}
axes_norm_{backward,forward}/{7x37x65/over_1/along_1,3x60x13/over_1/along_0-1,50x1043/over_0/along_0,5x9x6/over_1/along_1}/{f32,bf16-f32/uncentered,f64,f16-f16-f32}/columns_in_registers/{gpu,software,tiny}
axes_norm_{backward,forward}/{7x37x64/over_1/along_1,2x300x13/over_1/along_0-1}/{f32/gate,bf16-f32/gate/uncentered,f16-f16-f32/no_gamma}/{columns_in_registers/gpu,columns_read_twice/software,columns_read_twice/gpu}
axes_norm_backward/{7x37x65/over_1/along_1,2x300x13/over_1/along_0-1}/{f16,bf16-f32,f32}/columns_read_twice/{in_place,exact,pooled}
axes_norm_forward/{7x37x65/over_1/along_1,2x300x13/over_1/along_0-1/uncentered}/residual/{f32,bf16-f32}/{columns_in_registers/gpu,columns_read_twice/max_storage_buffers=4}
axes_norm_{backward,forward}/{3x5x30001/over_1/along_1,2x6x40000/over_1/along_0-1,7x64x3333/over_1/along_1}/{f32,f16}/max_binding=65536
axes_norm_{backward,forward}/{7x37x64/over_1/along_1,3x60x12/over_1/along_0-1,50x1040/over_0/along_0}/{f32,bf16-f32/uncentered,f64,f16}/columns_in_registers/{gpu,software,tiny}
axes_norm_forward/{5x300x24/over_1/along_1,2x129x20/over_1/along_0-1}/{f32/silu,bf16/uncentered/gate/residual,f32/zero_centered_gamma/residual,f16/no_gamma}/columns_in_registers/gpu
axes_norm_forward/3x40x44/over_1/along_1/uncentered/{f32,bf16/gate}/columns_in_registers/gpu/max_storage_buffers=4
axes_norm_{backward,forward}/6x64x128/over_1/along_1/f32/columns_in_registers/gpu/max_binding=131072
# Windows that end inside a walk over column tiles.
axes_norm_backward/{7x12x100/over_1/along_1,7x12x101/over_1/along_1,5x9x300/over_1/along_0-1}/{f32,f16}/columns_in_registers/gpu/busy_workgroups=3/max_binding=16384
axes_norm_inference/{64x4x4096,9x3x5001}/over_1/along_1/f32/max_binding=1048576
axes_norm_{backward,forward}/7x37x64/over_1/along_1/f32/{huge_mean,vast,equal,wide}/columns_in_registers/gpu
axes_norm_backward/{5x300x24/over_1/along_1,2x129x20/over_1/along_0-1,3x70x21/over_1/along_1}/{f32/silu,bf16/uncentered/gate,f32/zero_centered_gamma,f16/no_gamma,f32/frozen,f16}/columns_in_registers/gpu
axes_norm_backward/{7x37x65/over_1/along_1,2x30x13/over_1/along_0-1,5x8x9/over_1/along_1}/{f16,bf16-f32,f32}/columns_in_registers/{in_place,exact,pooled}
axes_norm_inference/{2x6x35/over_2/along_0-1,3x9x8/over_1/along_0-2,6x4x10/over_0-2/along_0-1}/{relu,residual/relu}/{f32/uncentered,f32}
axes_norm_{backward,forward}/{2x3x2x2x3x2x2x5/over_1-3-5-7/along_0-3-4-7,2x3x2x2x3x2x2x4/over_0-2-4-6/along_1-2-5-6}/{f32,f64/uncentered}
axes_norm_backward/{3x7x192/along_0-2/over_2,23x101/rows_read_twice,7x37x64/over_1/along_1,4x5x6x7/over_1-3/along_none,6x4x10/over_0-2/along_0-1}/no_gamma/{f32,bf16-f32/uncentered,f32/no_beta}
axes_norm_forward/{3x7x192/along_0-2/over_2,23x101,6x191/uncentered}/residual/{f32,bf16-f32,f64}/{rows_in_registers,rows_read_twice,rows_read_twice/max_storage_buffers=4}
axes_norm_forward/{7x37x64/over_1/along_1,2x300x12/over_1/along_0-1/uncentered}/residual/{f32,bf16-f32}/columns_read_twice/{software,max_storage_buffers=4}

# A gate.
axes_norm_{backward,forward}/{3x7x192/along_0-2/over_2,23x101,40x64/along_0-1/over_1}/gate/{f32,bf16-f32,f64/uncentered}/{no_gamma,no_beta/zero_centered_gamma,no_gamma/no_beta,zero_centered_gamma}/{rows_in_registers/gpu,rows_in_registers/software,rows_read_twice}
axes_norm_{backward,forward}/{2x9x1152/along_0-2/over_2,23x101}/gate/{f16,f32/uncentered/no_gamma}/rows_read_twice/{gpu,max_storage_buffers=4}
axes_norm_{backward,forward}/{7x37x64/over_1/along_1,2x300x12/over_1/along_0-1}/gate/{f32/no_gamma,bf16-f32/uncentered,f64}/columns_read_twice/{software,max_storage_buffers=4}
axes_norm_{backward,forward}/{4x7x12/over_2/along_0-2,2x5x40/over_2/along_0-1,4x5x6x7/over_1-3/along_none,3x4x5x6/over_0-3/along_1-3,2x6x35/over_2/along_0-1}/gate/{f32/uncentered,f32/no_beta,f16/no_gamma}/{gpu,max_storage_buffers=4}
axes_norm_backward/{3x7x192/along_0-2/over_2,7x37x64/over_1/along_1,4x5x6x7/over_1-3/along_none}/gate/frozen/{f32,bf16}
axes_norm_forward/{3x7x192/along_0-2/over_2,7x37x64/over_1/along_1,4x5x6x7/over_1-3/along_none}/gate/residual/{f32,bf16}
axes_norm_inference/{3x9x8/over_1/along_0-2,2x6x35/over_2/along_0-1}/gate/{residual,no_gamma}/f32/{gpu,max_storage_buffers=4}

# gamma stored less 1.
rms_norm_{backward,forward}/{16x192,23x101}/zero_centered_gamma/{bf16,f32}/{rows_in_registers,rows_read_twice/max_storage_buffers=4}
axes_norm_{backward,forward,inference}/3x9x8/over_1/along_0-2/zero_centered_gamma/{f32,f16/relu}
batch_norm_backward/5x12/zero_centered_gamma/{f32/relu,f16/relu,f64}
batch_norm_forward/5x12/zero_centered_gamma/{f32/relu,f64}

# GELU and its approximation.
{batch,instance}_norm_{backward,forward}/{3x8x40/ncx,4x6x20/ncx}/{gelu,gelu_tanh}/{f32,bf16-f32}
group_norm_{backward,forward}/2x6x27/ncx/groups_3/{gelu,gelu_tanh}/{f32,f16-f32}
{layer,rms}_norm_{backward,forward}/{16x192,23x101}/{gelu_tanh,gelu}/{f32,f16-f32}/{rows_in_registers,rows_read_twice}
{batch,group,instance}_norm_inference/3x8x40/ncx/{gelu,gelu_tanh}/f32
{batch,layer}_norm_{backward,forward}/5x12/{gelu_tanh,gelu}/f32/{nan,overflow}

# Rows with an activation, whose argument the gradient recomputes from src.
layer_norm_backward/{16x192,23x101,23x50,301x3}/{relu,silu}/f32/rows_in_registers/{gpu,software}
layer_norm_backward/{64x64,23x101,70x3,3x2001}/{relu,silu}/f32/rows_read_twice/{gpu,software,tiny/in_place}
layer_norm_backward/{33x28/no_gamma,33x28/no_gamma/no_beta,33x28/no_beta,30x300/frozen}/{relu,silu}/f32/{rows_in_registers,rows_read_twice}
layer_norm_backward/{33x28/relu,9x67/silu}/f32/rows_read_twice/max_storage_buffers=4
{layer,rms}_norm_{backward,forward}/{9x37,15x72}/{relu,silu}/{f16-f32,bf16}/{rows_in_registers,rows_read_twice}
{layer,rms}_norm_{backward,forward}/9x29/relu/f64/{rows_in_registers,rows_read_twice}
rms_norm_backward/{16x192,23x101,301x3}/{relu,silu}/f32/{rows_in_registers,rows_read_twice}/{gpu,software}
rms_norm_backward/{33x28/no_gamma,30x300/frozen}/{relu,silu}/f32/{rows_in_registers,rows_read_twice}
{layer,rms}_norm_forward/{16x192,23x101,301x3}/{relu,silu,relu/residual,silu/residual}/f32/{rows_in_registers,rows_read_twice}
{layer,rms}_norm_forward/3x2001/{relu,silu,relu/residual,silu/residual}/f32/{rows_in_registers/gpu,rows_read_twice}

# An activation, with a residual before it or without: recomputed from src, or by a mask.
batch_norm_backward/{3x8x40,4x6x20,5x33x27,61x3x3}/ncx/relu/{f32/channels_first/gpu,f32/channels_first/software,bf16-f32/channels_first}
batch_norm_backward/{64x128,61x3,300x7}/nxc/relu/f32/channels_last/{gpu,software,tiny/in_place}
batch_norm_backward/{3x24x9,4x8x92,1x301x7}/ncx/relu/f32/fused_channels_first
batch_norm_backward/{64x128,70x12}/nxc/relu/{f32,f16}/fused_channels_last
batch_norm_backward/{6x5x8/params_6x1x8,3x4x5x6/params_1x4x1x6}/{relu,relu/residual,silu}/f32/general
batch_norm_backward/{4x6x20,5x33x27,3x8x40}/ncx/relu/{no_gamma,no_beta,constant,constant/frozen,frozen}/f32
batch_norm_backward/{61x3,40x12}/nxc/{relu,relu/residual}/{constant,constant/frozen}/f32
batch_norm_backward/{3x8x40/ncx/f32,4x6x20/ncx/f32,5x33x27/ncx/f32,61x3x3/ncx/f32,3x8x40/ncx/f16,5x33x27/ncx/f16,61x3x3/ncx/bf16-f32,4x6x20/ncx/f64}/relu/residual/channels_first
batch_norm_backward/{3x8x40,4x6x20,1x301x7}/ncx/relu/residual/{f32,f16,f64}/fused_channels_first
batch_norm_backward/{64x128,61x3,300x7}/nxc/relu/residual/{f32/channels_last,f16/channels_last}/in_place
batch_norm_backward/{64x128,9x132}/nxc/relu/residual/{f32,bf16}/fused_channels_last
batch_norm_backward/{3x8x40/ncx,300x7/nxc}/silu/{f32,f16-f32}
batch_norm_backward/{7x5x27/ncx,7x12/nxc}/{relu,relu/residual}/f32/two_shards
batch_norm_backward/{3x5x7/ncx,9x7/nxc}/{relu/f32/exact,relu/f16/pooled,relu/residual/f16/exact,relu/residual/f32/pooled}
batch_norm_backward/{3x5x7/ncx,5x12/nxc}/{relu,relu/residual,silu}/f32/nan
batch_norm_inference/5x12/nxc/relu/{f32,f64}/infinite
group_norm_forward/8x66x7x4x2/nxc/groups_2/relu/f32/software/infinite
batch_norm_backward/{6x33x729,2x5x30003}/ncx/{relu,relu/residual}/f32/channels_first/software/window_unit=4096,max_workgroups=255/windows=131072
batch_norm_backward/50011x3/nxc/relu/residual/f32/channels_last/software/window_unit=4096,max_workgroups=255/windows=131072
batch_norm_{backward,forward}/{2x3x30003/ncx/channels_first,50011x3/nxc/channels_last}/relu/residual/{f32,f16}/window_unit=4096/alignment={512,65536}/windows=196608
batch_norm_backward/1x701x200/ncx/relu/residual/f32/fused_channels_first/alignment=2048/windows=131072
group_norm_{backward,forward}/{2x12x5003/ncx,9x700x32/nxc}/groups_4/relu/residual/f32/window_unit=4096/alignment=2048/windows=131072
batch_norm_forward/{3x8x40,5x33x27,1x301x7}/ncx/{relu/f32,silu/bf16-f32/software,residual/bf16-f32,relu/residual/f32/software,relu/residual/bf16-f32}
batch_norm_forward/{64x128,61x3}/nxc/{relu/f32,relu/f16/tiny,residual/f16,relu/residual/f32/tiny,relu/residual/f16}/running
batch_norm_forward/{6x5x8/params_6x1x8,3x4x5x6/params_1x4x1x6,3x4x5x37/params_3x1x5x1}/{relu/residual,relu}/f32/general
batch_norm_forward/{3x5x7/ncx,9x7/nxc}/relu/residual/{f32/exact,f16/pooled,f32/nan}
batch_norm_forward/{7x5x27/ncx,70x12/nxc}/relu/residual/f32/halves
batch_norm_forward/{6x33x729/ncx,50011x3/nxc}/relu/residual/f32/software/window_unit=4096/windows=131072
batch_norm_inference/{3x8x40/ncx,61x3/nxc,3x4x5x6/params_1x4x1x6}/{relu/f32,silu/f16,residual/f16,relu/residual/f32}
group_norm_{backward,forward}/{3x8x40/groups_2/relu,2x6x27/groups_3/silu,5x12x3/groups_12/relu/residual}/ncx/f32
group_norm_{backward,forward}/{3x8x40/groups_2/relu/residual,2x6x27/groups_3/relu,5x12x3/groups_12/silu}/ncx/f16-f32
axes_norm_{backward,forward}/{2x700x49,1x1000x24,3x530x8}/over_1/along_1/{f32,f16-f16-f32,bf16-f32/uncentered}/columns_in_registers/{gpu,gpu/subgroup_size=0}
group_norm_forward/{3x12x9/groups_4,2x8x7/groups_2,5x64x49/groups_32,2x6x5/groups_3,3x10x4/groups_2,2x9x67/groups_3}/ncx/{f32,f16,bf16-f32,f64,relu/f32,residual/f16}/rows_in_registers/{gpu,software,tiny}
group_norm_forward/{3x12x9/groups_4,2x8x7/groups_2}/ncx/{no_gamma/f32,f32/exact,bf16/pooled,f32/nan}/rows_in_registers/gpu
batch_norm_{backward,forward}/{1x701x200/ncx/f32,1x701x400/ncx/f16}/fused_channels_first/gpu/alignment=2048/windows=131072
batch_norm_{backward,forward}/{2x5x32,1x7x64,3x6x36,8x11x196,5x3x20}/ncx/{f32,f16,bf16-f32,f64,f32/relu}/fused_channels_first/{gpu,gpu/tile=64,gpu/subgroup_size=0}
batch_norm_{backward,forward}/{2x5x32,3x7x20}/ncx/{f32,f16}/fused_channels_first/gpu/tile=64/{exact,pooled,nan}
batch_norm_forward/{2x5x32,8x11x196,3x7x20}/ncx/{f32,f16-f32,f16}/fused_channels_first/{gpu,gpu/tile=64}/running
batch_norm_{backward,forward,inference}/{9x24x196,3x5x2000,3x70x8}/ncx/{f32,f16,bf16-f32/relu,f64}/channels_first/{gpu,gpu/tile=1000,tiny}
batch_norm_{backward,forward}/{9x24x196/ncx/f32,3x5x8000/ncx/f32,3x5x16000/ncx/f16}/channels_first/gpu/tile=1000,window_unit=4096/windows=65536
group_norm_{backward,forward,inference}/9x24x196/ncx/groups_4/{f32,f16}/channels_first/{gpu,gpu/tile=1000}
instance_norm_{backward,forward,inference}/9x24x196/ncx/{f32,f16}/channels_first/{gpu,gpu/tile=1000}
group_norm_{backward,forward}/{3x50x8/groups_2/relu,3x7x5/groups_5/silu,2x30x6/groups_3/relu/residual}/nxc/f32
group_norm_{backward,forward}/{3x50x8/groups_2/relu/residual,3x7x5/groups_5/relu,2x30x6/groups_3/silu}/nxc/bf16-f32
group_norm_backward/{4x6x20/ncx,3x20x12/nxc}/groups_2/{relu/no_beta,silu/frozen,silu/no_gamma,relu/residual/no_gamma}/f32
instance_norm_{backward,forward}/{3x5x27/ncx,2x9x5/nxc}/{relu,silu,relu/residual}/f32

# Buffers: exact ends, one for all tensors, diff_src over diff_dst.
batch_norm_backward/{3x5x7,4x3x8}/ncx/channels_first/{f32/gpu/exact,f16/software/exact,f16/gpu/pooled,f32/software/pooled,f32/software/exact/in_place,f16/gpu/exact/in_place}
batch_norm_backward/{5x7,9x12}/nxc/channels_last/{f32/gpu/exact,bf16-f32/software/exact,bf16-f32/gpu/pooled/in_place,f32/software/pooled/in_place}
batch_norm_backward/{1x7x9,3x4x11}/ncx/{f32,f16}/fused_channels_first/{exact,pooled/in_place}
batch_norm_backward/9x12/nxc/{f32,f16}/fused_channels_last/{exact,in_place}
layer_norm_backward/{5x7,8x12,21x30}/{f32/exact,f32/pooled/in_place}/rows_in_registers
layer_norm_backward/5x7/bf16/exact/in_place
layer_norm_backward/{5x7,8x12}/{f32,f16}/rows_read_twice/{exact/in_place,pooled}

# Two halves, and the sums of two parts of the samples.
batch_norm_backward/{7x5x27,7x5x20}/ncx/{f32,bf16}/channels_first/{halves,two_shards}
batch_norm_backward/7x5/nxc/{f32,f64}/channels_last/{halves,two_shards}
batch_norm_backward/7x8x4/ncx/{constant,constant/frozen}/f32/two_shards/fused_block=65536
batch_norm_backward/7x8x4/ncx/f32/two_shards/exact

# Special numbers.
batch_norm_backward/1x4x32769/ncx/constant/frozen/no_gamma/{f16-f32,bf16-f32}/patterns/channels_first
batch_norm_backward/1x70000/nxc/constant/frozen/{f16-f32,bf16-f32}/roundings/channels_last
batch_norm_backward/4x9x50/ncx/f32/{tiny_variance,large_mean}/channels_first
batch_norm_backward/50x9/nxc/f32/{tiny_variance,large_mean}/channels_last
batch_norm_backward/4x9x50/ncx/f16-f32/overflow
{batch_norm_backward/4x9x50/ncx,layer_norm_backward/9x200,rms_norm_backward/9x200,group_norm_backward/4x6x50/groups_3/ncx}/f16-f16-f32/wide
{batch_norm_forward/4x9x50/ncx,layer_norm_forward/9x200,rms_norm_forward/9x200,group_norm_forward/4x6x50/groups_3/ncx}/f16-f16-f32/wide
layer_norm_backward/9x200/f32/{tiny_variance,large_mean}

# Long sums of equal terms.
batch_norm_backward/1x1x1200017/ncx/f32/equal
batch_norm_backward/400037x3/nxc/f32/equal/{gpu,software}
layer_norm_backward/400037x3/f32/equal/{gpu,software}

# Loops that are longer than a software driver lets an invocation make.
batch_norm_backward/4194304x1/nxc/f32/alike/window_unit=256

# Windows give the same bits as the whole.
batch_norm_backward/{6x33x729,2x5x30003,60x62x44}/ncx/f32/channels_first/software/window_unit=4096,max_workgroups=255/windows=131072
batch_norm_backward/6x33x729/ncx/f32/channels_first/gpu/window_unit=4096,tile=64,max_workgroups=60/in_place/windows=131072
batch_norm_backward/{50011x3,2000x64}/nxc/f32/channels_last/software/window_unit=4096,max_workgroups=255/windows=131072
batch_norm_backward/1x701x200/ncx/f32/fused_channels_first/window_unit=4096,max_workgroups=255/windows=131072
layer_norm_backward/{9000x68/f32,9001x66/bf16-f32}/rows_in_registers/software/tile=1024,window_unit=16384,max_workgroups=255/windows=1048576
layer_norm_backward/60x{2000,2001}/f32/no_gamma/no_beta/rows_read_twice/software/tile=1024,window_unit=4096,max_workgroups=255/windows=65536

# NaN and infinity do not spread.
batch_norm_backward/{3x5x7,5x4x12}/ncx/{f32,f16}/channels_first/{nan,infinite,square_overflow}
batch_norm_backward/9x7/nxc/{f32,bf16}/channels_last/{nan,infinite,square_overflow}
batch_norm_backward/{3x12x7,5x4x12}/ncx/f32/fused_channels_first/{nan,infinite,square_overflow}
batch_norm_backward/5x12/nxc/{f32,f16}/fused_channels_last/{nan,infinite,square_overflow}
batch_norm_backward/{3x5x7/ncx,9x7/nxc}/constant/f32/nan
layer_norm_backward/{5x7,8x12}/f32/{rows_in_registers,rows_read_twice}/{nan,infinite,square_overflow}

# The same bits again, and with shader checks.
batch_norm_backward/{5x33x27/ncx/f32,61x3/nxc/f16}/repeats
layer_norm_backward/21x30/f32/repeats
rms_norm_backward/{16x192,23x101,301x3}/f32/rows_in_registers/{gpu,software}
rms_norm_backward/{64x64,23x101}/f32/rows_read_twice/{gpu,software,tiny/in_place}
rms_norm_backward/{9x37,15x72}/{f16-f32,bf16}/rows_read_twice
rms_norm_backward/{9x66,33x28}/{f16,bf16-f32}/rows_in_registers/{gpu,software}
rms_norm_backward/{6x2x8x33/axis_2,30x300/frozen,33x28/no_gamma,1x9}/f32
rms_norm_backward/33x24/f64
rms_norm_backward/{5x7,8x12}/f32/{exact/in_place,pooled}
rms_norm_backward/{5x7,8x12}/f32/{rows_in_registers,rows_read_twice}/{nan,infinite,square_overflow}
rms_norm_backward/400037x3/f32/equal
rms_norm_backward/9x200/f32/{tiny_variance,large_mean}
rms_norm_backward/{0x5,5x0}/f32
batch_norm_backward/{4x6x20/ncx/f32/channels_first,33x20/nxc/f32}/checked
layer_norm_backward/9x14/f32/checked

# Partial sums that do not fit at once, and empty tensors.
batch_norm_backward/2000x63/nxc/f32/channels_last/tiny/max_binding=16384{,/two_shards}
batch_norm_backward/2000x63/nxc/constant/f32/channels_last/tiny/max_binding=16384/halves
batch_norm_backward/3000x60x8/ncx/f32/channels_first/gpu/max_binding=16384
layer_norm_backward/2001x66/bf16/rows_in_registers/gpu/max_binding=65536
layer_norm_backward/1000x255/f32/rows_read_twice/tiny/max_binding=65536/in_place
layer_norm_backward/400x2003/f16/rows_read_twice/software/row_walk=1,prefetched_pages=1,max_binding=131072
batch_norm_backward/{0x5,5x0}/nxc/f32/channels_last
layer_norm_backward/{0x5,5x0}/f32/rows_in_registers
# Rows and samples whose workspace does not fit a binding: processed in parts.
{layer,rms}_norm_backward/{9000x3,20001x1}/f16/max_binding=65536
layer_norm_backward/{9001x5/f32/rows_read_twice,20001x7/f32/rows_in_registers,9000x6/bf16-f32/rows_read_twice/in_place}/max_binding=65536
layer_norm_backward/30001x5/f32/rows_read_twice/frozen/max_binding=32768/exact
{layer,rms}_norm_forward/{20001x1/f16,9001x5/residual/f16-f16-f32,20000x3/f32/rows_read_twice,9001x7/residual/bf16}/max_binding=65536
group_norm_{backward,forward,inference}/{5001x12/groups_4,3000x6x3/groups_2,4000x8x5/groups_8}/ncx/f32/max_binding=65536
group_norm_{backward,forward}/{4001x12x3/groups_4/relu/residual/max_binding=262144,3000x6x20/groups_3/silu/max_binding=65536,4000x5x3/groups_1/max_binding=65536}/ncx/f16-f32
group_norm_{backward,forward,inference}/{3000x3x12/groups_4/max_binding=65536,3000x5x6/groups_2/relu/residual/max_binding=262144}/nxc/f32
group_norm_{backward,forward}/3001x6x3/groups_2/ncx/f32/max_binding=65536/{exact,repeats}

# Batch norm in training, by each algorithm.
batch_norm_forward/{4x6x20,5x33x27}/ncx/running_unbiased/f32/channels_first/gpu
batch_norm_forward/61x3x3/ncx/running/{f16,bf16-f32}/channels_first/software
batch_norm_forward/{2x3x1201,31x7x9}/ncx/running/f32/channels_first/tiny
batch_norm_forward/5x7x27/ncx/running_unbiased=0.1/{f16-f16-f32,f64}/channels_first
batch_norm_forward/{61x3/gpu,61x3/tiny,64x128/tiny}/nxc/running_unbiased/f32/channels_last
batch_norm_forward/300x7/nxc/running/f32/channels_last/software
batch_norm_forward/13x8x5/ncx/f32/channels_last/gpu
batch_norm_forward/33x20/nxc/running/{f16-f32,bf16-bf16-f32}/channels_last
batch_norm_forward/{3x24x9/gpu,1x301x7/gpu,1x301x7/software}/ncx/running/f32/fused_channels_first
batch_norm_forward/4x8x92/ncx/f32/fused_channels_first/software/cheap_barriers=1,fused_block=800
batch_norm_forward/3x12x9/ncx/running/{f16,bf16-f32}/fused_channels_first
batch_norm_forward/{64x128,300x4}/nxc/running/f32/fused_channels_last/gpu
batch_norm_forward/70x12/nxc/{f16-f32,f64}/fused_channels_last
batch_norm_forward/6x50x8/params_6x1x8/running/f32/general/{gpu,tiny}
batch_norm_forward/3x4x5x37/params_3x1x5x1/{f32,bf16}/general/gpu
# Without gamma or beta, and with few bindings.
batch_norm_forward/4x6x20/ncx/{no_gamma,no_beta/running=1}/f32/channels_first/gpu
batch_norm_forward/5x33x27/ncx/running/f32/channels_first/max_storage_buffers=4
batch_norm_forward/61x3/nxc/no_gamma/no_beta/running/f32/channels_last/max_storage_buffers=4
# Two halves, and the statistics of two parts of the samples.
batch_norm_forward/7x5x27/ncx/running_unbiased/{f32/halves,f32/two_shards,bf16/two_shards}/channels_first
batch_norm_forward/{7x5/f32,70x12/f64}/nxc/running/channels_last/two_shards
batch_norm_forward/7x8x4/ncx/running/f32/two_shards/max_storage_buffers=4
batch_norm_forward/{16x6/ncx,7x12/nxc}/relu/residual/f32/two_shards
# Statistics of numbers that nearly cancel, and of equal numbers.
batch_norm_forward/4x9x50/ncx/f32/{tiny_variance,large_mean,huge_mean,vast,equal}/channels_first
batch_norm_forward/50x9/nxc/f32/{huge_mean,equal}/channels_last
batch_norm_forward/{4x12x50/ncx/fused_channels_first,50x8/nxc/fused_channels_last}/{f32,f64}/huge_mean
batch_norm_forward/4x9x50/ncx/f16-f32/overflow
# Long channels: long sums, groups of partial sums, loops, sums that do not fit at once.
batch_norm_forward/{1x1x400017/ncx,400037x3/nxc}/f32/alternating
batch_norm_forward/1x1x300001/ncx/f32/large_mean/channels_first/workgroup=4,tile=64,busy_workgroups=1048576
batch_norm_forward/4194304x1/nxc/f32/alike/window_unit=256/halves
batch_norm_forward/2000x63/nxc/running/f32/channels_last/tiny/max_binding=16384{,/two_shards}
batch_norm_forward/3000x60x8/ncx/f32/channels_first/gpu/max_binding=16384
# Buffers, windows, NaN, repeated bits, empty tensors.
batch_norm_forward/{3x5x7/ncx/channels_first,9x12/nxc/channels_last}/running/f16/{exact,pooled}
batch_norm_forward/6x33x729/ncx/f32/channels_first/software/window_unit=4096,max_workgroups=255/windows=131072
batch_norm_forward/50011x3/nxc/f32/channels_last/software/window_unit=4096,max_workgroups=255/windows=131072
batch_norm_forward/{3x5x7/ncx/channels_first,9x7/nxc/channels_last}/running/f32/{nan,infinite,square_overflow}
batch_norm_forward/{3x12x7/ncx/fused_channels_first,5x12/nxc/fused_channels_last}/f32/{nan,infinite,square_overflow}
batch_norm_forward/{5x33x27/ncx/f32/repeats,33x20/nxc/f32/checked,0x5/nxc/f32,5x0/nxc/f32}/running

# Batch norm with given statistics.
batch_norm_inference/{4x6x20/ncx/f32/gpu,31x7x9/ncx/f16-f16-f32/tiny}/channels_first
batch_norm_inference/{61x3/nxc/f32,33x20/nxc/bf16}/channels_last
batch_norm_inference/6x5x8/params_6x1x8/no_beta/f32/general
batch_norm_inference/5x7x27/ncx/no_gamma/f64/exact
batch_norm_inference/1x4x32769/ncx/no_gamma/no_beta/{f16-f32,bf16-f32}/patterns/channels_first
batch_norm_inference/1x70000/nxc/no_beta/{f16-f32,bf16-f32}/roundings/channels_last
batch_norm_inference/{61x3/nxc/f32/max_storage_buffers=4,3x5x7/ncx/f32}/{nan,infinite,square_overflow}
batch_norm_inference/6x33x729/ncx/f32/channels_first/software/window_unit=4096,max_workgroups=255/windows=131072
batch_norm_inference/4x9x50/ncx/f32/large_mean

# Forward over rows, in registers and read twice.
{layer,rms}_norm_forward/{23x101/gpu,23x101/software,301x3/gpu}/f32/rows_in_registers
{layer,rms}_norm_forward/9x101/residual/f32/rows_in_registers/least_row_vec4s=2,subgroup_size=0
{layer,rms}_norm_forward/{9x66/f16-f16-f32,33x28/bf16-f32}/residual/rows_in_registers/gpu
{layer,rms}_norm_forward/23x101/f32/rows_read_twice/{gpu,tiny}
{layer,rms}_norm_forward/15x72/residual/{bf16,f16-f32}/rows_read_twice/software
{layer,rms}_norm_forward/33x24/residual/f64
{layer,rms}_norm_forward/{6x2x8x33/axis_2/no_statistics,33x28/no_gamma}/f32/rows_read_twice/max_storage_buffers=4
{layer,rms}_norm_forward/5x7/residual/bf16/{exact,pooled}
{layer,rms}_norm_forward/8x12/residual/f32/{rows_in_registers,rows_read_twice}/{nan,infinite,square_overflow}
{layer,rms}_norm_forward/{5x7/bf16,9x33/f64}/square_overflow
{layer,rms}_norm_forward/3x150001/residual/f32/equal
{layer,rms}_norm_forward/5x0/f32
layer_norm_forward/{33x28/no_beta,33x28/no_gamma/no_beta,0x5}/f32
layer_norm_forward/{3x150001,9x200}/f32/huge_mean
layer_norm_forward/9x200/f32/equal/{rows_in_registers,rows_read_twice}
layer_norm_forward/3x150001/f32/alternating
rms_norm_forward/9x200/f16-f32/overflow
layer_norm_forward/1000x255/f32/rows_read_twice/tiny/max_binding=65536
layer_norm_forward/9000x68/f32/rows_in_registers/software/tile=1024,window_unit=16384,max_workgroups=255/windows=1048576
layer_norm_forward/60x2001/f32/rows_read_twice/software/tile=1024,window_unit=4096,max_workgroups=255/windows=65536
layer_norm_forward/21x30/residual/f32/{repeats,checked}

# Group norm by each algorithm: groups of one channel and of all, planes that begin anywhere, any number of channels.
group_norm_{backward,forward}/{3x8x40/groups_2,2x6x27/groups_2,2x12x520/groups_3}/ncx/f32/channels_first/{gpu,tiny}
group_norm_{backward,forward}/{4x6x20/groups_6,2x40x3/groups_1}/ncx/{f16,bf16-f32}/channels_first/software
group_norm_{backward,forward}/5x6x27/ncx/groups_3/{f16-f16-f32,f64}/channels_first
group_norm_{backward,forward}/{3x8x40/groups_2,2x6x27/groups_3,7x12x9/groups_3,3x4x91/groups_1}/ncx/f32/fused_channels_first/{gpu,software}
group_norm_{backward,forward}/2x6x27/groups_2/ncx/f32/fused_channels_first/gpu
group_norm_{backward,forward}/{5x6x12/groups_3,3x10x9/groups_5}/ncx/{f16,bf16-bf16-f32,f64}/fused_channels_first
# Groups that are rows in registers, whose planes have parameters of their own; instances may be planes of any length.
group_norm_forward/{3x8x40/groups_2,2x6x28/groups_3,7x12x12/groups_3,3x4x92/groups_1,5x6x4/groups_6}/ncx/{f32,f16-f32,bf16,f64}/rows_in_registers/{gpu,software,tiny}
group_norm_forward/{3x8x40/groups_2,2x6x28/groups_3}/ncx/{f32/relu,f32/silu,f16/residual,bf16-f32/residual/no_gamma,f32/no_gamma/no_beta,f32/zero_centered_gamma,f32/max_storage_buffers=6,f32/exact,f16/pooled}/rows_in_registers/gpu
group_norm_forward/{3x8x40/groups_2,6x32x728/groups_4}/ncx/f32/{huge_mean,equal,vast}/rows_in_registers/gpu
group_norm_forward/40x12x200/ncx/groups_6/f32/rows_in_registers/gpu/window_unit=4096,max_workgroups=255/windows=65536
instance_norm_{backward,forward}/{3x5x27,4x8x40,2x9x5,3x7x3,2x6x1,2x3x301}/ncx/{f32,f16,bf16-f32,f64}/rows_in_registers/{gpu,software,tiny}
instance_norm_backward/{3x5x27,4x8x40}/ncx/{relu/f32,silu/f32,relu/f16,no_gamma/f32,frozen/f32,f32/exact,bf16/pooled,f16/in_place,f32/nan}/rows_in_registers/gpu
axes_norm_backward/{5x6x28/over_2/along_0-1,4x3x6x8/over_2-3/along_1,5x6x27/over_2/along_0-1}/{f32,f32/uncentered,bf16-f32,f16-f16-f32/gate}/rows_in_registers/{gpu,tiny}
instance_norm_forward/{3x5x27,4x8x40}/ncx/{relu/f32,silu/f32,residual/f16,f32/exact,bf16/pooled}/rows_in_registers/gpu
axes_norm_forward/{5x6x28/over_2/along_0-1,4x3x6x8/over_2-3/along_1,5x6x27/over_2/along_0-1}/{f32,f32/uncentered,bf16-f32,f16-f16-f32/uncentered/gate}/rows_in_registers/{gpu,tiny}
group_norm_{backward,forward}/{3x50x8/groups_2,2x37x28/groups_7}/nxc/f32/general/{gpu,tiny}
group_norm_{backward,forward}/{3x52x3/groups_1/f32/gpu,3x52x3/groups_1/f32/tiny,2x36x10/groups_5/f32/software,2x24x6/groups_2/bf16}/nxc/general
group_norm_{backward,forward}/{3x20x12/groups_4,2x9x6/groups_2,3x7x5/groups_5}/nxc/{f16-f32,bf16}/general
group_norm_{backward,forward}/{1x70x12/groups_3,1x61x6/groups_2,3x1x12/groups_4}/nxc/f32/channels_last
group_norm_{backward,forward}/{3x12/groups_4,2x5/groups_1}/ncx/f32
instance_norm_{backward,forward}/{3x5x27,4x8x40}/ncx/f32/{channels_first,fused_channels_first}/gpu
instance_norm_{backward,forward}/{3x50x8,2x9x5}/nxc/f16-f32/general
instance_norm_{backward,forward}/2x3x16x17/ncx/bf16
group_norm_inference/{3x8x40/groups_2/ncx/f32/channels_first,2x6x27/groups_2/ncx/f16-f32,2x37x28/groups_7/nxc/f32/general,1x61x6/groups_2/nxc/bf16}
# Options, few buffers, buffers.
group_norm_backward/{4x6x20/ncx,3x20x12/nxc}/groups_3/{frozen,no_gamma}/f32
group_norm_backward/4x6x20/ncx/groups_3/{frozen,no_gamma}/f32/channels_first
group_norm_forward/4x6x20/ncx/groups_3/{no_gamma,no_beta,no_gamma/no_beta}/f32/{channels_first,fused_channels_first}
group_norm_{backward,forward,inference}/{4x6x20/ncx,3x20x12/nxc}/groups_3/f32/max_storage_buffers=4
group_norm_{backward,forward}/{3x6x7/ncx/channels_first,3x6x7/ncx/fused_channels_first,3x9x6/nxc}/groups_3/{f32/exact,f16/pooled}
group_norm_backward/{3x6x7/ncx/channels_first,3x6x7/ncx/fused_channels_first,3x9x12/nxc}/groups_3/{f32,f16}/exact/in_place
# Numbers that nearly cancel, long sums, windows, NaN, repeated bits, empty tensors.
group_norm_forward/{4x6x50/ncx/channels_first,4x6x50/ncx/fused_channels_first,4x50x12/nxc}/groups_3/f32/{huge_mean,equal}
group_norm_backward/4x6x50/ncx/groups_3/f32/{tiny_variance,large_mean}
group_norm_{backward,forward}/{2x2x300001/groups_1/equal,1x5000x3/groups_1/equal,3000x8x4/groups_4}/ncx/f32/channels_first
group_norm_{backward,forward}/6x32x729/ncx/groups_4/f32/channels_first/software/window_unit=4096,max_workgroups=255/windows=131072
group_norm_{backward,forward}/40x12x200/ncx/groups_6/f32/fused_channels_first/window_unit=4096,max_workgroups=255/windows=65536
group_norm_{backward,forward}/9x300x32/nxc/groups_4/f32/general/software/window_unit=4096,max_workgroups=255/windows=65536
group_norm_{backward,forward}/3x3000x6/nxc/groups_2/f32/general/software/window_unit=4096,max_workgroups=255/windows=65536
group_norm_{backward,forward}/{3x6x7/ncx/channels_first,3x6x7/ncx/fused_channels_first,3x9x12/nxc,3x5x6/nxc}/groups_3/f32/{nan,infinite,square_overflow}
group_norm_{backward,forward}/{5x6x27/ncx,3x9x12/nxc}/groups_2/f32/{repeats,checked}
group_norm_{backward,forward}/{0x6x5,3x0x5,3x6x0}/{ncx,nxc}/f32
instance_norm_{backward,forward}/{0x6x5,3x0x5,3x6x0}/ncx/f32
";

/// Further lines of the full list.
const FULL: &str = "
# Cases that the default list has no time for.
layer_norm_backward/{33x96/f32,33x96/bf16,9x101/f32,9x102/bf16}/rows_in_registers/least_row_vec4s=2
rms_norm_backward/{6x2x8x33/axis_2,5x300/frozen,33x28/no_gamma}/f32/rows_read_twice/max_storage_buffers=4
layer_norm_backward/{33x96,9x101}/f32/rows_in_registers/least_row_vec4s=2,subgroup_size=0
layer_norm_backward/9x66/{f16/rows_in_registers/gpu,bf16-f32/rows_in_registers/software}
batch_norm_backward/{33x20,50x5}/nxc/bf16/channels_last/gpu
batch_norm_backward/5x12x16/ncx/f32/fused_channels_first/software/cheap_barriers=1,fused_block=200
batch_norm_backward/4x8x{380,384}/ncx/f32/fused_channels_first/gpu/fused_block=4096
layer_norm_backward/{5x6,8x12,21x30}/bf16/rows_in_registers/exact/in_place
rms_norm_backward/33x96/f32/rows_in_registers/least_row_vec4s=2,subgroup_size=0
batch_norm_backward/{5x9x27,4x6x20}/ncx/{constant,constant/frozen,frozen,no_gamma}/f32/channels_first/gpu
batch_norm_backward/1x43700x3/ncx/constant/frozen/no_gamma/{f16-f32,bf16-f32}/patterns/channels_last/gpu
group_norm_inference/{2x6x27/groups_3/ncx,3x7x5/groups_5/nxc}/{relu,silu,residual,relu/residual}/f32
layer_norm_backward/{9x117,9x120}/f32/rows_read_twice/tiny/subgroup_size=0
batch_norm_backward/9x12/nxc/{relu/f16/exact,relu/residual/f32/pooled}
batch_norm_backward/3x3x3/ncx/{f16,bf16-f32}/channels_first/pooled

# All combinations of what the lines above alternate.
batch_norm_backward/{3x8x40,4x6x20,5x33x27,61x3x3}/ncx/relu/residual/{f32,f16,bf16-f32,f64}/channels_first
batch_norm_backward/{3x5x7/ncx,9x7/nxc,9x12/nxc}/{relu,relu/residual}/{f32,f16}/{exact,pooled}
batch_norm_forward/{3x8x40,5x33x27,1x301x7}/ncx/{relu,silu,residual,relu/residual}/{f32,bf16-f32}{,/software}
batch_norm_forward/{64x128,61x3}/nxc/{relu,residual,relu/residual}/running/{f32,f16}{,/tiny}
batch_norm_forward/{3x5x7/ncx,9x7/nxc}/relu/residual/{f32,f16}/{exact,pooled,nan}
batch_norm_inference/{3x8x40/ncx,61x3/nxc,3x4x5x6/params_1x4x1x6}/{relu,silu,residual,relu/residual}/{f32,f16}
group_norm_{backward,forward}/{3x8x40/groups_2,2x6x27/groups_3,5x12x3/groups_12}/ncx/{relu,silu,relu/residual}/{f32,f16-f32}
group_norm_{backward,forward}/{3x50x8/groups_2,3x7x5/groups_5,2x30x6/groups_3}/nxc/{relu,silu,relu/residual}/{f32,bf16-f32}
group_norm_backward/{4x6x20/ncx,3x20x12/nxc}/groups_2/{relu,relu/residual,silu}/{frozen,no_gamma,no_beta}/f32
batch_norm_backward/{3x5x7,4x3x8}/ncx/{f32,f16}/channels_first/{gpu,software}/{exact,pooled,exact/in_place}
batch_norm_backward/{5x7,9x12}/nxc/{f32,bf16-f32}/channels_last/{gpu,software}/{exact,pooled/in_place}
group_norm_{backward,forward}/{3x6x7/ncx/channels_first,3x6x7/ncx/fused_channels_first,3x9x6/nxc}/groups_3/{f32,f16}/{exact,pooled}

# Shapes from practice, with every type.
batch_norm_backward/{1x16x1,32x128x10,32x27x7,1x3x1x1,1x256x28x28,1x257x28x28,2x128x2x2,4x200x17x16,1x16x12x12x12,1x24x14x14,3x5x1x1x1x1x1x2}/ncx/{f32,f16,f16-f32,bf16,bf16-f32,f64}
batch_norm_backward/{1x1x16,32x10x128,32x7x27,1x28x28x256,1x28x28x257,2x2x2x128,4x17x16x200,3x1x1x1x1x1x2x5}/nxc/{f32,f16,f16-f32,bf16,bf16-f32,f64}
layer_norm_backward/{2x3x5/axis_1,1000x2,33x28,6x2x8x33/axis_2}/{,frozen}/{f32,f16,f16-f32,bf16,bf16-f32,f64}
layer_norm_backward/{21x129,3x5,70x2}/{f32,f16,f16-f32,bf16,bf16-f32,f64}/{in_place,exact/in_place}
layer_norm_backward/{60x5000,300x1001,1100x256,3x300001/no_gamma/no_beta}/f32/max_binding=1048576
batch_norm_backward/1x1x60001/ncx/{f32,f16,bf16-f32,f64}/{repeats,checked}

# Shapes of every kind by every algorithm that can do them.
batch_norm_backward/{1x32x30,5x27x7,9x128x1,1x1x1,3x2x517,1x23x1,2x3x71x71,999x3x1,17x33x8}/ncx/{f32,f16,f16-f32,bf16,bf16-f32,f64}/channels_first/{gpu,software,tiny}
batch_norm_backward/{1x19x4x6x6,13x8x3,1x40x11,5x12x10,3x4x84,3x5x3}/ncx/{f32,f16,f16-f32,bf16,bf16-f32,f64}/channels_first/{gpu,software,tiny}
batch_norm_backward/{1x32x30,5x27x7,3x2x17,17x33x9,13x8x3,1x40x11,5x12x10,1x301x7}/ncx/{f32,f16,f16-f32,bf16,bf16-f32,f64}/channels_last/{gpu,software,tiny}
batch_norm_backward/{1x30x32,9x128,1x1,517x2,71x71x3,33x301,999x5,2x23}/nxc/{f32,f16,f16-f32,bf16,bf16-f32,f64}/channels_last/{gpu,software,tiny}
batch_norm_backward/{1x32x31,9x128x1,1x19x4x6x6,9x6x20,17x36x8,1x40x11,5x12x10,3x4x84}/ncx/{f32,f16,f16-f32,bf16,bf16-f32,f64}/fused_channels_first/{gpu,software}
batch_norm_backward/{9x6x20,17x36x8,3x4x84}/ncx/{f32,f16,f16-f32,bf16,bf16-f32,f64}/fused_channels_first/software/cheap_barriers=1,fused_block=520
batch_norm_backward/{3x4x380,4x8x384}/ncx/{f32,f16,f16-f32,bf16,bf16-f32,f64}/fused_channels_first/gpu/fused_block=4096
batch_norm_backward/{1x30x32,9x124,1x4,517x8,33x300,999x20}/nxc/{f32,f16,f16-f32,bf16,bf16-f32,f64}/fused_channels_last/{gpu,software}
batch_norm_backward/{6x5x8/params_6x1x8,6x5x7/params_6x1x7,4x70x300/params_4x1x300}/{f32,f16,f16-f32,bf16,bf16-f32,f64}/general/{gpu,software,tiny}
batch_norm_backward/{3x4x5x37/params_3x1x5x1,3x4x5x20/params_3x1x5x1,4x5x70x130/params_4x1x70x1}/{f32,f16,f16-f32,bf16,bf16-f32,f64}/general/{gpu,software,tiny}
batch_norm_backward/{3x4x5x6/params_1x4x1x6,3x4x5x9/params_1x4x1x9}/{f32,f16,f16-f32,bf16,bf16-f32,f64}/general/{gpu,software,tiny}
batch_norm_backward/2x2x2x2x2x2x2x2/params_2x1x2x1x2x1x2x1/{f32,f16,f16-f32,bf16,bf16-f32,f64}/general/{gpu,software,tiny}
layer_norm_backward/{30x300,57x768,1000x2,90x20,70x12,7x4,35x66,23x250}/{f32,f16,f16-f32,bf16,bf16-f32,f64}/rows_in_registers/{software,tiny/row_vec4s=32}
layer_norm_backward/{15x3,5x1,1x9,21x129,9x517}/{f32,f64}/rows_in_registers/{software,tiny/row_vec4s=32}
layer_norm_backward/{15x3,5x1,1x9,21x129,9x517}/{f16,f16-f32,bf16,bf16-f32}/{software,tiny/row_vec4s=32}
layer_norm_backward/{15x3,30x300,5x1,1x9,300x2,90x20,70x12,7x4,35x66,3x2001}/{f32,f16,f16-f32,bf16,bf16-f32,f64}/rows_read_twice/{gpu,software,tiny}
rms_norm_backward/{30x300,57x768,1000x2,90x20,7x4,35x66,23x250}/{f32,f16,f16-f32,bf16,bf16-f32,f64}/rows_in_registers/{software,gpu,tiny/row_vec4s=32}
rms_norm_backward/{15x3,30x300,5x1,1x9,300x2,70x12,35x66,3x2001}/{f32,f16,f16-f32,bf16,bf16-f32,f64}/rows_read_twice/{gpu,software,tiny}
layer_norm_backward/{30x300,21x129,3x2001}/{f32,f16,bf16-f32,f64}/rows_read_twice/tiny/subgroup_size=0

# Every choice of statistics and parameters, with the plan's own algorithm.
batch_norm_backward/{4x7x33,5x6x3,1x9x700,4x6x44}/ncx/{,constant}/{,frozen}/{,no_gamma}/{f32,f16,bf16-f32,f64}
batch_norm_backward/{4x33x7,5x3x6,700x9,300x4}/nxc/{,constant}/{,frozen}/{,no_gamma}/{f32,f16,bf16-f32,f64}
batch_norm_backward/{9/params_9,9/params_1,3x4x5/params_1x4x1,3x4x5/params_1x1x5,3x4x5/params_3x4x5}/{,constant}/{,frozen}/{f32,bf16}
layer_norm_backward/{6x2x8x33/axis_0,6x2x8x33/axis_1,7/axis_0,30x300}/{,frozen}/{,no_gamma}/{f32,f16,bf16-f32,f64}

# Sizes from practice.
batch_norm_backward/{2x192x71x71,8x322x16x16,2x64x56x56,1x16x40x40x40,2x251x28x28,12x4x8x8,1x1024x28x17}/ncx/{f32,f16-f32,bf16}
batch_norm_backward/{2x71x71x192,8x16x16x322,2x56x56x64,2x28x28x251,12x8x8x4,70000x1,1x70000}/nxc/{f32,f16-f32,bf16}
layer_norm_backward/{256x768,128x1x1024,6x2x128x1024,2x100000,200000x3,257x768,3x20001}/{f32,f16-f32,bf16}

# Buffers, halves.
batch_norm_backward/{3x5x7,4x3x8,2x3x35,4x6x20,1x13x513}/ncx/{,frozen,constant}/{f32,f16,bf16-f32,f64}/{exact,pooled,in_place,exact/in_place,pooled/in_place}
batch_norm_backward/{61x3,9x7,9x12,5x4x7}/nxc/{,frozen,constant}/{f32,f16,bf16-f32,f64}/{exact,pooled,in_place,exact/in_place,pooled/in_place}
layer_norm_backward/{5x7,6x6,23x250,9x517,1x9,70x3,9x1,8x12}/{f32,f16,bf16-f32,f64}/{,rows_read_twice}/{exact,pooled,exact/in_place,pooled/in_place}
batch_norm_backward/{7x5x27,7x5x20,7x4x3}/ncx/{,constant}/{,frozen}/{f32,f16,bf16-f32,f64}/{halves,two_shards}
batch_norm_backward/{7x5,70x12}/nxc/{,constant}/{,frozen}/{f32,f16,bf16-f32,f64}/{halves,two_shards}

# Equal terms.
batch_norm_backward/1x1x12000017/ncx/f32/equal/{gpu,software}
batch_norm_backward/4000037x3/nxc/f32/equal/{gpu,software}
batch_norm_backward/{8192x4,32768x4}/nxc/f32/equal/software/fused_block=4294967295
layer_norm_backward/4000037x3/f32/equal/{gpu,software}

# Loops that are longer than a software driver lets an invocation make.
batch_norm_backward/1x512x512x512x1/nxc/f16-f32/alike
batch_norm_backward/134217728x2/nxc/f16-f32/alike
batch_norm_backward/268435456x1/nxc/f16-f32/alike
batch_norm_backward/4870804x1x31/ncx/f16-f32/alike
batch_norm_backward/50331648x1x3/ncx/f16-f32/alike
batch_norm_backward/643501x1x1/ncx/f32/alike/channels_first/tile=524288
batch_norm_backward/{1x1x524288/ncx/f32/alike,1x1x327680/ncx/f32/alike/channels_last}
batch_norm_backward/4194304x1/nxc/f32/alike/workgroup=4,channels_last_threads=4,channels_last_vec4s=1,busy_workgroups=16777216,tile=64
layer_norm_backward/{33554432x4,1x16777216,4194304x3}/f16-f32/alike

# Windows.
batch_norm_backward/{6x33x729,2x5x30003,2x6x10012,60x62x44,500x7x40,1x701x200}/ncx/{,constant/frozen}/{f32,f64}/channels_first/software/window_unit=4096/windows=131072
batch_norm_backward/{50011x3,60001x4,2000x64}/nxc/{,constant/frozen}/{f32,f64}/channels_last/software/window_unit=4096/windows=131072
layer_norm_backward/60x20001/no_gamma/no_beta/{f32,bf16-f32}/software/tile=1024,window_unit=16384/windows=1048576
layer_norm_backward/3x100000/no_gamma/no_beta/{f32,bf16-f32}/software/tile=1024,window_unit=16384/windows=262144

# NaN and infinity.
batch_norm_backward/{3x5x7,2x3x35,1x6x1,3x5x12}/ncx/{,constant}/{f32,f16,f16-f32,bf16,bf16-f32,f64}/channels_first/{nan,infinite,square_overflow}
batch_norm_backward/{3x7x5,9x7,5x12}/nxc/{,constant}/{f32,f16,f16-f32,bf16,bf16-f32,f64}/channels_last/{nan,infinite,square_overflow}
batch_norm_backward/{1x6x7,3x4x7,3x5x12}/ncx/{f32,f16,f16-f32,bf16,bf16-f32,f64}/fused_channels_first/{nan,infinite,square_overflow}
batch_norm_backward/{9x8,5x12}/nxc/{f32,f16,f16-f32,bf16,bf16-f32,f64}/fused_channels_last/{nan,infinite,square_overflow}
layer_norm_backward/{8x12,3x66}/{f32,f16,f16-f32,bf16,bf16-f32,f64}/{rows_in_registers,rows_read_twice}/{nan,infinite,square_overflow}
layer_norm_backward/5x7/{f32,f64}/{rows_in_registers,rows_read_twice}/{nan,infinite,square_overflow}
layer_norm_backward/5x7/{f16,f16-f32,bf16,bf16-f32}/rows_read_twice/{nan,infinite,square_overflow}

# The same bits again, and with shader checks.
batch_norm_backward/{2x64x19x19,64x3x100,3x2x5001,3001x5x1,70x132x1}/ncx/{f32,f16,bf16-f32,f64}/{repeats,checked}
batch_norm_backward/{5x27x33,3001x5,70x132}/nxc/{f32,f16,bf16-f32,f64}/{repeats,checked}
layer_norm_backward/{3000x33,500x130,3x20001,4000x1}/{f32,bf16-f32}/{repeats,checked}

# Forward passes: shapes of every kind by every algorithm that can do them.
batch_norm_forward/{5x27x7,9x128x1,1x1x1,3x2x517,2x3x71x71,17x33x8,13x8x3}/ncx/running/{f32,f16-f16-f32,f16-f32,bf16,f64}/channels_first/{gpu,software,tiny}
batch_norm_forward/{1x32x30,5x27x7,17x33x9,13x8x3}/ncx/{f32,f16,bf16-f32,f64}/channels_last/{gpu,software,tiny}
batch_norm_forward/{1x30x32,9x128,1x1,517x2,71x71x3,33x301,999x5}/nxc/running/{f32,f16,f16-f32,bf16-bf16-f32,f64}/channels_last/{gpu,software,tiny}
batch_norm_forward/{1x32x31,9x128x1,9x6x20,17x36x8,5x12x10,3x4x84}/ncx/running/{f32,f16,bf16-f32,f64}/fused_channels_first/{gpu,software}
batch_norm_forward/{9x6x20,17x36x8,3x4x84}/ncx/{f32,f16}/fused_channels_first/software/cheap_barriers=1,fused_block=520
batch_norm_forward/{9x128,999x8,1x8,70x12,9x132}/nxc/running/{f32,f16,bf16-f32,f64}/fused_channels_last/{gpu,software}
batch_norm_forward/{6x5x8/params_6x1x8,6x5x7/params_6x1x7,3x4x5x37/params_3x1x5x1,3x4x5x6/params_1x4x1x6,2x3x1x2x3x2x3x2/params_2x1x1x2x1x2x1x2,60x50x16/params_60x1x16}/running/{f32,bf16-f32}/general/{gpu,software,tiny}
batch_norm_forward/{9/params_9,9/params_1,3x4x5/params_1x4x1,3x4x5/params_1x1x5,3x4x5/params_3x4x5}/running/{f32,bf16}
batch_norm_inference/{5x27x7,9x128x1,3x2x517,17x33x8}/ncx/{f32,f16,f16-f16-f32,bf16-f32,f64}/{channels_first,channels_last}/{gpu,software,tiny}
batch_norm_inference/{9x128,1x1,71x71x3,999x5}/nxc/{f32,f16,bf16-bf16-f32,f16-f32,f64}/channels_last/{gpu,software,tiny}
batch_norm_inference/{6x5x8/params_6x1x8,3x4x5x37/params_3x1x5x1,3x4x5x6/params_1x4x1x6,2x2x2x2x2x2x2x4/params_1x2x1x2x1x2x1x4}/{f32,bf16-f32}/general/{gpu,software,tiny}
{layer,rms}_norm_forward/{301x3,9x517,33x302,9x1,40x24}/{,residual}/{f32,f16,f16-f16-f32,bf16-f32,f64}/rows_read_twice/{gpu,software,tiny}
{layer,rms}_norm_forward/{23x250,301x3,9x517,40x24}/{,residual}/{f32,f64}/rows_in_registers/{gpu,software}
{layer,rms}_norm_forward/{23x250,9x518,40x24,70x2}/{,residual}/{f16,f16-f32,bf16-bf16-f32}/rows_in_registers/{gpu,software}
{layer,rms}_norm_forward/{6x2x8x33/axis_0,6x2x8x33/axis_1,7/axis_0,30x300}/{,no_gamma}/{,residual}/{,no_statistics}/{f32,bf16-f32}
{layer,rms}_norm_forward/{9x101,33x96}/{,residual}/f32/rows_in_registers/least_row_vec4s=2{,/subgroup_size=0}

# Options of forward passes.
batch_norm_forward/{4x6x20,5x33x27}/ncx/{,no_gamma}/{,no_beta}/{,running,running_unbiased,running=0,running=1}/f32{,/max_storage_buffers=4}
batch_norm_forward/{61x3,64x128}/nxc/{,no_gamma}/{,no_beta}/{,running,running_unbiased,running=0,running=1}/f32{,/max_storage_buffers=4}
batch_norm_inference/{5x33x27/ncx,61x3/nxc}/{,no_gamma}/{,no_beta}/{f32,f16}{,/max_storage_buffers=4}

# Sizes from practice, forward.
batch_norm_forward/{2x192x71x71,8x322x16x16,2x64x56x56,1x16x40x40x40,12x4x8x8,1x1024x28x17}/ncx/running/{f32,f16-f32,bf16}
batch_norm_forward/{2x71x71x192,8x16x16x322,2x56x56x64,12x8x8x4,70000x1,1x70000}/nxc/running/{f32,f16-f32,bf16}
{layer,rms}_norm_forward/{256x768,6x2x128x1024,2x100000,200000x3,257x768,3x20001}/{,residual}/{f32,f16-f32,bf16}

# Buffers, halves of forward passes.
batch_norm_forward/{3x5x7,4x3x8,4x6x20,1x13x513}/ncx/running/{f32,f16,bf16-f32,f64}/{exact,pooled}
batch_norm_forward/{61x3,9x7,9x12,5x4x7}/nxc/running/{f32,f16,bf16-f32,f64}/{exact,pooled}
batch_norm_inference/{3x5x7/ncx,9x7/nxc}/{f32,f16,bf16-f32,f64}/{exact,pooled}
{layer,rms}_norm_forward/{5x7,6x6,9x517,70x3,9x1,8x12}/residual/{f32,f16,bf16-f32}/{,rows_read_twice}/{exact,pooled}
batch_norm_forward/{7x5x27,7x5x20,7x4x3}/ncx/running_unbiased/{f32,f16,f16-f16-f32,bf16-f32,f64}/{halves,two_shards}
batch_norm_forward/{7x5,70x12,3x1}/nxc/running_unbiased/{f32,f16,f16-f16-f32,bf16-f32,f64}/{halves,two_shards}
batch_norm_forward/{7x5x27/ncx,70x12/nxc}/f32/{tiny_variance,large_mean,huge_mean,equal}/two_shards

# Extreme statistics with every algorithm, long sums.
batch_norm_forward/{4x9x50,1x3x1003}/ncx/{f32,f64}/{tiny_variance,large_mean,huge_mean,vast,equal}/channels_first/{gpu,tiny}
batch_norm_forward/{50x9,1003x4}/nxc/{f32,f64}/{tiny_variance,large_mean,huge_mean,vast,equal}/channels_last/{gpu,tiny}
batch_norm_forward/{4x12x50/ncx/fused_channels_first,50x8/nxc/fused_channels_last,6x50x8/params_6x1x8/general}/{f32,f64}/{tiny_variance,huge_mean,vast,equal}
layer_norm_forward/{9x200,9x203}/{,residual}/{f32,f64}/{tiny_variance,large_mean,huge_mean,vast,equal}/{rows_in_registers,rows_read_twice}
batch_norm_forward/{1x1x12000017/ncx,4000037x3/nxc}/f32/{huge_mean,alternating}/{gpu,software}
{layer,rms}_norm_forward/{3x4000037,4000037x3}/f32/{equal,alternating}
layer_norm_forward/{3x4000037,4000037x3}/f32/huge_mean

# Loops that are longer than a software driver lets an invocation make, forward.
batch_norm_forward/1x512x512x512x1/nxc/f16-f32/alike/halves
batch_norm_forward/{134217728x2,268435456x1}/nxc/f16-f32/alike/halves
batch_norm_forward/{4870804x1x31,50331648x1x3}/ncx/f16-f32/alike/halves
batch_norm_forward/643501x1x1/ncx/f32/alike/channels_first/tile=524288/halves
batch_norm_forward/{1x1x524288/ncx/f32/alike,1x1x327680/ncx/f32/alike/channels_last}/halves
batch_norm_forward/4194304x1/nxc/f32/alike/workgroup=4,channels_last_threads=4,channels_last_vec4s=1,busy_workgroups=16777216,tile=64/halves
batch_norm_inference/{1x512x512x512x1/nxc,50331648x1x3/ncx}/f16-f32/alike
{layer,rms}_norm_forward/{33554432x4/no_statistics,1x16777216,2097152x3}/f16-f32/alike

# Windows, forward.
batch_norm_forward/{6x33x729,2x5x30003,2x6x10012,60x62x44,500x7x40,1x701x200}/ncx/running/{f32,f64}/channels_first/software/window_unit=4096/windows=131072
batch_norm_forward/{50011x3,60001x4,2000x64}/nxc/running/{f32,f64}/channels_last/software/window_unit=4096/windows=131072
batch_norm_forward/1x701x200/ncx/f32/fused_channels_first/window_unit=4096,max_workgroups=255/windows=131072
batch_norm_inference/{6x33x729/ncx/channels_first,50011x3/nxc/channels_last}/{f32,f64}/software/window_unit=4096/windows=131072
{layer,rms}_norm_forward/60x20001/{f32,bf16-f32}/software/tile=1024,window_unit=16384/windows=1048576
{layer_norm_forward/3x100000/no_beta,rms_norm_forward/3x100000}/residual/no_gamma/{f32,bf16-f32}/software/tile=1024,window_unit=16384/windows=262144

# NaN and infinity, forward.
batch_norm_forward/{3x5x7,2x3x35,1x6x1,3x5x12}/ncx/running/{f32,f16,bf16-f32,f64}/channels_first/{nan,infinite,square_overflow}
batch_norm_forward/{3x7x5,9x7,5x12}/nxc/running/{f32,f16,bf16-f32,f64}/channels_last/{nan,infinite,square_overflow}
batch_norm_forward/{3x12x7,3x4x7}/ncx/running/{f32,f16,bf16-f32,f64}/fused_channels_first/{nan,infinite,square_overflow}
batch_norm_forward/{9x8,5x12}/nxc/running/{f32,f16,bf16-f32,f64}/fused_channels_last/{nan,infinite,square_overflow}
batch_norm_inference/{3x5x7/ncx,9x7/nxc}/{f32,f16,bf16-f32,f64}/{nan,infinite,square_overflow}
{layer,rms}_norm_forward/{8x12,3x66}/{,residual}/{f32,f16,bf16-f32,f64}/{rows_in_registers,rows_read_twice}/{nan,infinite,square_overflow}
{layer,rms}_norm_forward/5x7/{,residual}/{f32,f64}/{rows_in_registers,rows_read_twice}/{nan,infinite,square_overflow}

# The same bits again, and with shader checks, forward.
batch_norm_forward/{2x64x19x19,64x3x100,3x2x5001,70x132x1}/ncx/running/{f32,f16}/{repeats,checked}
batch_norm_forward/{5x27x33,3001x5,70x132}/nxc/running/{f32,bf16-f32}/{repeats,checked}
{layer,rms}_norm_forward/{3000x33,500x130,3x20001,4000x1}/residual/{f32,bf16-f32}/{repeats,checked}

# Group norm: shapes of every kind, types, choices.
group_norm_{backward,forward}/{3x8x40/groups_2,2x6x27/groups_2,2x12x517/groups_3,9x30x1/groups_5,5x12x3/groups_12,1x1x1/groups_1}/ncx/{f32,f16,f16-f16-f32,f16-f32,bf16,bf16-f32,f64}/channels_first/{gpu,software,tiny}
group_norm_{backward,forward}/{3x8x40/groups_4,2x6x27/groups_3,7x12x9/groups_3,3x4x91/groups_1,5x7x31/groups_7,9x15x6/groups_5}/ncx/{f32,f16,f16-f16-f32,bf16-f32,f64}/fused_channels_first/{gpu,software}
group_norm_{backward,forward}/{3x50x8/groups_2,2x37x28/groups_7,5x9x12/groups_1,3x7x5/groups_5,2x30x6/groups_3,4x400x3/groups_1,2x36x20/groups_4}/nxc/{f32,f16,f16-f16-f32,bf16-f32,f64}/general/{gpu,software,tiny}
group_norm_{backward,forward}/{1x70x12/groups_3,1x61x6/groups_2,3x1x12/groups_4}/nxc/{f32,f16,bf16-f32,f64}/channels_last/{gpu,software,tiny}
group_norm_inference/{3x8x40/groups_2/ncx,2x6x27/groups_3/ncx,2x37x28/groups_7/nxc,3x7x5/groups_5/nxc}/{,no_gamma}/{,no_beta}/{f32,f16,bf16-bf16-f32,f64}{,/max_storage_buffers=4}
instance_norm_{backward,forward}/{3x5x27,4x8x40,2x3x16x17,9x4x1}/ncx/{f32,f16,bf16-f32,f64}/{channels_first,fused_channels_first}/{gpu,software}
instance_norm_{backward,forward}/{3x50x8,2x9x5,2x6x7x12}/nxc/{f32,f16,bf16-f32,f64}/{gpu,software,tiny}
group_norm_backward/{4x6x20/ncx,5x6x27/ncx,3x20x12/nxc,2x9x6/nxc}/groups_{1,2,6}/{,frozen}/{,no_gamma}/{f32,f16,bf16-f32}
group_norm_forward/{4x6x20/ncx,5x6x27/ncx,3x20x12/nxc,2x9x6/nxc}/groups_{1,2,6}/{,no_gamma}/{,no_beta}/{f32,f16}{,/max_storage_buffers=4}
group_norm_{backward,forward}/{2x256x32x32/groups_32/ncx,4x64x56x56/groups_32/ncx,2x320x16x16/groups_32/ncx,2x32x32x256/groups_32/nxc}/{f32,f16-f32,bf16}
instance_norm_{backward,forward}/{2x64x64x64/ncx,2x64x64x32/nxc}/{f32,f16-f32,bf16}
group_norm_{backward,forward}/{3x6x7,4x6x20,2x6x513}/ncx/groups_3/{f32,f16,bf16-f32,f64}/{channels_first,fused_channels_first}/{exact,pooled}
group_norm_backward/{3x6x7,4x6x20,2x6x513}/ncx/groups_3/{f32,f16,bf16-f32,f64}/{channels_first,fused_channels_first}/{in_place,exact/in_place,pooled/in_place}
group_norm_{backward,forward}/{3x9x6,3x9x12}/nxc/groups_2/{f32,f16,bf16-f32,f64}/{exact,pooled}
group_norm_forward/{4x6x50/ncx/channels_first,4x6x50/ncx/fused_channels_first,4x50x12/nxc/general,4x51x6/nxc/general}/groups_3/{f32,f64}/{tiny_variance,large_mean,huge_mean,vast,equal}
group_norm_{backward,forward}/{1x300000x3,1x20000x64,2x40x60001}/ncx/groups_1/f32/equal/{gpu,software}
group_norm_{backward,forward}/{6x32x729,2x4x30003}/ncx/groups_4/{f32,f64}/channels_first/software/window_unit=4096/windows=131072
# Bindings that hold the workspace of all samples: with slices the parameters' sums are added in another order.
group_norm_{backward,forward}/500x8x40/ncx/groups_4/{f32/channels_first/software/window_unit=4096/windows=131072,f64/channels_first/software/window_unit=4096/windows=524288}
group_norm_{backward,forward}/{9x300x32,40x70x12,3x3000x32}/nxc/groups_4/{f32,f64}/general/software/window_unit=4096/windows=131072
group_norm_{backward,forward}/3x40000x6/nxc/groups_2/{f32,f64}/general/software/window_unit=16384/windows=524288
group_norm_{backward,forward}/{3x6x7,3x6x12}/ncx/groups_3/{f32,f16,bf16-f32,f64}/{channels_first,fused_channels_first}/{nan,infinite,square_overflow}
group_norm_{backward,forward}/{3x9x12,3x5x6}/nxc/groups_2/{f32,f16,bf16-f32,f64}/general/{nan,infinite,square_overflow}
group_norm_{backward,forward}/{2x64x400/ncx,3x200x64/nxc,3x201x6/nxc}/groups_2/{f32,f16}/{repeats,checked}

# Activations and residuals: shapes of every kind, types, choices; large tensors; windows.
batch_norm_backward/{3x8x40,4x6x20,5x33x27,61x3x3,2x3x1201}/ncx/{relu,relu/residual}/{f32,f16,f16-f16-f32,bf16-f32,f64}/channels_first/{gpu,software,tiny}
batch_norm_backward/{64x128,61x3,300x7}/nxc/{relu,relu/residual}/{f32,f16,bf16-f32,f64}/channels_last/{gpu,software,tiny}
batch_norm_backward/{4x12x20,1x301x7}/ncx/{relu,relu/residual}/{f32,f16,bf16-f32,f64}/fused_channels_first/{gpu,software}
batch_norm_backward/{64x128,70x12}/nxc/{relu,relu/residual}/{f32,f16,bf16-f32,f64}/fused_channels_last/{gpu,software}
batch_norm_backward/{6x5x8/params_6x1x8,6x5x7/params_6x1x7,3x4x5x37/params_3x1x5x1,3x4x5x6/params_1x4x1x6}/{relu,relu/residual}/{f32,bf16-f32}/general/{gpu,software,tiny}
batch_norm_backward/{2x64x56x56/ncx,2x56x56x64/nxc,8x512x7x7/ncx,1x16x40x40x40/ncx}/{relu,relu/residual,silu}/{f32,f16-f32}
batch_norm_backward/{7x5x27/ncx,7x12/nxc}/{relu,relu/residual}/{f32,bf16-f32,f64}/{halves,two_shards,in_place,repeats,checked}
batch_norm_backward/{3x5x7/ncx,5x12/nxc,9x7/nxc}/{relu,relu/residual}/{f16,bf16-f32,f64}/{nan,infinite,square_overflow}
batch_norm_backward/{6x33x729,2x5x30003,2x6x10012}/ncx/{relu,relu/residual}/{f32,f64}/channels_first/software/window_unit=4096/windows=131072
batch_norm_backward/{50011x3,60001x4,2000x64}/nxc/{relu,relu/residual}/{f32,f64}/channels_last/software/window_unit=4096/windows=131072
batch_norm_forward/{2x64x56x56/ncx,2x56x56x64/nxc,1x16x40x40x40/ncx}/{relu,silu,relu/residual}/{f32,f16-f32}
batch_norm_forward/{6x33x729/ncx,2x5x30003/ncx,50011x3/nxc,60001x4/nxc}/relu/residual/{f32,f16,f64}/{gpu,software}/window_unit=4096/windows=131072
batch_norm_forward/{3x8x40/ncx,5x33x27/ncx,61x3/nxc,64x128/nxc}/relu/residual/{f32,f16,bf16-f32,f64}/{gpu,software,tiny}
group_norm_{backward,forward}/{2x256x32x32/groups_32/ncx,2x32x32x256/groups_32/nxc,2x33x31x6/groups_2/nxc}/{relu,silu,relu/residual}/{f32,f16-f32}
group_norm_{backward,forward}/{9x300x32,40x70x12}/nxc/groups_4/{relu,relu/residual}/{f32,f64}/general/software/windows=131072
";

/// The list of cases: a selection that takes about a minute, or all if `full`.
pub fn cases(full: bool) -> Vec<Case> {
    let mut ids: Vec<_> = lines(DEFAULT).flat_map(each_choice).collect();
    if full {
        ids.extend(lines(DEFAULT).chain(lines(FULL)).flat_map(combinations));
    }
    let mut cases: Vec<Case> = Vec::new();
    let mut known = HashSet::new();
    for id in ids {
        // Every line parses: a test checks that.
        if let Ok(case) = id.parse::<Case>()
            && known.insert(case.to_string())
        {
            cases.push(case);
        }
    }
    cases
}

fn lines(list: &'static str) -> impl Iterator<Item = &'static str> {
    let lines = list.lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The pieces of a line with their alternatives; a fixed piece has one.
fn pieces(line: &str) -> Vec<Vec<&str>> {
    // Pieces outside and inside of braces alternate.
    let pieces = line.split(['{', '}']).enumerate();
    pieces
        .map(|(index, piece)| match index.is_multiple_of(2) {
            true => vec![piece],
            false => piece.split(',').collect(),
        })
        .collect()
}

/// An ID without empty parts.
fn id(parts: &str) -> String {
    let parts: Vec<_> = parts.split('/').filter(|part| !part.is_empty()).collect();
    parts.join("/")
}

/// IDs that use each alternative of a line at least once.
fn each_choice(line: &str) -> Vec<String> {
    let pieces = pieces(line);
    let most = pieces.iter().map(Vec::len).max().unwrap_or(0);
    let nth = |n| {
        pieces
            .iter()
            .filter_map(move |piece| piece.iter().cycle().nth(n).copied())
    };
    (0..most).map(|n| id(&nth(n).collect::<String>())).collect()
}

/// The IDs of all combinations of a line's alternatives.
fn combinations(line: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for piece in pieces(line) {
        let longer = all
            .iter()
            .flat_map(|before| piece.iter().map(move |choice| format!("{before}{choice}")));
        all = longer.collect();
    }
    all.iter().map(|parts| id(parts)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_activation_is_among_the_cases() {
        for (name, activation) in wgpu_norm::Activation::NAMES {
            let mut listed = cases(false).into_iter();
            let is_there = listed.any(|case| case.operation().epilogue.activation == *activation);
            assert!(is_there, "no case has {name}: add some to DEFAULT");
        }
    }

    #[test]
    fn every_line_is_read() {
        for id in lines(DEFAULT).chain(lines(FULL)).flat_map(combinations) {
            let case: Case = id.parse().unwrap();
            assert_eq!(case.to_string().parse::<Case>().unwrap(), case, "{id}");
        }
    }
}
