//! The sizes that make kernels fast on one kind of adapter, as data and as text.

use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// The smallest workgroup. Every kernel works with it.
pub(crate) const SMALLEST_WORKGROUP: u32 = 4;

/// The most vec4s of a row that an invocation holds in registers.
pub(crate) const MOST_ROW_VEC4S: u32 = 32;

/// Sizes that make the kernels fast on one kind of adapter. Results agree up to rounding for all sizes. What is said of
/// layer norm holds for RMS norm too.
///
/// Fields come and go with the kernels. So make a tuning from a constant (`..Tuning::GPU`), or with
/// [`overridden`](Self::overridden): the next version is likely to accept the same text, and its errors name the bounds
/// of a field.
///
/// As text, a tuning is a list of `key=value` pairs with the fields' names, separated by commas or line ends:
///
/// ```
/// use wgpu_norm::Tuning;
/// let tuning = Tuning::GPU.overridden("workgroup=128, busy_workgroups=512")?;
/// assert_eq!(tuning.workgroup, 128);
/// assert_eq!(tuning.to_string().parse::<Tuning>()?, tuning);
/// # Ok::<(), wgpu_norm::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Invocations of a workgroup. A power of two.
    pub workgroup: u32,
    /// Invocations of a workgroup of a fused kernel, which computes the whole gradient in one dispatch: channels first,
    /// and rows that do not fit in the registers of `workgroup` invocations. A power of two.
    pub fused_workgroup: u32,
    /// 1 if a barrier costs little, as on a GPU: invocations add up their sums before they write them, and a fused
    /// kernel processes a block of channels in turns. 0 if it is expensive: a driver for the CPU keeps every register
    /// of a workgroup in memory across a barrier, and can take minutes to compile one.
    pub cheap_barriers: u32,
    /// Channels last and norms over columns: invocations of a workgroup that are side by side in a row. A power of two.
    pub channels_last_threads: u32,
    /// Channels last: the most vec4s of a row that an invocation owns, 1 to 16; but at least as many as one load moves.
    /// Norms over columns: twice as many.
    pub channels_last_vec4s: u32,
    /// Channels first: the fewest vec4s of a plane for one invocation. Only a longer plane is shared by more
    /// invocations. The same holds for partial sums, four of which count as a vec4.
    pub channels_first_vec4s: u32,
    /// Layer norm: the fewest vec4s of a row in registers for one invocation. Only a longer row is shared by more
    /// invocations. A row that fits in a subgroup is not shared by more than a subgroup.
    pub least_row_vec4s: u32,
    /// Layer norm: the most vec4s of a row that an invocation of the gradient holds in registers, up to 32. A forward
    /// pass without a residual after the layer holds twice as many, four times as many if that lets a subgroup hold the
    /// row, also up to 32; norms over columns hold twice as many. If a row does not fit in registers, an invocation
    /// processes up to 8 at a time.
    pub row_vec4s: u32,
    /// Layer norm: the fewest rows that an invocation walks, but never more than 192, or than a window or
    /// `prefetched_pages` allows. Each walk writes a partial sum for each column.
    pub row_walk: u32,
    /// Channels last and norms over columns: the most loads of f32 that an invocation of a reduction has under way before
    /// it uses the first, 1 to 8; channels last in 16 bits, where fewer workgroups share the work, twice as many.
    pub loads_at_once: u32,
    /// The number of workgroups that keeps the adapter busy: reductions are split until there are as many. Channels
    /// last needs half as many for f32 and a quarter for 16 bits, but at least 64 unless `busy_workgroups` itself is
    /// lower.
    pub busy_workgroups: u32,
    /// Elements of a workgroup's tile in an elementwise kernel. In a reduction, the number of elements of a workgroup
    /// below which further splitting is not worthwhile.
    pub tile: u32,
    /// The most pieces of a channel or of rows, a page of memory or more apart, that a workgroup processes one after
    /// another: a processor prefetches from this many pages of each tensor at a time. Takes precedence over `tile` and
    /// `row_walk`. Batch norm's channels-last reduction walks more.
    pub prefetched_pages: u32,
    /// The most elements of a small tensor. Most of its time is spent on dispatches, so a single one is best.
    pub small_tensor: u32,
    /// The most elements of a workgroup's channels in a fused kernel: its second reading is expected to come from a
    /// cache.
    pub fused_block: u32,
    /// The fewest workgroups of a fused kernel: with fewer it would leave the adapter idle. A GPU needs more of them where
    /// an invocation walks more than eight vec4s. Small tensors use it all
    /// the same; the channels-last kernel then has fewer invocations side by side, and so more workgroups.
    pub fused_blocks: u32,
    /// The most vec4s that an invocation of the fused channels-first kernel adds one after another, up to 256. If loads
    /// are slow to arrive, many of them take longer than more dispatches.
    pub fused_adds: u32,
}

impl Tuning {
    /// For drivers that run shaders on the CPU: narrow workgroups and long loops.
    pub const SOFTWARE: Self = Self {
        workgroup: 8,
        fused_workgroup: 8,
        cheap_barriers: 0,
        channels_last_threads: 8,
        channels_last_vec4s: 4,
        channels_first_vec4s: 16,
        least_row_vec4s: 8,
        row_vec4s: 32,
        row_walk: 8,
        loads_at_once: 1,
        busy_workgroups: 64,
        tile: 16384,
        prefetched_pages: 16, // of two tensors: 32 at a time
        small_tensor: 1 << 17,
        fused_block: 8192,
        fused_blocks: 4,
        fused_adds: 256,
    };

    /// For GPUs: wide workgroups, enough of them to fill every compute unit. The values are reasoned, and were compared
    /// with others on one GPU, an NVIDIA H200. `wgpu-norm bench --tune` searches for better ones on yours.
    pub const GPU: Self = Self {
        workgroup: 256,
        fused_workgroup: 512,
        cheap_barriers: 1,
        channels_last_threads: 32,
        channels_last_vec4s: 1,
        channels_first_vec4s: 1,
        least_row_vec4s: 3,
        row_vec4s: 4,
        row_walk: 1,
        loads_at_once: 4,
        busy_workgroups: 1024,
        tile: 4096,
        prefetched_pages: u32::MAX,
        small_tensor: 1 << 18,
        fused_block: 16384,
        fused_blocks: 96,
        fused_adds: 16,
    };

    /// For a driver that runs shaders on this machine's CPU: [`SOFTWARE`](Self::SOFTWARE), with more of a row for each
    /// invocation if the CPU has AVX-512.
    pub fn for_cpu() -> Self {
        match has_avx512() {
            // Kernels that own more of a row took 0.6 to 1.0 times as long on a Xeon with AVX-512, and up to 1.5 times
            // as long on an EPYC without.
            true => Self {
                channels_last_vec4s: 8,
                ..Self::SOFTWARE
            },
            false => Self::SOFTWARE,
        }
    }

    /// For an adapter of this kind.
    pub(crate) fn for_device(kind: wgpu::DeviceType) -> Self {
        match kind {
            wgpu::DeviceType::Cpu => Self::for_cpu(),
            _ => Self::GPU,
        }
    }
}

/// The values that a field of [`Tuning`] may have.
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
        let kind = if self.power_of_two {
            "a power of two"
        } else {
            "a whole number"
        };
        write!(f, "{kind} from {} to {}", self.min, self.max)
    }
}

/// A field of [`Tuning`] by its name.
type Field<'a> = (&'static str, Bounds, &'a mut u32);

impl Tuning {
    /// All fields in one place, so that reading, checking and printing cannot disagree.
    fn fields(&mut self) -> [Field<'_>; 17] {
        let workgroup = Bounds::power_of_two(SMALLEST_WORKGROUP, 1024);
        // The bounds are wide: they prevent overflow, not slowness.
        let many = Bounds::any(1, 1 << 24);
        let all = Bounds::any(0, u32::MAX);
        [
            ("workgroup", workgroup, &mut self.workgroup),
            ("fused_workgroup", workgroup, &mut self.fused_workgroup),
            (
                "cheap_barriers",
                Bounds::any(0, 1),
                &mut self.cheap_barriers,
            ),
            (
                "channels_last_threads",
                Bounds::power_of_two(1, 1024),
                &mut self.channels_last_threads,
            ),
            (
                "channels_last_vec4s",
                Bounds::any(1, 16),
                &mut self.channels_last_vec4s,
            ),
            ("channels_first_vec4s", many, &mut self.channels_first_vec4s),
            ("least_row_vec4s", many, &mut self.least_row_vec4s),
            (
                "row_vec4s",
                Bounds::any(1, MOST_ROW_VEC4S),
                &mut self.row_vec4s,
            ),
            ("row_walk", many, &mut self.row_walk),
            ("loads_at_once", Bounds::any(1, 8), &mut self.loads_at_once),
            ("busy_workgroups", many, &mut self.busy_workgroups),
            ("tile", Bounds::any(64, 1 << 20), &mut self.tile),
            (
                "prefetched_pages",
                Bounds::any(1, u32::MAX),
                &mut self.prefetched_pages,
            ),
            ("small_tensor", all, &mut self.small_tensor),
            ("fused_block", all, &mut self.fused_block),
            ("fused_blocks", all, &mut self.fused_blocks),
            ("fused_adds", Bounds::any(1, 256), &mut self.fused_adds),
        ]
    }

    /// This tuning with every field in its bounds, which kernels rely on.
    pub(crate) fn within_bounds(mut self) -> Self {
        for (_, bounds, value) in self.fields() {
            *value = (*value).clamp(bounds.min, bounds.max);
            if bounds.power_of_two {
                *value = 1 << value.ilog2();
            }
        }
        self
    }

    /// This tuning with some fields set by the text.
    ///
    /// # Errors
    ///
    /// [`Error::Tuning`] for a pair without `=`, an unknown or repeated name, a value out of bounds.
    pub fn overridden(self, text: &str) -> Result<Self, Error> {
        let mut tuning = self;
        tuning.set(text)?;
        Ok(tuning)
    }

    /// Sets fields and returns their names.
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
                return Err(refused(key, "each key once".to_owned(), "it again"));
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

/// Parses a text that sets every field of this version.
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

/// Whether this processor, on which a software adapter runs shaders, has AVX-512.
fn has_avx512() -> bool {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    return std::arch::is_x86_feature_detected!("avx512f");
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64")))]
    return false;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    impl Tuning {
        /// This tuning with about half of its fields changed to any allowed value; `below` returns random numbers below
        /// its argument.
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

    #[test]
    fn a_tuning_reads_as_it_prints() {
        for tuning in [Tuning::SOFTWARE, Tuning::GPU] {
            let text = tuning.to_string();
            assert_eq!(text.parse::<Tuning>().unwrap(), tuning, "{text}");
            // Debug prints every field there is.
            let debug = format!("{tuning:?}");
            assert_eq!(text.matches('=').count(), debug.matches(": ").count());
        }
        let spaced = Tuning::GPU.overridden("\n small_tensor = 0 ,\ntile=77\n\n");
        let want = Tuning {
            small_tensor: 0,
            tile: 77,
            ..Tuning::GPU
        };
        assert_eq!(spaced.unwrap(), want);
        assert_eq!(Tuning::GPU.overridden("").unwrap(), Tuning::GPU);
    }

    #[test]
    fn what_is_wrong_with_a_text_is_named() {
        let refused = |text: &str| Tuning::GPU.overridden(text).unwrap_err().to_string();
        for (text, words) in [
            ("workgroup", vec!["key=value"]),
            ("threads=4", vec!["threads", "one of workgroup"]),
            ("workgroup=12", vec!["workgroup", "power of two", "12"]),
            ("workgroup=2048", vec!["from 4 to 1024", "2048"]),
            ("row_walk=0", vec!["row_walk", "from 1", "got 0"]),
            ("row_walk=-1", vec!["got -1"]),
            ("row_walk=4294967296", vec!["got 4294967296"]),
            ("row_walk=", vec!["row_walk", "got "]),
            ("row_walk=3,row_walk=3", vec!["row_walk", "once"]),
        ] {
            let message = refused(text);
            for word in words {
                assert!(message.contains(word), "{text}: {message}");
            }
        }
        let missing = "workgroup=8".parse::<Tuning>().unwrap_err();
        assert!(matches!(missing, Error::Tuning { key, .. } if key == "fused_workgroup"));
    }
}
