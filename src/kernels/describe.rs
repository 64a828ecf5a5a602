//! A kernel's constants and uniforms as Rust structs, from which their WGSL is made: with a wrong or missing name, the
//! crate does not compile.

/// The value of a constant of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Constant {
    Flag(bool),
    Size(u32),
}

impl Constant {
    /// Its declaration in WGSL.
    pub fn declaration(self, name: &str) -> String {
        match self {
            Self::Flag(value) => format!("const {name}: bool = {value};\n"),
            Self::Size(value) => format!("const {name}: u32 = {value}u;\n"),
        }
    }
}

/// A type of a constant.
pub(crate) trait ConstantType: Copy {
    /// A value of this type, as a stand-in for the type.
    const SAMPLE: Constant;
    fn constant(self) -> Constant;
}

impl ConstantType for bool {
    const SAMPLE: Constant = Constant::Flag(false);

    fn constant(self) -> Constant {
        Constant::Flag(self)
    }
}

impl ConstantType for u32 {
    const SAMPLE: Constant = Constant::Size(1);

    fn constant(self) -> Constant {
        Constant::Size(self)
    }
}

/// A struct of the constants that a kernel's text begins with.
pub(crate) trait Constants: Copy {
    /// The constants' names, each with a value of its type.
    const SAMPLES: &'static [(&'static str, Constant)];
    fn constants(&self, constants: &mut Vec<(&'static str, Constant)>);
}

/// Declares a struct of constants.
macro_rules! constants {
    ($(#[$doc:meta])* struct $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub(crate) struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $crate::kernels::describe::Constants for $name {
            const SAMPLES: &'static [(&'static str, $crate::kernels::describe::Constant)] =
                &[$((stringify!($field), <$type as $crate::kernels::describe::ConstantType>::SAMPLE)),*];

            fn constants(&self, constants: &mut Vec<(&'static str, $crate::kernels::describe::Constant)>) {
                constants.extend_from_slice(&[$((
                    stringify!($field),
                    $crate::kernels::describe::ConstantType::constant(self.$field),
                )),*]);
            }
        }
    };
}
pub(super) use constants;

/// The kind of a field of a kernel's uniform struct.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A u32.
    Word,
    /// A number of the accumulator's type.
    Real,
    /// Fields that several kernels share.
    Group(&'static [(&'static str, Kind)]),
}

impl Kind {
    /// The names of the fields, and whether each is of the accumulator's type.
    pub fn fields(self, name: &'static str) -> Vec<(&'static str, bool)> {
        match self {
            Self::Word => vec![(name, false)],
            Self::Real => vec![(name, true)],
            Self::Group(fields) => {
                let fields = fields.iter().map(|&(name, kind)| kind.fields(name));
                fields.flatten().collect()
            }
        }
    }

    /// WGSL's declaration of the struct.
    pub fn declaration(self) -> String {
        let fields = self.fields("").into_iter();
        let lines = fields.map(|(name, real)| {
            let ty = if real { "real" } else { "u32" };
            format!("    {name}: {ty},\n")
        });
        format!("struct Uniforms {{\n{}}}\n", lines.collect::<String>())
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    Word(u32),
    Real(f64),
}

/// A field of a kernel's uniform struct, or a struct of such fields.
pub(crate) trait Uniform {
    const KIND: Kind;
    fn values(&self, values: &mut Vec<Value>);
}

impl Uniform for u32 {
    const KIND: Kind = Kind::Word;

    fn values(&self, values: &mut Vec<Value>) {
        values.push(Value::Word(*self));
    }
}

impl Uniform for f64 {
    const KIND: Kind = Kind::Real;

    fn values(&self, values: &mut Vec<Value>) {
        values.push(Value::Real(*self));
    }
}

/// Declares a struct of uniforms.
macro_rules! uniforms {
    ($(#[$doc:meta])* struct $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub(crate) struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $crate::kernels::describe::Uniform for $name {
            const KIND: $crate::kernels::describe::Kind = $crate::kernels::describe::Kind::Group(
                &[$((stringify!($field), <$type as $crate::kernels::describe::Uniform>::KIND)),*],
            );

            fn values(&self, values: &mut Vec<$crate::kernels::describe::Value>) {
                $($crate::kernels::describe::Uniform::values(&self.$field, values);)*
            }
        }
    };
}
pub(super) use uniforms;
