//! The images to train on, in batches of random order.

use super::data::{Digits, shuffled};
use wgpu_norm_verify::Random;

/// An endless sequence of batches.
pub struct Batches {
    images: Digits,
    size: usize,
    random: Random,
    order: Vec<usize>,
    place: usize,
}

impl Batches {
    /// Batches of a size above 0 that is at most the number of images.
    pub fn new(images: Digits, size: usize, random: Random) -> Self {
        Self {
            images,
            size,
            random,
            order: Vec::new(),
            place: 0,
        }
    }

    /// The batches of an epoch.
    pub fn per_epoch(&self) -> usize {
        self.images.len() / self.size
    }

    /// The next batch. The images are shuffled for each epoch; those that do not fill a batch are left out for an
    /// epoch.
    pub fn next(&mut self) -> Digits {
        if self.place + self.size > self.order.len() {
            self.order = shuffled(self.images.len(), &mut self.random);
            self.place = 0;
        }
        let end = self.place + self.size;
        let places = self.order.get(self.place..end).unwrap_or_default();
        self.place = end;
        self.images.pick(places)
    }
}
