//! An operator's buffers, their sizes and its plan, declared from one list of its tensors.

/// The type of a field, its size, and the range that is given for it, by how a tensor is given: `always`, `maybe` (as the
/// plan says), or as `scratch` memory that the caller may leave out.
macro_rules! operand {
    (range always $a:lifetime) => { $crate::BufferRange<$a> };
    (range $_:ident $a:lifetime) => { Option<$crate::BufferRange<$a>> };
    (size maybe) => { Option<u64> };
    (size $_:ident) => { u64 };
    (bytes always $plan:expr, $tensor:expr, $bytes:expr) => {
        $plan.requirement($tensor).map_or(0, $bytes)
    };
    (bytes maybe $plan:expr, $tensor:expr, $bytes:expr) => {
        $plan.requirement($tensor).map($bytes)
    };
    (bytes scratch $plan:expr, $tensor:expr, $bytes:expr) => {
        $plan.scratch_bytes($tensor)
    };
    (given always $range:expr) => { Some($range) };
    (given $_:ident $range:expr) => { $range };
}

/// Declares a plan, its buffers and their sizes.
macro_rules! operands {
    (
        $(#[$plan_doc:meta])* plan $Plan:ident;
        $(#[$buffers_doc:meta])* buffers $Buffers:ident;
        sizes $Sizes:ident;
        $($(#[$doc:meta])* $field:ident: $tensor:ident $given:ident;)*
    ) => {
        $(#[$plan_doc])*
        #[derive(Clone, Debug, PartialEq)]
        #[must_use]
        pub struct $Plan {
            pub(crate) plan: $crate::plan::Plan,
        }

        $(#[$buffers_doc])*
        ///
        /// Disjoint ranges of one buffer are fine.
        #[doc = concat!("[`", stringify!($Plan), "::sizes`] says how large each must be.")]
        #[derive(Clone, Copy, Debug)]
        pub struct $Buffers<'a> {
            $($(#[$doc])* pub $field: $crate::operands::operand!(range $given 'a),)*
            #[doc = concat!("Scratch memory of [`", stringify!($Plan), "::workspace_size`] bytes, which any other work may")]
            /// use before and after. Without it the bound plan makes its own.
            pub workspace: Option<$crate::BufferRange<'a>>,
        }

        #[doc = concat!("Bytes of the buffers, each for the range of the same name in [`", stringify!($Buffers), "`];")]
        /// none for what the plan does not take.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        #[expect(missing_docs, reason = "those of the buffers")]
        pub struct $Sizes {
            $(pub $field: $crate::operands::operand!(size $given),)*
            pub workspace: u64,
        }

        impl From<$Plan> for $crate::export::Plan {
            fn from($Plan { plan }: $Plan) -> Self {
                Self::new(plan)
            }
        }

        impl $Plan {
            /// Bytes that each buffer range must have: the tensor's own, up to the next multiple of 4. Where an odd
            /// number of f16 or bf16 elements does not fill the last 4, the rest of them is written as 0.
            pub fn sizes(&self) -> $Sizes {
                self.sizes_by($crate::plan::Requirement::bytes)
            }

            /// Bytes that each buffer range had best have: those of the elements up to the next multiple of four.
            /// Kernels load four elements at a time to the end then; without the padding they do so more slowly. What
            /// is beyond [`sizes`](Self::sizes) is not changed and does not count.
            pub fn padded_sizes(&self) -> $Sizes {
                self.sizes_by($crate::plan::Requirement::padded_bytes)
            }

            fn sizes_by(&self, bytes: fn(&$crate::plan::Requirement) -> u64) -> $Sizes {
                use $crate::Tensor;
                $Sizes {
                    $($field: $crate::operands::operand!(bytes $given self.plan, Tensor::$tensor, bytes),)*
                    workspace: self.workspace_size(),
                }
            }

            /// Bytes of scratch memory.
            pub fn workspace_size(&self) -> u64 {
                self.plan.workspace_bytes
            }

            /// The algorithm of one recording of the whole operator.
            pub fn algorithm(&self) -> $crate::Algorithm {
                self.plan.algorithm
            }

            /// How many dispatches one recording of the whole operator makes.
            pub fn dispatches(&self) -> usize {
                self.plan.dispatch_count()
            }

            /// Names of the kernels of one recording, in order.
            pub fn kernels(&self) -> Vec<&'static str> {
                self.plan.kernel_names()
            }

            /// Binds buffers: checks them, compiles what is missing, makes bind groups and uniforms.
            ///
            /// # Errors
            ///
            /// A buffer too small, misaligned, without the usage STORAGE, of another device or destroyed,
            /// overlapping another, missing, or given without use; memory or device lost. In a browser what the device
            /// itself finds wrong (its memory, another device's buffer) comes later, to the device's handler of
            /// uncaptured errors.
            pub fn bind(
                &self,
                gpu: &$crate::GpuContext,
                buffers: &$Buffers<'_>,
            ) -> Result<$crate::Bound, $crate::Error> {
                use $crate::Tensor;
                $crate::bound::bind(
                    gpu,
                    &self.plan,
                    &[
                        $((
                            Tensor::$tensor,
                            $crate::operands::operand!(given $given buffers.$field),
                        ),)*
                        (Tensor::Workspace, buffers.workspace),
                    ],
                )
            }
        }
    };
}
pub(crate) use {operand, operands};
