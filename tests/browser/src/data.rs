//! Numbers that are about normal, the same in every run.

/// A generator of numbers (SplitMix64).
pub struct Numbers(pub u64);

impl Numbers {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About normal: four uniform numbers, summed.
    pub fn normal(&mut self, count: usize) -> Vec<f64> {
        let one = |_| (0..4).map(|_| self.uniform()).sum::<f64>() - 2.0;
        (0..count).map(one).collect()
    }

    /// From 0.5 to 1.5.
    pub fn positive(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| 0.5 + self.uniform()).collect()
    }
}
