//! scikit-learn's digits: 1797 handwritten digits of 8×8 pixels.
//!
//! `digits.bin` has 65 bytes per image: the pixels row by row, each from 0 to 16, and the digit. It was written by
//!
//! ```python
//! import numpy, sklearn.datasets
//! digits = sklearn.datasets.load_digits()
//! numpy.c_[digits.data, digits.target].astype("uint8").tofile("digits.bin")
//! ```
//!
//! The data came with scikit-learn (BSD 3-clause), as a copy of the test set of E. Alpaydin and C. Kaynak, Optical
//! Recognition of Handwritten Digits, 1998, from the UCI Machine Learning Repository:
//! <https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits>.

use wgpu_norm_verify::Random;

/// The number of pixels in a row, and of rows.
pub const SIDE: usize = 8;
pub const PIXELS: usize = SIDE * SIDE;

const BYTES: &[u8] = include_bytes!("digits.bin");

/// Images with their labels.
pub struct Digits {
    /// Pixels from 0 to 1, image after image.
    pub images: Vec<f32>,
    pub labels: Vec<usize>,
}

impl Digits {
    pub fn all() -> Self {
        let (mut images, mut labels) = (Vec::new(), Vec::new());
        for record in BYTES.chunks_exact(PIXELS + 1) {
            let (pixels, label) = record.split_at(PIXELS);
            images.extend(pixels.iter().map(|&pixel| f32::from(pixel) / 16.0));
            labels.extend(label.iter().map(|&label| usize::from(label)));
        }
        Self { images, labels }
    }

    /// Images to train on, and others to test. The same people wrote both, so the test is easy.
    pub fn split(&self, test: usize, random: &mut Random) -> (Self, Self) {
        let order = shuffled(self.len(), random);
        let (test, train) = order.split_at(test.min(order.len()));
        (self.pick(train), self.pick(test))
    }

    pub fn pick(&self, places: &[usize]) -> Self {
        let image = |&place: &usize| &self.images[place * PIXELS..][..PIXELS];
        Self {
            images: places.iter().flat_map(image).copied().collect(),
            labels: places.iter().map(|&place| self.labels[place]).collect(),
        }
    }

    pub fn len(&self) -> usize {
        self.labels.len()
    }
}

/// The numbers below `len`, in random order.
pub fn shuffled(len: usize, random: &mut Random) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    order.sort_by_cached_key(|_| random.bits());
    order
}
