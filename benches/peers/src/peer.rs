//! Whose times they are.

/// A library, as a column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Ours,
    /// The same kernels with the sizes that a GPU is given.
    #[cfg(any(feature = "meganeura", feature = "numr", feature = "rumus"))]
    OursForGpus,
    #[cfg(feature = "burn")]
    Burn,
    #[cfg(feature = "meganeura")]
    Meganeura,
    #[cfg(feature = "numr")]
    Numr,
    #[cfg(feature = "rumus")]
    Rumus,
}

/// What the others are compared with.
pub const OURS: &str = "wgpu-norm";

impl Peer {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => OURS,
            #[cfg(any(feature = "meganeura", feature = "numr", feature = "rumus"))]
            Self::OursForGpus => "wgpu-norm, sizes for GPUs",
            // One build has one of them.
            #[cfg(feature = "burn")]
            Self::Burn => match cfg!(feature = "fusion") {
                true => "Burn (fusion)",
                false => "Burn",
            },
            #[cfg(feature = "meganeura")]
            Self::Meganeura => "Meganeura",
            #[cfg(feature = "numr")]
            Self::Numr => "numr",
            #[cfg(feature = "rumus")]
            Self::Rumus => "RUMUS",
        }
    }

    /// Its name in the lock file.
    pub fn package(self) -> &'static str {
        match self {
            Self::Ours => "wgpu-norm",
            #[cfg(any(feature = "meganeura", feature = "numr", feature = "rumus"))]
            Self::OursForGpus => "wgpu-norm",
            #[cfg(feature = "burn")]
            Self::Burn => "burn",
            #[cfg(feature = "meganeura")]
            Self::Meganeura => "meganeura",
            #[cfg(feature = "numr")]
            Self::Numr => "numr",
            #[cfg(feature = "rumus")]
            Self::Rumus => "rumus",
        }
    }

    /// Whether it is this crate, whatever the sizes.
    pub fn is_ours(self) -> bool {
        self.package() == Self::Ours.package()
    }
}
