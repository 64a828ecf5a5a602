//! The variants that plans ask for, gathered from thousands of random operations: of the many that differ in their
//! texts, enough to cover everything that a text depends on.
//!
//! A text depends on its variant's traits: its types, whether a tensor is bound, the value of a constant. Each trait of
//! every kernel is checked with every body; with `scripts/test.sh --release`, every text.

use crate::algorithm::Algorithm;
use crate::element::{DType, DTypes};
use crate::f16_encoder::F16Encoder;
use crate::geometry::MAX_ELEMENTS;
use crate::kernels::params::COPIED_PARAMS;
use crate::kernels::source::VECTOR_VEC4S;
use crate::kernels::{Access, Body, Constant, Epilogue, Kernel, Variant};
use crate::operation::Operation;
use crate::options::{Activation, DataFormat};
use crate::plan::tests::{Random, is_set};
use crate::plan::{Binding, Dispatch, Plan};
use crate::tensor::Tensor;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

/// Something that a text depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trait {
    Epilogue(Epilogue),
    ZeroCenteredGamma(bool),
    /// The types of data, parameters and statistics.
    Types([DType; 3]),
    Access(Access),
    F16Encoder(F16Encoder),
    InPlace(bool),
    Pooled(bool),
    Bound(Tensor, bool),
    Exact(Tensor, bool),
    Constant(&'static str, Constant),
}

/// A variant's traits: all but the sizes, which the texts have as constants.
pub fn traits(variant: &Variant) -> Vec<Trait> {
    let mut traits = vec![
        Trait::Epilogue(Epilogue {
            zero_centered_gamma: false,
            ..variant.epilogue
        }),
        Trait::ZeroCenteredGamma(variant.epilogue.zero_centered_gamma),
        Trait::Types([variant.data, variant.params, variant.statistics]),
        Trait::Access(variant.access),
        Trait::F16Encoder(variant.f16_encoder),
        Trait::InPlace(variant.in_place),
        Trait::Pooled(variant.pooled),
    ];
    for tensor in variant.body.tensors() {
        let bound = variant.bound.contains(&tensor);
        traits.push(Trait::Bound(tensor, bound));
        if bound {
            traits.push(Trait::Exact(tensor, variant.exact.contains(&tensor)));
        }
    }
    let constants = variant.constants.iter();
    let constants = constants.filter(|(name, value)| {
        matches!(value, Constant::Flag(_)) || [VECTOR_VEC4S, COPIED_PARAMS].contains(name)
    });
    traits.extend(constants.map(|&(name, value)| Trait::Constant(name, value)));
    traits
}

/// The variants to check.
pub fn asked() -> &'static [Variant] {
    static ASKED: OnceLock<Vec<Variant>> = OnceLock::new();
    ASKED.get_or_init(|| {
        let every_text = is_set("WGPU_NORM_TEST_EVERY");
        let mut seen = Seen::default();
        let mut asked = Vec::new();
        operations_ask_for(73, 16384, |variant| {
            if seen.is_new(&variant, every_text) {
                asked.push(variant);
            }
        });
        asked
    })
}

/// The variants that were seen, by their hashes, since they are many.
#[derive(Default)]
struct Seen {
    texts: HashSet<u64>,
    traits: HashSet<u64>,
}

impl Seen {
    /// Whether a trait of the variant is new, or its text but for sizes.
    fn is_new(&mut self, variant: &Variant, every_text: bool) -> bool {
        let hash = |part: &dyn Fn(&mut DefaultHasher)| {
            let mut hasher = DefaultHasher::new();
            (variant.kernel, variant.body).hash(&mut hasher);
            part(&mut hasher);
            hasher.finish()
        };
        let traits = traits(variant);
        let is_new_text = self.texts.insert(hash(&|hasher| traits.hash(hasher)));
        if !is_new_text || every_text {
            return is_new_text;
        }
        let mut is_new = false;
        for own in &traits {
            is_new |= self.traits.insert(hash(&|hasher| own.hash(hasher)));
        }
        is_new
    }
}

/// The element types that operators accept.
pub fn dtypes() -> Vec<DTypes> {
    let mut all = Vec::new();
    for data in DType::ALL {
        for params in DType::ALL.into_iter().filter(|&p| data.accepts_params(p)) {
            let types = DTypes::from((data, params)).with_statistics(params);
            all.push(types);
            if params != params.accumulator() {
                all.push(types.with_statistics(DType::F32));
            }
        }
    }
    all
}

/// Takes the variants that random operations ask for, `operations` of each kind, whatever the profile and wherever the
/// tensors are.
pub fn operations_ask_for(seed: u64, operations: u64, mut take: impl FnMut(Variant)) {
    let all_types = dtypes();
    for operation in 0..operations {
        // Of its own, so that a plan that changes leaves the other operations alone.
        let mut random = Random(seed + (operation << 32));
        let mut profile = random.profile();
        if random.flag() {
            profile.algorithm = Some(random.of(&Algorithm::ALL));
        }
        let types = random.of(&all_types);
        // Some kernels are only for small tensors; large ones take long to plan.
        let most = match random.below(7) {
            0 => MAX_ELEMENTS,
            1..=2 => 1 << 24,
            _ => 1 << 16,
        };
        let mut batch_norm = match random.below(4) {
            0 => random.general(),
            _ => {
                let mut grid = random.grid_of(most);
                // Else few grids are for it.
                if profile.algorithm == Some(Algorithm::FusedChannelsLast) {
                    grid.inner = 1;
                    grid.channels = grid.channels.next_multiple_of(4);
                }
                random.batch_norm_of(grid)
            }
        };
        batch_norm.types = types;
        let training = random.forward(&batch_norm);
        let inference = random.inference(&batch_norm);
        let by_row = random.grid_of(most);
        let mut layer_norm = random.layer_norm_of(by_row);
        layer_norm.types = types;
        let rows = random.rows_forward(&layer_norm);
        let grid = random.grid_of(most);
        let format = random.of(&[DataFormat::Ncx, DataFormat::Nxc]);
        let mut group_norm = random.group_norm(grid, format);
        group_norm.types = types;
        // Of these many have one plan alone, by channels.
        let axes_norms = [grid, random.grid_of(1 << 14), random.grid_of(1 << 10)];
        let axes_norms = axes_norms.map(|grid| Operation {
            types,
            ..random.axes_norm(grid)
        });
        let others = [
            batch_norm, training, inference, layer_norm, rows, group_norm,
        ];
        let all: Vec<_> = others.into_iter().chain(axes_norms).collect();
        // Some operations have no plan: WGSL has no exponential of f64, for one.
        for plan in all.iter().flat_map(|operation| operation.planned(&profile)) {
            let plan = &plan;
            // The texts for a tensor's many windows are alike, except where the tensor ends.
            let mut seen = HashSet::new();
            for (_, dispatch) in &plan.dispatches {
                let bound = dispatch.bindings.iter();
                let bound: Vec<_> = bound.map(|b| (b.tensor, ends_inside(plan, b))).collect();
                if seen.insert((dispatch.kernel, dispatch.body, &dispatch.constants, bound)) {
                    for _ in 0..8 {
                        let variant = somewhere(&mut random, plan, dispatch);
                        with_other_activations(&variant).for_each(&mut take);
                        take(variant);
                    }
                }
            }
        }
    }
}

/// Whether a binding ends with a vec4 that the tensor does not fill.
fn ends_inside(plan: &Plan, binding: &Binding) -> bool {
    let own = plan.requirement(binding.tensor);
    own.is_some_and(|own| binding.bytes.end > own.bytes())
}

/// A dispatch's variant with its tensors anywhere: in buffers that end with them or not, in one buffer, in place.
fn somewhere(random: &mut Random, plan: &Plan, dispatch: &Dispatch) -> Variant {
    let binds = |tensor| dispatch.bindings.iter().any(|b| b.tensor == tensor);
    let in_place = binds(Tensor::DiffDst) && binds(Tensor::DiffSrc) && random.flag();
    let bound = dispatch.bindings.iter();
    let bound: Vec<_> = bound
        .filter(|binding| !in_place || binding.tensor != Tensor::DiffSrc)
        .collect();
    let ends = random.of(&[0, 1, 2]);
    let exact = bound
        .iter()
        .filter(|binding| ends_inside(plan, binding) && (ends == 2 || ends == 1 && random.flag()));
    let exact = exact.map(|binding| binding.tensor).collect();
    let variant = Variant {
        in_place,
        exact,
        pooled: random.below(3) == 0,
        f16_encoder: plan.f16_encoder,
        ..dispatch.variant(plan.types, plan.access(), &bound)
    };
    variant.normalized()
}

/// A variant that computes an activation, with every other that it may compute: random operations would leave some out.
fn with_other_activations(variant: &Variant) -> impl Iterator<Item = Variant> {
    let own = variant.epilogue.activation;
    let others = Activation::NAMES.iter().map(|(_, other)| *other);
    let others = others.filter(move |other| {
        let residual = variant.epilogue.residual;
        let computes = own != Activation::None && *other != Activation::None;
        computes && *other != own && other.check(variant.data, residual).is_ok()
    });
    others.map(|activation| {
        let mut variant = variant.clone();
        variant.epilogue.activation = activation;
        variant.normalized()
    })
}

/// Every kernel is asked for with all bodies that fit it and with both values of every flag, every body with all
/// tensors.
#[test]
fn all_that_a_kernel_offers_is_asked_for() {
    let (mut seen, mut bodies) = (HashSet::new(), HashSet::new());
    for variant in asked() {
        bodies.insert((variant.kernel, variant.body));
        let own = traits(variant).into_iter();
        seen.extend(own.map(|own| (variant.kernel, own)));
    }
    for kernel in Kernel::ALL {
        let entry = kernel.entry();
        let is_seen = |own| seen.contains(&(kernel, own));
        for &(name, value) in entry.constants {
            let values = match value {
                Constant::Flag(_) => [true, false].map(Constant::Flag).to_vec(),
                Constant::Size(_) if name == VECTOR_VEC4S => [1, 2].map(Constant::Size).to_vec(),
                // Rows bind their parameters, and few columns copy them.
                Constant::Size(_) if name == COPIED_PARAMS && kernel == Kernel::InRegisters => {
                    continue;
                }
                Constant::Size(_) if name == COPIED_PARAMS => {
                    [0, 1, 3, 4, 5].map(Constant::Size).to_vec()
                }
                Constant::Size(_) => continue,
            };
            for value in values {
                let there = is_seen(Trait::Constant(name, value));
                assert!(there, "{kernel:?}: {name} is never {value:?}");
            }
        }
        for body in Body::ALL.into_iter().filter(|body| body.fits(kernel)) {
            assert!(bodies.contains(&(kernel, body)), "{kernel:?} {body:?}");
        }
    }
    for body in Body::ALL {
        for tensor in body.tensors() {
            let mut own = asked().iter().filter(|variant| variant.body == body);
            // Sums are for halves, which are batch norm's; a sum is for rows, and a residual's gradient is not.
            let may_lack = matches!(tensor, Tensor::Sums | Tensor::Sum)
                || tensor == Tensor::DiffResidual && !body.centered && !body.of_groups;
            let is_bound = own.any(|variant| variant.bound.contains(&tensor));
            assert!(is_bound || may_lack, "{body:?} {tensor:?}");
        }
    }
}

/// The operations above also ask for everything that is seldom asked for. If this fails, the tests of all texts miss
/// some: let `operations_ask_for` make the operations that ask for the trait, more often or with all its values.
#[test]
fn other_operations_ask_for_nothing_else() {
    let mut checked = HashSet::new();
    for variant in asked() {
        let own = traits(variant).into_iter();
        checked.extend(own.map(|own| (variant.kernel, variant.body, own)));
    }
    operations_ask_for(1234, 500, |variant| {
        for own in traits(&variant) {
            let own = (variant.kernel, variant.body, own);
            let label = variant.label();
            assert!(
                checked.contains(&own),
                "no test of all texts sees {own:?} of {label}: see this test's comment"
            );
        }
    });
}
