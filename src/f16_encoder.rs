//! How kernels round to f16, and the probe that shows whether a device's own conversions are right.

use half::f16;

/// The invocations of a probe's workgroup.
pub(crate) const PROBE_WORKGROUP: u32 = 64;

/// How kernels round f32 to f16 where they store it. All give the same bits, except for NaN.
///
/// WGSL leaves it to the driver how its own conversions round, so a device is probed before kernels use them:
/// [`GpuContext::probe_f16`](crate::GpuContext::probe_f16), which [`GpuContext::new`](crate::GpuContext::new) calls on
/// a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum F16Encoder {
    /// Integer arithmetic, right on every adapter: 17 instructions an element.
    #[default]
    Integers,
    /// WGSL's `pack2x16float`.
    Pack,
    /// A conversion to WGSL's `f16`, which needs wgpu's `SHADER_F16`.
    Cast,
}

impl F16Encoder {
    /// All of them; in this order, the first that a probe has shown to be right is used before integers.
    pub const ALL: [Self; 3] = [Self::Pack, Self::Cast, Self::Integers];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Integers => "integers",
            Self::Pack => "pack2x16float",
            Self::Cast => "f16 conversion",
        }
    }

    /// The numbers that a probe rounds, as the bytes of f32: a multiple of four for each invocation of a workgroup.
    ///
    /// Each boundary between two values of f16 and a number beside it, with both signs, subnormals and infinities among
    /// them; the ends of f32; NaN.
    pub fn numbers() -> Vec<u8> {
        bytemuck::cast_slice(&boundaries()).to_vec()
    }

    /// Whether the f16 of [`numbers`](Self::numbers) are rounded to nearest even.
    pub fn is_right(rounded: &[u8]) -> bool {
        let numbers = boundaries();
        let right = numbers.iter().map(|&number| f16::from_f32(number));
        let given = rounded.as_chunks::<2>().0.iter();
        let given = given.map(|&bytes| f16::from_le_bytes(bytes));
        let same = |(right, given): (f16, f16)| {
            right.to_bits() == given.to_bits() || right.is_nan() && given.is_nan()
        };
        rounded.len() == 2 * numbers.len() && right.zip(given).all(same)
    }
}

fn boundaries() -> Vec<f32> {
    let ends = [
        f32::INFINITY,
        f32::MAX,
        f32::MIN_POSITIVE,
        f32::from_bits(1),
        0.0,
        f32::NAN,
        f32::from_bits(0x7f80_0001),
        65536.0,
    ];
    let mut numbers: Vec<f32> = ends.into_iter().flat_map(|end| [end, -end]).collect();
    for bits in 0..f16::INFINITY.to_bits() {
        let value = f16::from_bits(bits).to_f32();
        // The value after the largest would be 65536.
        let next = if bits == f16::MAX.to_bits() {
            65536.0
        } else {
            f16::from_bits(bits + 1).to_f32()
        };
        let tie = value + (next - value) / 2.0;
        let (above, below) = (tie.next_up(), tie.next_down());
        // Both halves of a word get ties of both signs above even values and above odd ones.
        numbers.extend(if bits / 2 % 2 == 0 {
            [tie, above, -tie, -below]
        } else {
            [above, tie, -below, -tie]
        });
    }
    let whole = 4 * PROBE_WORKGROUP as usize;
    numbers.resize(numbers.len().next_multiple_of(whole), 1.0);
    numbers
}
