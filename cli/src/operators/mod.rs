//! The operators: a subcommand for each pass of a layer, which reads tensors from one safetensors file and writes
//! results into another.
//!
//! This file defines each of them: its operation, and the operation's attributes as flags. The rest follows from the
//! operation's list of tensors:
//!
//! | module | knows |
//! |---|---|
//! | `help` | the help text about the files |
//! | `tensors` | the tensors in the file: which are read, whether they fit together |
//! | `whole` | an operation in one piece, and `--check` |
//! | `streamed` | tensors that are processed in pieces |
//! | `shared` | an operation that several processes compute, each for some samples |

mod help;
mod shared;
mod streamed;
mod tensors;
mod whole;

use crate::args::FileArgs;
use crate::attributes::{self, Choice, Format, Given, Wanted, choice};
use crate::failure::Failure;
use crate::job::{Job, Machine};
use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, FromArgMatches};
use tensors::{Arguments, Work};
use wgpu_norm::{
    Activation, Backward, Channels, DataFormat, Epilogue, Forward, Norm, Operation, Pass, Residual,
    RunningUpdate, RunningVariance, Tensor, Through,
};

/// A pass of a layer, before its attributes are known.
#[derive(Clone, Debug)]
struct Operator {
    about: &'static str,
    norm: Norm,
    pass: Pass,
}

/// All of them.
fn operators() -> Vec<Operator> {
    let format = DataFormat::Ncx;
    let batch = Norm::Batch(Channels::Axis(DataFormat::Nxc));
    let group = Norm::group(1, format);
    let instance = Norm::instance(format);
    let layer = Norm::layer(-1);
    let rms = Norm::rms(-1);
    let axes = Norm::axes(&[], &[]);
    let (forward, backward) = (Forward::default().into(), Backward::default().into());
    let inference = Pass::Inference;
    let all = [
        (&batch, backward, "The gradient of batch normalization"),
        (&batch, forward, "Batch normalization in training"),
        (
            &batch,
            inference,
            "Batch normalization with given statistics",
        ),
        (&layer, backward, "The gradient of layer normalization"),
        (&layer, forward, "Layer normalization"),
        (&rms, backward, "The gradient of RMS normalization"),
        (&rms, forward, "RMS normalization"),
        (&group, backward, "The gradient of group normalization"),
        (&group, forward, "Group normalization"),
        (
            &group,
            inference,
            "Group normalization with given statistics",
        ),
        (
            &instance,
            backward,
            "The gradient of instance normalization",
        ),
        (&instance, forward, "Instance normalization"),
        (
            &instance,
            inference,
            "Instance normalization with given statistics",
        ),
        (
            &axes,
            backward,
            "The gradient of normalization over any axes",
        ),
        (&axes, forward, "Normalization over any axes"),
        (
            &axes,
            inference,
            "Normalization over any axes with given statistics",
        ),
    ];
    let operators = all.map(|(norm, pass, about)| Operator {
        about,
        norm: norm.clone(),
        pass,
    });
    operators.into()
}

fn flag(key: &'static str, value: &'static str, help: &'static str) -> Arg {
    let flag = Arg::new(key).long(key.replace('_', "-"));
    flag.value_name(value).help(help)
}

fn named<T: Choice>(key: &'static str, help: &'static str) -> Arg {
    let flag = flag(key, T::VALUE_NAME, help);
    flag.value_parser(choice::<T>()).ignore_case(true)
}

fn number<T: Clone + Send + Sync + 'static>(
    key: &'static str,
    value: &'static str,
    read: fn(&str) -> Result<T, Wanted>,
    help: &'static str,
) -> Arg {
    let flag = flag(key, value, help).value_parser(read);
    flag.allow_negative_numbers(true)
}

impl Operator {
    /// Its name in a file's metadata.
    fn name(&self) -> String {
        format!("{}_{}", self.norm.name(), self.pass.name())
    }

    /// The formula of dst.
    fn formula(&self) -> &'static str {
        match &self.norm {
            Norm::Rms { .. } => {
                "activation(gamma · x / √(mean_square + epsilon)), x = src + residual"
            }
            Norm::Layer { .. } => {
                "activation(gamma · (x - mean) / √(variance + epsilon) + beta), x = src + residual"
            }
            Norm::Axes { .. } => {
                "activation(gate · (gamma · (src - mean) / √(variance + epsilon) + beta) + residual); if not centered, without mean and \
                 with mean_square in place of variance"
            }
            _ => "activation(gamma · (src - mean) / √(variance + epsilon) + beta + residual)",
        }
    }

    /// Its attributes.
    fn flags(&self) -> Vec<Arg> {
        let epsilon = |help| number("epsilon", "NUMBER", attributes::epsilon, help);
        let of_variance =
            "Added to the variance; above 0 [default: the file's metadata, else 1e-5]";
        let data_format = || {
            named::<DataFormat>(
                "data_format",
                "Whether channels are axis 1 (NCX) or the last axis (NXC) [default: the file's metadata, else NCX]",
            )
        };
        let activation = || {
            named::<Activation>(
                "activation",
                "The activation after the layer: relu, max(y, 0); silu, y / (1 + exp(-y)); gelu; or its approximation \
                 gelu_tanh. Only relu supports f64 data and a residual that is added to the layer's output [default: \
                 the file's metadata, else none]",
            )
        };
        let begin_norm_axis = || {
            number(
                "begin_norm_axis",
                "AXIS",
                attributes::axis,
                "The first axis to normalize, together with all later ones; a negative axis counts from the end \
                 [default: the file's metadata, else -1]",
            )
        };
        let zero_centered_gamma = named::<bool>(
            "zero_centered_gamma",
            "Whether gamma is stored less 1, so that the layer scales by 1 + gamma [default: the file's metadata, else \
             false]",
        );
        let is_batch = matches!(self.norm, Norm::Batch(_));
        let mut flags = match &self.norm {
            Norm::Batch(_) => vec![
                epsilon(
                    "Added to the variance; above 0 [required unless the file's metadata has it]",
                ),
                named::<Format>(
                    "data_format",
                    "Whether channels are axis 1 (NCX), the last axis (NXC), or the axes that parameters of src's rank keep \
                     (broadcast) [default: the file's metadata, else broadcast if all parameters have src's rank and that is \
                     above 1, else NXC]",
                ),
                activation(),
            ],
            Norm::Group { .. } => vec![
                number(
                    "groups",
                    "G",
                    attributes::count,
                    "The number of groups, a divisor of the number of channels [required unless the file's metadata \
                     has it]",
                ),
                epsilon(of_variance),
                data_format(),
                activation(),
            ],
            Norm::Instance { .. } => vec![epsilon(of_variance), data_format(), activation()],
            Norm::Layer { .. } => vec![
                begin_norm_axis(),
                named::<bool>(
                    "use_affine",
                    "Whether the layer has gamma and beta; if false, a given gamma or beta is ignored [default: the \
                     file's metadata, else true]",
                ),
                epsilon(of_variance),
                activation(),
            ],
            Norm::Rms { .. } => vec![
                begin_norm_axis(),
                epsilon(
                    "Added to the mean of squares; above 0 [default: the file's metadata, else 1e-5]",
                ),
                activation(),
            ],
            Norm::Axes { .. } => vec![
                number(
                    "axes",
                    "A,B,...",
                    attributes::axes,
                    "The axes that the statistics are taken over; a negative axis counts from the end [required unless \
                     the file's metadata has them]",
                )
                .allow_hyphen_values(true),
                number(
                    "param_axes",
                    "A,B,...",
                    attributes::axes,
                    "The axes that gamma and beta vary along, possibly none [required unless the file's metadata has \
                     them]",
                )
                .allow_hyphen_values(true),
                named::<bool>(
                    "centered",
                    "Whether the mean is subtracted; if false, the statistic is mean_square, as in RMS normalization \
                     [default: the file's metadata, else true]",
                ),
                epsilon(
                    "Added to the variance or the mean of squares; above 0 [default: the file's metadata, else 1e-5]",
                ),
                activation(),
            ],
            _ => vec![epsilon(of_variance)],
        };
        flags.push(zero_centered_gamma);
        match &self.pass {
            Pass::Forward(_) if is_batch => flags.extend([
                number(
                    "running_weight",
                    "W",
                    attributes::weight,
                    "The batch's weight in running statistics, from 0 to 1: PyTorch's momentum, 1 - ONNX's [required with \
                     running statistics, unless the file's metadata has it]",
                ),
                named::<RunningVariance>(
                    "running_variance",
                    "Which variance of the batch updates running_variance: ONNX uses the biased one, PyTorch the \
                     unbiased one [default: the file's metadata, else biased]",
                ),
            ]),
            Pass::Backward(_) => {
                if is_batch {
                    flags.push(named::<Through>(
                        "statistics",
                        "Whether mean and variance were computed from src (batch) or are constants for the gradient \
                         [default: the file's metadata, else batch]",
                    ));
                }
                flags.push(named::<bool>(
                    PARAM_GRADS,
                    "Whether the gradients of gamma, beta and a gate are computed; without them gamma still scales diff_src \
                     [default: true]",
                ));
            }
            _ => {}
        }
        flags
    }

    /// Its attributes that the file's metadata may have.
    fn attributes(&self) -> Vec<String> {
        let flags = self.flags().into_iter();
        let names = flags.map(|flag| flag.get_id().as_str().to_owned());
        names.filter(|name| name != PARAM_GRADS).collect()
    }

    /// The operation that the flags and the file describe, with the file's tensors.
    fn work(&self, job: &Job, given: &Given<'_>) -> Result<Work, Failure> {
        let missing = |attribute| Failure::NoAttribute { attribute };
        let format = || given.named("data_format");
        let epsilon = given.number("epsilon", attributes::epsilon)?;
        let mut norm = self.norm.clone();
        match &mut norm {
            Norm::Batch(_) if epsilon.is_none() => return Err(missing("epsilon")),
            Norm::Group {
                groups, format: of, ..
            } => {
                let given = given.number("groups", attributes::count)?;
                (*groups, *of) = (given.ok_or(missing("groups"))?, format()?.unwrap_or(*of));
            }
            Norm::Instance { format: of, .. } => *of = format()?.unwrap_or(*of),
            Norm::Axes {
                axes,
                param_axes,
                centered,
                ..
            } => {
                let given_axes = |key| {
                    let given = given.number(key, attributes::axes)?;
                    given.ok_or(missing(key))
                };
                (*axes, *param_axes) = (given_axes("axes")?, given_axes("param_axes")?);
                *centered = given.named("centered")?.unwrap_or(*centered);
            }
            Norm::Layer {
                begin_norm_axis, ..
            }
            | Norm::Rms {
                begin_norm_axis, ..
            } => {
                let axis = given.number("begin_norm_axis", attributes::axis)?;
                *begin_norm_axis = axis.unwrap_or(*begin_norm_axis);
            }
            _ => {}
        }
        let activation = given.named("activation")?.unwrap_or_default();
        let use_affine = match &norm {
            Norm::Layer { .. } => Some(given.named("use_affine")?.unwrap_or(true)),
            _ => None,
        };
        let through = match (&self.norm, &self.pass) {
            (Norm::Batch(_), Pass::Backward(_)) => given.named("statistics")?.unwrap_or_default(),
            _ => Through::Batch,
        };
        let param_grads = given.flag(PARAM_GRADS).unwrap_or(true);
        let of_channels = matches!(norm, Norm::Batch(_) | Norm::Instance { .. });
        if of_channels && self.pass == Pass::Inference {
            job.input.take_running_statistics();
        }
        let arguments = Arguments::find(job, &norm, &self.pass, activation, use_affine)?;
        let has = |tensor| arguments.get(tensor).is_some();
        let pass = match &self.pass {
            Pass::Forward(_) if has(Tensor::RunningMean) => {
                let weight = given.number("running_weight", attributes::weight)?;
                let update = RunningUpdate::new(
                    weight.ok_or(missing("running_weight"))?,
                    given.named("running_variance")?.unwrap_or_default(),
                );
                Forward::default().with_running(update).into()
            }
            Pass::Backward(_) => {
                let backward = Backward::default().with_through(through);
                backward.with_param_grads(param_grads).into()
            }
            pass => *pass,
        };
        if given.flag::<f64>("running_weight").is_some() && !has(Tensor::RunningMean) {
            job.warn("--running-weight: ignored, as there are no running statistics");
        }
        if let Norm::Batch(channels) = &mut norm {
            *channels = arguments.channels(job, given.named("data_format")?)?;
        }
        let mean = arguments.get(Tensor::Mean);
        // Running statistics are every sample's: this is batch norm.
        if let (Norm::Instance { format, .. }, Pass::Inference) = (&norm, &pass)
            && mean.is_some_and(|mean| mean.shape.len() == 1)
        {
            norm = Norm::batch(*format);
        }
        let residual = match has(Tensor::Residual) || has(Tensor::Mask) {
            false => Residual::None,
            true if self.norm.begin_norm_axis().is_some() => Residual::Before,
            true => Residual::After,
        };
        let operation = Operation::new(norm, pass, arguments.shape(), arguments.types()?)
            .with_epsilon(epsilon.unwrap_or(1e-5))
            .with_params(has(Tensor::Gamma), has(Tensor::Beta))
            .with_zero_centered_gamma(given.named("zero_centered_gamma")?.unwrap_or(false))
            .with_gate(has(Tensor::Gate))
            .with_epilogue(Epilogue::new(residual, activation));
        Work::new(operation, arguments)
    }
}

/// The only attribute that is not read from metadata.
const PARAM_GRADS: &str = "param_grads";

/// The attributes in force, in words.
fn attributes_of(operation: &Operation) -> String {
    let mut text = match &operation.norm {
        Norm::Batch(Channels::Axis(format)) | Norm::Instance { format, .. } => {
            format.name().to_owned()
        }
        Norm::Batch(_) => Format::Broadcast.name().to_owned(),
        Norm::Group { groups, format, .. } => format!("{groups} groups, {}", format.name()),
        Norm::Axes {
            axes,
            param_axes,
            centered,
            ..
        } => format!("axes {axes:?}, param_axes {param_axes:?}, centered {centered}"),
        norm => match norm.begin_norm_axis() {
            Some(begin_norm_axis) => format!("begin_norm_axis {begin_norm_axis}"),
            None => norm.name().to_owned(),
        },
    };
    text += &format!(", epsilon {:e}", operation.epsilon);
    if matches!(operation.norm, Norm::Layer { .. }) {
        text += &format!(", use_affine {}", operation.gamma || operation.beta);
    }
    if operation.zero_centered_gamma {
        text += ", zero-centered gamma";
    }
    if operation.epilogue.activation != Activation::None {
        text += &format!(", {}", operation.epilogue.activation);
    }
    match (&operation.norm, &operation.pass) {
        (_, Pass::Forward(forward)) => {
            if let Some(RunningUpdate {
                weight, variance, ..
            }) = forward.running
            {
                text += &format!(", running weight {weight}, {} variance", variance.name());
            }
        }
        (Norm::Batch(_), Pass::Backward(backward)) => {
            text += &format!(", {} statistics", backward.through.name());
        }
        _ => {}
    }
    text
}

/// The subcommand that was given.
#[derive(Debug)]
pub struct Operators {
    operator: Operator,
    files: FileArgs,
    flags: ArgMatches,
}

impl Operators {
    /// Runs the subcommand.
    pub fn run(&self, on: &Machine<'_>) -> Result<(), Failure> {
        let job = Job::start(&self.files, &self.operator.name(), on)?;
        let given = Given {
            flags: &self.flags,
            input: &job.input,
        };
        let mut attributes = self.operator.attributes();
        // Those of running statistics are read only beside them.
        attributes
            .retain(|key| !key.starts_with("running_") || job.input.contains(Tensor::RunningMean));
        if let Some(left_out) = given.left_out(&attributes)? {
            job.warn(left_out);
        }
        let work = self.operator.work(&job, &given)?;
        if let Some(left_out) = job.input.left_out() {
            job.warn(left_out);
        }
        if let Some(group) = on.ranks {
            return shared::run(job, on.gpu, group, &work);
        }
        let gpu = job.open_gpu(on.gpu)?;
        match job.memory_budget {
            Some(budget) => streamed::run(job, &gpu, &work, budget),
            None => whole::run(job, &gpu, &work),
        }
    }
}

impl FromArgMatches for Operators {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = matches.subcommand();
        let known = given.and_then(|(name, flags)| {
            let mut all = operators().into_iter();
            let operator = all.find(|operator| operator.subcommand() == name)?;
            Some((operator, flags))
        });
        let (operator, flags) = known.ok_or(clap::Error::new(ErrorKind::InvalidSubcommand))?;
        Ok(Self {
            operator,
            files: FileArgs::from_arg_matches(flags)?,
            flags: flags.clone(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Subcommand for Operators {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        let subcommands = operators().into_iter().map(|operator| {
            let command = FileArgs::augment_args(clap::Command::new(operator.subcommand()));
            let command = command.args(operator.flags());
            // After the arguments, whose groups would replace these texts.
            command.about(operator.about).long_about(operator.help())
        });
        command.subcommands(subcommands)
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        let mut all = operators().into_iter();
        all.any(|operator| operator.subcommand() == name)
    }
}
