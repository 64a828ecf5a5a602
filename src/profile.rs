//! What the plan knows of an adapter: limits, abilities, and the sizes that suit it. All tuning is
//! here, as data.

use crate::{Algorithm, DType, Error};
use std::fmt;
use std::str::FromStr;

/// The environment variable that overrides an adapter's tuning.
const VARIABLE: &str = "WGPU_NORM_PROFILE";

/// Invocations of a workgroup that every kernel can do with.
pub(crate) const SMALLEST_WORKGROUP: u32 = 4;

/// Reals of workgroup memory that a kernel has for each invocation, at most.
pub(crate) const SHARED_REALS: u64 = 8;

/// An adapter as the plan sees it: plain data, so that making a plan touches no GPU.
///
/// ```
/// # pollster::block_on(async {
/// use wgpu_norm::{ContextOptions, DeviceOptions, Error, GpuContext, Profile};
///
/// let adapter = match ContextOptions::default().adapter().await {
///     Ok(adapter) => adapter,
///     Err(Error::NoAdapter { .. }) => return Ok(()), // a machine without any driver
///     Err(error) => return Err(error),
/// };
/// let mut profile = Profile::for_adapter(&adapter);
/// profile.tuning = profile.tuning.overridden("busy_workgroups=512")?;
/// let options = DeviceOptions {
///     profile: Some(profile),
///     ..DeviceOptions::default()
/// };
/// let gpu = GpuContext::from_adapter(&adapter, options).await?;
/// assert_eq!(gpu.profile().tuning.busy_workgroups, 512);
/// # Ok(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Profile {
    /// The adapter's name, for messages.
    pub adapter: String,
    /// Largest storage binding, in bytes.
    pub max_binding: u64,
    /// Largest buffer, in bytes.
    pub max_buffer: u64,
    /// Alignment of a storage binding's offset, in bytes.
    pub alignment: u64,
    /// Most workgroups along one dimension of a dispatch; 65535 at most.
    pub max_workgroups: u32,
    /// Largest number of invocations in a workgroup.
    pub max_invocations: u32,
    /// Storage buffers that a kernel may bind.
    pub max_storage_buffers: u32,
    /// Bytes of memory that a workgroup may share.
    pub max_workgroup_storage: u32,
    /// Invocations of every subgroup, where all have as many and shaders can use them; else 0.
    pub subgroup_size: u32,
    /// Whether shaders can unpack f16.
    pub f16: bool,
    /// Whether shaders can use f64.
    pub f64: bool,
    /// Whether shaders can use integers of 64 bits.
    pub int64: bool,
    /// Sizes that suit this kind of adapter.
    pub tuning: Tuning,
    /// The algorithm that every plan has to take, whether or not it is fast; an error
    /// ([`Error::Algorithm`]) where it cannot do the problem. For tests and measurements.
    pub algorithm: Option<Algorithm>,
}

/// Sizes that make the kernels fast on one kind of adapter; results agree up to rounding for all of
/// them. A *quad* is four neighbouring elements; a *run*, those of one channel at one index of N; a *row*, those
/// that layer norm normalizes together; *columns*, channels where they are the last axis, and the positions
/// in rows; a *window*, the part of a tensor that one dispatch binds. Fields come and go with the kernels: make one from a constant (`..Tuning::GPU`) or by
/// [`overridden`](Self::overridden), which the next version is likely to take too and which names a field's bounds
/// where a value is out of them.
///
/// As text, `key=value` pairs with the fields' names, separated by commas or line ends:
///
/// ```
/// use wgpu_norm::Tuning;
/// let tuning = Tuning::GPU.overridden("runs_workgroup=128, busy_workgroups=512")?;
/// assert_eq!(tuning.runs_workgroup, 128);
/// assert_eq!(tuning.to_string().parse::<Tuning>()?, tuning);
/// # Ok::<(), wgpu_norm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Invocations of a workgroup in the kernels over rows (layer norm) and, but for the fused one, over
    /// runs. See also `fused_workgroup`. A power of two.
    pub runs_workgroup: u32,
    /// Invocations of a workgroup in the kernels over columns. A power of two.
    pub columns_workgroup: u32,
    /// How many of `columns_workgroup` stand side by side in a row. A power of two.
    pub column_lanes: u32,
    /// Most quads of a row, 1 to 16, that an invocation of the kernels over columns owns, or else what one load
    /// moves.
    pub column_quads: u32,
    /// Fewest quads of a run for each invocation of the kernels over runs: only a longer run is shared by
    /// more.
    pub lane_quads: u32,
    /// Fewest quads of a row held in registers for each invocation: only a longer row is shared by more. But no
    /// more than a subgroup share a row that one can hold.
    pub row_lane_quads: u32,
    /// Quads of a row that an invocation of the kernels over rows (layer norm) holds in registers, at
    /// most; up to 32. Of rows that registers do not hold it takes up to 8 at a time.
    pub row_quads: u32,
    /// Invocations side by side whose sums of a row that registers do not hold are added up, behind barriers, before
    /// they are written, where no subgroup can do that. A power of two.
    pub row_joined: u32,
    /// Fewest rows that an invocation of the kernels over rows walks, though never more than 192, a window or
    /// `walk_pages` allow. Each walk writes a partial sum for each column.
    pub row_walk: u32,
    /// Rows from which on such a walk's sums of columns are written by each invocation, one for as many elements;
    /// else a workgroup adds its own up first, behind barriers. At least 4.
    pub long_walk: u32,
    /// Invocations of a workgroup that adds partial sums. A power of two, at least 4.
    pub finish_workgroup: u32,
    /// Fewest of a channel's partial sums for each invocation that adds them, in fours: only more are shared by
    /// more.
    pub finish_lane_quads: u32,
    /// Workgroups that keep the adapter busy: reductions are split until there are so many.
    pub busy_workgroups: u32,
    /// Elements below which splitting a channel further does not pay.
    pub min_split: u32,
    /// Runs of a channel, or pieces of rows that are cut, which a workgroup takes one after another, at most, where
    /// they are a page of memory or more apart: a processor prefetches from so many pages of each tensor at a time.
    /// Batch norm's reduction by columns walks more. Comes before `min_split` and `row_walk`.
    pub walk_pages: u32,
    /// Elements of a tensor up to which it is small: most of its time is that of dispatches, so that a single one
    /// is best.
    pub small_tensor: u32,
    /// Elements of a workgroup's tile in the elementwise kernels.
    pub apply_tile: u32,
    /// 1 where elementwise kernels begin with the tiles that the reduction read last, which a large cache
    /// may still hold; else 0.
    pub apply_backwards: u32,
    /// Runs shorter than this are read as columns, unless one dispatch does it all: of a small tensor, or of runs of 8
    /// elements and more that are channels of their own.
    pub short_run: u32,
    /// Invocations of a workgroup in the fused kernel over runs, which computes the whole gradient of a block
    /// of four channels or more in one dispatch, and over rows that registers hold, where `runs_workgroup` has too
    /// few. A power of two.
    pub fused_workgroup: u32,
    /// Elements of a tensor with several outer indices up to which the fused kernel over runs may take it. It
    /// binds such a tensor at once: far fewer than a binding holds.
    pub fused_tensor: u32,
    /// Elements of a block up to which the fused kernel over runs takes it whole: its second reading is
    /// expected to come from a cache.
    pub fused_block: u32,
    /// Elements of the channels that the fused kernel over runs takes at a time, each turn with both
    /// readings, where a block is more than `fused_block` and runs begin at multiples of four elements; 0
    /// where the barriers of turns cost more than they save. Below a quarter of `fused_block` it has no
    /// effect.
    pub fused_turn: u32,
    /// Blocks below which the fused kernel over runs would leave the adapter idle; it takes small tensors all the
    /// same. The fused kernel over columns has fewer invocations side by side until there are as many workgroups.
    pub fused_blocks: u32,
    /// Quads that an invocation of the fused kernel over runs adds one after another, at most; up to 256.
    /// Where a load takes long to arrive, many of them take longer than more dispatches.
    pub fused_adds: u32,
    /// Elements of a workgroup's columns, by loads of a quad, up to which the fused kernel over columns takes a
    /// small tensor with the channels last.
    pub fused_columns: u32,
    /// Bits of the words that tensors and the workspace are read and written by, where the adapter has such
    /// integers: 32, which wide loads join, or 64 for a driver that moves words one by one.
    pub word_bits: u32,
    /// Bytes, 8, 16 or 32, up to which a load moves eight elements instead of four, where a tensor, in
    /// layer norm each row, is made of so many, and so is each run that a pass with constant statistics writes. Loads
    /// of 32-bit words are of at most 16.
    pub load_bytes: u32,
    /// Elements between two neighbouring places where a tensor may be cut into windows, at most, as
    /// far as geometry has a choice. Far fewer than a binding holds.
    pub window_unit: u32,
}

impl Tuning {
    /// For drivers that run shaders on the CPU: narrow workgroups and long loops. The same with AVX-512 is
    /// [`SOFTWARE_AVX512`](Self::SOFTWARE_AVX512).
    pub const SOFTWARE: Self = Self {
        runs_workgroup: 8,
        columns_workgroup: 8,
        column_lanes: 8,
        column_quads: 4,
        lane_quads: 16,
        row_lane_quads: 8,
        row_quads: 32,
        row_joined: 1,
        row_walk: 8,
        // Those sums are less than a tenth of the bytes moved, and barriers cost more (measured with 32 columns:
        // 1.2 to 1.6 times the time), and up to minutes to compile.
        long_walk: 8,
        finish_workgroup: 8,
        finish_lane_quads: 8,
        busy_workgroups: 64,
        min_split: 16384,
        walk_pages: 16, // of two tensors: 32 at a time
        small_tensor: 1 << 17,
        apply_tile: 16384,
        apply_backwards: 0,
        short_run: 32,
        fused_workgroup: 8,
        fused_tensor: 1 << 19,
        fused_block: 8192,
        fused_turn: 0,
        fused_blocks: 4,
        fused_adds: 256,
        fused_columns: 4096,
        word_bits: 64,
        load_bytes: 32,
        window_unit: 1 << 23, // 32 MiB of f32
    };

    /// For drivers that run shaders on a CPU with AVX-512: kernels over columns own more of a row, which took 0.6 to 1.0
    /// of the time on a Xeon, but up to 1.5 times as long on an EPYC with AVX2.
    pub const SOFTWARE_AVX512: Self = Self {
        column_quads: 8,
        ..Self::SOFTWARE
    };

    /// For GPUs: wide workgroups, enough of them to fill every compute unit. Reasoned, not measured: no GPU has
    /// been at hand yet. `wgpu-norm bench --tune` searches for better ones.
    pub const GPU: Self = Self {
        runs_workgroup: 256,
        columns_workgroup: 256,
        column_lanes: 32,
        column_quads: 1,
        lane_quads: 1,
        row_lane_quads: 3,
        row_quads: 4,
        row_joined: 16,
        row_walk: 1,
        long_walk: u32::MAX,
        finish_workgroup: 256,
        finish_lane_quads: 1,
        busy_workgroups: 2048,
        min_split: 4096,
        walk_pages: u32::MAX,
        small_tensor: 1 << 18,
        apply_tile: 4096,
        apply_backwards: 1,
        short_run: 32,
        fused_workgroup: 512,
        fused_tensor: 1 << 24,
        fused_block: 16384,
        fused_turn: 16384,
        fused_blocks: 96,
        fused_adds: 16,
        fused_columns: 8192,
        word_bits: 32,
        load_bytes: 16,
        window_unit: 1 << 23, // 32 MiB of f32
    };
}

/// What a field of [`Tuning`] may be.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    min: u32,
    max: u32,
    power_of_two: bool,
}

impl Bounds {
    const fn any(min: u32, max: u32) -> Self {
        Self {
            min,
            max,
            power_of_two: false,
        }
    }

    const fn power_of_two(min: u32, max: u32) -> Self {
        Self {
            min,
            max,
            power_of_two: true,
        }
    }

    fn allow(self, value: u32) -> bool {
        (self.min..=self.max).contains(&value) && (!self.power_of_two || value.is_power_of_two())
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.power_of_two {
            true => "a power of two",
            false => "a whole number",
        };
        write!(f, "{kind} from {} to {}", self.min, self.max)
    }
}

/// A field of [`Tuning`] by its name.
type Field<'a> = (&'static str, Bounds, &'a mut u32);

impl Tuning {
    /// All fields, so that reading, checking and printing cannot disagree.
    fn fields(&mut self) -> [Field<'_>; 29] {
        let workgroup = Bounds::power_of_two(SMALLEST_WORKGROUP, 1024);
        // Wide bounds: what is slow is the user's to find out, what overflows is not.
        let many = Bounds::any(1, 1 << 24);
        let all = Bounds::any(0, u32::MAX);
        [
            ("runs_workgroup", workgroup, &mut self.runs_workgroup),
            ("columns_workgroup", workgroup, &mut self.columns_workgroup),
            (
                "column_lanes",
                Bounds::power_of_two(1, 1024),
                &mut self.column_lanes,
            ),
            ("column_quads", Bounds::any(1, 16), &mut self.column_quads),
            ("lane_quads", many, &mut self.lane_quads),
            ("row_lane_quads", many, &mut self.row_lane_quads),
            ("row_quads", Bounds::any(1, 32), &mut self.row_quads),
            (
                "row_joined",
                Bounds::power_of_two(1, 1024),
                &mut self.row_joined,
            ),
            ("row_walk", many, &mut self.row_walk),
            ("long_walk", Bounds::any(4, u32::MAX), &mut self.long_walk),
            ("finish_workgroup", workgroup, &mut self.finish_workgroup),
            ("finish_lane_quads", many, &mut self.finish_lane_quads),
            ("busy_workgroups", many, &mut self.busy_workgroups),
            ("min_split", many, &mut self.min_split),
            ("walk_pages", Bounds::any(1, u32::MAX), &mut self.walk_pages),
            ("small_tensor", all, &mut self.small_tensor),
            ("apply_tile", Bounds::any(64, 1 << 20), &mut self.apply_tile),
            (
                "apply_backwards",
                Bounds::any(0, 1),
                &mut self.apply_backwards,
            ),
            ("short_run", all, &mut self.short_run),
            ("fused_workgroup", workgroup, &mut self.fused_workgroup),
            (
                "fused_tensor",
                Bounds::any(0, 1 << 24),
                &mut self.fused_tensor,
            ),
            ("fused_block", all, &mut self.fused_block),
            ("fused_turn", all, &mut self.fused_turn),
            ("fused_blocks", all, &mut self.fused_blocks),
            ("fused_adds", Bounds::any(1, 256), &mut self.fused_adds),
            ("fused_columns", all, &mut self.fused_columns),
            (
                "word_bits",
                Bounds::power_of_two(32, 64),
                &mut self.word_bits,
            ),
            (
                "load_bytes",
                Bounds::power_of_two(8, 32),
                &mut self.load_bytes,
            ),
            (
                "window_unit",
                Bounds::any(256, 1 << 24),
                &mut self.window_unit,
            ),
        ]
    }

    /// This tuning with every field in its bounds: kernels rely on them.
    pub(crate) fn within_bounds(mut self) -> Self {
        for (_, bounds, value) in self.fields() {
            *value = (*value).clamp(bounds.min, bounds.max);
            if bounds.power_of_two {
                *value = 1 << value.ilog2();
            }
        }
        self
    }

    /// This tuning with some fields set as the text says.
    ///
    /// # Errors
    ///
    /// [`Error::Tuning`] for a pair without `=`, an unknown or repeated name, a value out of bounds.
    pub fn overridden(self, text: &str) -> Result<Self, Error> {
        let mut tuning = self;
        tuning.set(text)?;
        Ok(tuning)
    }

    /// Sets fields and gives their names.
    fn set(&mut self, text: &str) -> Result<Vec<&'static str>, Error> {
        let mut set = Vec::new();
        let pairs = text.split([',', '\n']).map(str::trim);
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let refused = |key: &str, expected: String, got: &str| Error::Tuning {
                key: key.to_owned(),
                expected,
                got: got.to_owned(),
            };
            let Some((key, value)) = pair.split_once('=') else {
                return Err(refused(pair, "key=value".to_owned(), pair));
            };
            let (key, value) = (key.trim(), value.trim());
            let mut fields = self.fields();
            let names = fields.each_ref().map(|(name, ..)| *name);
            let Some((name, bounds, field)) = fields.iter_mut().find(|(name, ..)| *name == key)
            else {
                return Err(refused(key, format!("one of {}", names.join(" ")), key));
            };
            if set.contains(name) {
                return Err(refused(key, "a key once".to_owned(), "it again"));
            }
            match value.parse() {
                Ok(number) if bounds.allow(number) => **field = number,
                _ => return Err(refused(key, bounds.to_string(), value)),
            }
            set.push(*name);
        }
        Ok(set)
    }
}

/// Every field, in the form that [`Tuning::overridden`] reads.
impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut copy = *self;
        let pairs = copy
            .fields()
            .map(|(name, _, value)| format!("{name}={value}"));
        f.write_str(&pairs.join(","))
    }
}

/// From a text that sets every field that this version has.
impl FromStr for Tuning {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut tuning = Self::GPU;
        let set = tuning.set(text)?;
        let missing = tuning
            .fields()
            .map(|(name, ..)| name)
            .into_iter()
            .find(|name| !set.contains(name));
        match missing {
            None => Ok(tuning),
            Some(name) => Err(Error::Tuning {
                key: name.to_owned(),
                expected: "a value".to_owned(),
                got: "none".to_owned(),
            }),
        }
    }
}

/// Whether this processor, which a software adapter runs shaders on, has AVX-512.
fn has_avx512() -> bool {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    return std::arch::is_x86_feature_detected!("avx512f");
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64")))]
    return false;
}

impl Profile {
    /// The profile of a device.
    pub fn new(device: &wgpu::Device) -> Self {
        Self::from_parts(device.adapter_info(), device.limits(), device.features())
    }

    /// The profile of a device that has all that the adapter allows, as those of
    /// [`GpuContext::new`](crate::GpuContext::new) have.
    pub fn for_adapter(adapter: &wgpu::Adapter) -> Self {
        let flags = adapter.get_downlevel_capabilities().flags;
        Self {
            f16: flags.contains(wgpu::DownlevelFlags::SHADER_F16_IN_F32),
            ..Self::from_parts(adapter.get_info(), adapter.limits(), adapter.features())
        }
    }

    fn from_parts(info: wgpu::AdapterInfo, limits: wgpu::Limits, features: wgpu::Features) -> Self {
        let tuning = match info.device_type {
            wgpu::DeviceType::Cpu if has_avx512() => Tuning::SOFTWARE_AVX512,
            wgpu::DeviceType::Cpu => Tuning::SOFTWARE,
            _ => Tuning::GPU,
        };
        // A browser's compiler wants a line for subgroups that naga refuses.
        let subgroups = features.contains(wgpu::Features::SUBGROUP)
            && info.subgroup_min_size == info.subgroup_max_size
            && info.backend != wgpu::Backend::BrowserWebGpu;
        let subgroup_size = if subgroups { info.subgroup_max_size } else { 0 };
        Self {
            adapter: info.name,
            subgroup_size,
            // Byte offsets within a binding fit 32 bits, and so do all that kernels derive from them.
            max_binding: limits
                .max_storage_buffer_binding_size
                .min(u64::from(u32::MAX)),
            max_buffer: limits.max_buffer_size,
            // Quads of f64 and packets of f32 take 32 bytes; WebGPU's smallest alignment is no less.
            alignment: u64::from(limits.min_storage_buffer_offset_alignment).max(32),
            // Folded into rows of more, the last row's surplus might wrap in 32 bits.
            max_workgroups: limits.max_compute_workgroups_per_dimension.min(65535),
            max_invocations: limits
                .max_compute_invocations_per_workgroup
                .min(limits.max_compute_workgroup_size_x),
            max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
            max_workgroup_storage: limits.max_compute_workgroup_storage_size,
            // A device does not tell: wgpu finds out when it compiles a kernel.
            f16: true,
            f64: features.contains(wgpu::Features::SHADER_F64),
            int64: features.contains(wgpu::Features::SHADER_INT64),
            tuning,
            algorithm: None,
        }
    }

    /// This profile within what the device allows, which kernels without checks rely on.
    pub(crate) fn within(self, device: &wgpu::Device) -> Self {
        let allowed = Self::new(device);
        Self {
            max_binding: self.max_binding.min(allowed.max_binding),
            max_buffer: self.max_buffer.min(allowed.max_buffer),
            // 64 KiB are more than any adapter needs; a device may have been opened with more.
            alignment: self
                .alignment
                .min(1 << 16)
                .max(allowed.alignment)
                .next_power_of_two(),
            max_workgroups: self.max_workgroups.min(allowed.max_workgroups),
            max_invocations: self.max_invocations.min(allowed.max_invocations),
            max_storage_buffers: self.max_storage_buffers.min(allowed.max_storage_buffers),
            max_workgroup_storage: self
                .max_workgroup_storage
                .min(allowed.max_workgroup_storage),
            subgroup_size: match self.subgroup_size == allowed.subgroup_size {
                true => allowed.subgroup_size,
                false => 0,
            },
            f64: self.f64 && allowed.f64,
            int64: self.int64 && allowed.int64,
            tuning: self.tuning.within_bounds(),
            ..self
        }
    }

    /// This profile with its tuning overridden by the environment variable `WGPU_NORM_PROFILE`, if it
    /// is set, as [`Tuning::overridden`] reads it.
    ///
    /// # Errors
    ///
    /// [`Error::Tuning`], naming what is wrong with the variable.
    pub fn with_env(mut self) -> Result<Self, Error> {
        match std::env::var(VARIABLE) {
            Ok(text) => {
                let named = |error| match error {
                    Error::Tuning { key, expected, got } => Error::Tuning {
                        key: format!("{VARIABLE}: {key}"),
                        expected,
                        got,
                    },
                    error => error,
                };
                self.tuning = self.tuning.overridden(&text).map_err(named)?;
            }
            Err(std::env::VarError::NotPresent) => {}
            Err(std::env::VarError::NotUnicode(text)) => {
                return Err(Error::Tuning {
                    key: VARIABLE.to_owned(),
                    expected: "key=value,key=value".to_owned(),
                    got: format!("{text:?}"),
                });
            }
        }
        Ok(self)
    }

    /// Whether kernels for this element type run on the adapter.
    pub fn supports(&self, dtype: DType) -> bool {
        match dtype {
            DType::F64 => self.f64,
            DType::F16 => self.f16,
            DType::F32 | DType::Bf16 => true,
        }
    }

    pub(crate) fn check_dtypes(&self, data: DType, params: DType) -> Result<(), Error> {
        if !data.accepts_params(params) {
            return Err(Error::ParamDType { data, params });
        }
        if !self.supports(data) {
            return Err(Error::UnsupportedDType {
                dtype: data,
                needs: match data {
                    DType::F16 => "SHADER_F16_IN_F32",
                    _ => "SHADER_F64",
                },
                adapter: self.adapter.clone(),
            });
        }
        Ok(())
    }

    /// Bits of the words that kernels read and write data by.
    pub(crate) fn word_bits(&self) -> u32 {
        match self.int64 {
            true => self.tuning.word_bits,
            false => 32,
        }
    }

    /// A workgroup size of the tuning, within the adapter's limits.
    pub(crate) fn workgroup(&self, size: u32) -> u32 {
        // Of any type's kernels, so that workgroups are alike whatever the type.
        let shared = u64::from(self.max_workgroup_storage) / (SHARED_REALS * DType::F64.size());
        let limit = u64::from(self.max_invocations)
            .min(shared)
            .max(u64::from(SMALLEST_WORKGROUP)) as u32;
        let limit = 1 << limit.ilog2();
        size.clamp(SMALLEST_WORKGROUP, limit)
            .next_power_of_two()
            .min(limit)
    }
}

#[cfg(test)]
impl Tuning {
    /// This tuning with about a third of its fields changed to anything that they may be; `below` gives random numbers
    /// below its argument.
    pub(crate) fn changed(mut self, mut below: impl FnMut(u64) -> u64) -> Self {
        for (_, bounds, value) in self.fields() {
            let span = u64::from(bounds.max - bounds.min);
            let bits = below(32);
            *value = match below(8) {
                0 => bounds.min,
                1 => bounds.max,
                2 => bounds.min + below(span + 1) as u32,
                // Small numbers as often as large ones.
                3 => bounds.min + below((2 << bits).min(span + 1)) as u32,
                _ => *value,
            };
        }
        self.within_bounds()
    }
}

#[cfg(test)]
impl Profile {
    /// A GPU with WebGPU's default limits.
    pub(crate) fn usual() -> Self {
        Self {
            adapter: String::new(),
            max_binding: 1 << 27,
            max_buffer: 1 << 28,
            alignment: 256,
            max_workgroups: 65535,
            max_invocations: 256,
            max_storage_buffers: 8,
            max_workgroup_storage: 16384,
            subgroup_size: 0,
            f16: true,
            f64: false,
            int64: false,
            tuning: Tuning::GPU,
            algorithm: None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_tuning_reads_as_it_prints() {
        for tuning in [Tuning::SOFTWARE, Tuning::SOFTWARE_AVX512, Tuning::GPU] {
            let text = tuning.to_string();
            assert_eq!(text.parse::<Tuning>().unwrap(), tuning, "{text}");
            // Debug prints every field there is.
            let debug = format!("{tuning:?}");
            assert_eq!(text.matches('=').count(), debug.matches(": ").count());
        }
        let spaced = Tuning::GPU.overridden("\n short_run = 0 ,\nmin_split=7\n\n");
        let want = Tuning {
            short_run: 0,
            min_split: 7,
            ..Tuning::GPU
        };
        assert_eq!(spaced.unwrap(), want);
        assert_eq!(Tuning::GPU.overridden("").unwrap(), Tuning::GPU);
    }

    #[test]
    fn what_is_wrong_with_a_text_is_named() {
        let refused = |text: &str| Tuning::GPU.overridden(text).unwrap_err().to_string();
        for (text, words) in [
            ("runs_workgroup", vec!["key=value"]),
            ("lanes=4", vec!["lanes", "one of runs_workgroup"]),
            (
                "runs_workgroup=12",
                vec!["runs_workgroup", "power of two", "12"],
            ),
            ("runs_workgroup=2048", vec!["from 4 to 1024", "2048"]),
            ("min_split=0", vec!["min_split", "from 1", "got 0"]),
            ("min_split=-1", vec!["got -1"]),
            ("min_split=4294967296", vec!["got 4294967296"]),
            ("min_split=", vec!["min_split", "got "]),
            ("min_split=3,min_split=3", vec!["min_split", "once"]),
        ] {
            let message = refused(text);
            for word in words {
                assert!(message.contains(word), "{text}: {message}");
            }
        }
        let missing = "runs_workgroup=8".parse::<Tuning>().unwrap_err();
        assert!(matches!(missing, Error::Tuning { key, .. } if key == "columns_workgroup"));
    }
}
