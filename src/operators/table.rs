//! An operator's tensors, written down as its document names them.

use crate::Operation;
use crate::call::Call;

/// Defines an operator by its attributes: first those that a caller must give, then those with defaults, then what makes
/// one, `new` or, if all have defaults, `default`.
macro_rules! attributes {
    (
        $(#[$doc:meta])* $Operator:ident {} {
            $($(#[$default_doc:meta])* $name:ident: $Type:ty = $value:expr,)*
        }
        $(#[$new_doc:meta])* default
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
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
    };
    (
        $(#[$doc:meta])* $Operator:ident {
            $($(#[$given_doc:meta])* $given:ident: $Given:ty,)*
        } {
            $($(#[$default_doc:meta])* $name:ident: $Type:ty = $value:expr,)*
        }
        $(#[$new_doc:meta])* new
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
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
    };
}

/// Defines the inputs of an operator in host memory: first what is no tensor, then each tensor by its name in the
/// document, with its elements, and what it is here.
macro_rules! inputs {
    (
        $(#[$doc:meta])* $Inputs:ident<$($T:ident $(: $Bound:ident)?),+> {
            $($(#[$plain_doc:meta])* $plain:ident: $Plain:ty,)*
        }
        $($(#[$tensor_doc:meta])* $name:ident: $Elements:ty = $Tensor:ident,)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $Inputs<'a, $($T $(: $Bound)?),+> {
            $($(#[$plain_doc])* pub $plain: $Plain,)*
            $(
                #[doc = concat!("The document's `", stringify!($name), "`.")]
                $(#[$tensor_doc])*
                pub $name: $Elements,
            )*
        }

        impl<'a, $($T: $crate::Element),+> $Inputs<'a, $($T),+> {
            /// The call of an operation with these tensors.
            fn call(&self, operation: $crate::Operation) -> $crate::call::Call<'a> {
                let mut call = $crate::operators::table::call(operation);
                $(call = call.with($crate::Tensor::$Tensor, self.$name);)*
                call
            }
        }
    };
}

/// Defines the outputs of an operator in host memory, each by its name in the document, from an operation's results:
/// `data`, a `param`, a `statistic` or the `mask`.
macro_rules! outputs {
    (
        $(#[$doc:meta])* $Outputs:ident<$($T:ident),+> from $Results:ty as [$($G:ident),+]
        $($(#[$tensor_doc:meta])* $name:ident: $Elements:ty = $kind:ident($($Tensor:ident)?),)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $Outputs<$($T),+> {
            $(
                #[doc = concat!("The document's `", stringify!($name), "`.")]
                $(#[$tensor_doc])*
                pub $name: $Elements,
            )*
        }

        impl<$($G),+> From<$Results> for $Outputs<$($T),+> {
            fn from(mut results: $Results) -> Self {
                Self {
                    $($name: $crate::operators::table::Taken::taken(
                        results.$kind($($crate::Tensor::$Tensor)?),
                    ),)*
                }
            }
        }
    };
}

pub(super) use {attributes, inputs, outputs};

/// A call without tensors.
pub(super) fn call<'a>(operation: Operation) -> Call<'a> {
    let given = Vec::new();
    Call { operation, given }
}

/// A result that is always there, or that may be missing.
pub(super) trait Taken<E> {
    fn taken(result: Option<Vec<E>>) -> Self;
}

impl<E> Taken<E> for Vec<E> {
    fn taken(result: Option<Self>) -> Self {
        result.unwrap_or_default()
    }
}

impl<E> Taken<E> for Option<Vec<E>> {
    fn taken(result: Self) -> Self {
        result
    }
}
