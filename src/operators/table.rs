//! Operators as tables of their attributes.

/// Defines an operator by its attributes: first those that a caller must give, then those with defaults, then what
/// makes one, `new` or, if all have defaults, `default`; and by its inputs and outputs.
macro_rules! operator {
    (
        $(#[$doc:meta])* $Operator:ident {} {
            $($(#[$default_doc:meta])* $name:ident: $Type:ty = $value:expr,)*
        }
        $(#[$new_doc:meta])* default
        $($tables:tt)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $Operator {
            $($(#[$default_doc])* pub $name: $Type,)*
        }

        impl Default for $Operator {
            $(#[$new_doc])*
            fn default() -> Self {
                Self {
                    $($name: $value,)*
                }
            }
        }

        $crate::operators::table::calls!($Operator $($tables)*);
    };
    (
        $(#[$doc:meta])* $Operator:ident {
            $($(#[$given_doc:meta])* $given:ident: $Given:ty,)*
        } {
            $($(#[$default_doc:meta])* $name:ident: $Type:ty = $value:expr,)*
        }
        $(#[$new_doc:meta])* new
        $($tables:tt)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $Operator {
            $($(#[$given_doc])* pub $given: $Given,)*
            $($(#[$default_doc])* pub $name: $Type,)*
        }

        impl $Operator {
            $(#[$new_doc])*
            pub const fn new($($given: $Given),*) -> Self {
                Self {
                    $($given,)*
                    $($name: $value,)*
                }
            }
        }

        $crate::operators::table::calls!($Operator $($tables)*);
    };
}

/// The calls of an operator, and its tensors. Each is a name in the document and what it is here, with the methods of a
/// row that say more; they see the operator by the name in parentheses.
macro_rules! calls {
    (
        $Operator:ident
        inputs($in_op:pat) { $($input:ident: $Input:ident $(.$in_case:ident($($in_value:expr),*))*),* $(,)? }
        outputs($out_op:pat) { $($output:ident: $Output:ident $(.$out_case:ident($($out_value:expr),*))*),* $(,)? }
    ) => {
        impl $crate::operators::definition::Tables for $Operator {
            fn input_rows(&self) -> Vec<Row> {
                let $in_op = self;
                vec![$(tensor(stringify!($input), Tensor::$Input)$(.$in_case($($in_value),*))*),*]
            }

            fn output_rows(&self) -> Vec<Row> {
                let $out_op = self;
                vec![$(tensor(stringify!($output), Tensor::$Output)$(.$out_case($($out_value),*))*),*]
            }
        }

        impl $Operator {
            /// The operation on inputs of these shapes and types.
            ///
            /// # Errors
            ///
            /// [`Error::Argument`] for an attribute, and for an input that is unknown, is missing, must not be given,
            /// or has another shape or type; [`Error::Epsilon`]; and errors in the shapes.
            pub fn operation(&self, inputs: &Inputs<'_>) -> Result<Operation, Error> {
                $crate::operators::run::operation(self, inputs)
            }

            /// Computes the outputs from inputs in host memory.
            ///
            /// # Errors
            ///
            /// Those of [`operation`](Self::operation) and [`Operation::run_into`].
            pub async fn run(
                &self,
                gpu: &GpuContext,
                inputs: &Inputs<'_>,
            ) -> Result<Outputs, Error> {
                $crate::operators::run::run(self, gpu, inputs).await
            }
        }
    };
}

pub(super) use {calls, operator};
