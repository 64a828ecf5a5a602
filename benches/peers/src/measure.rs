//! Contenders take turns on one device; the clock runs from submission to completion.

use crate::Result;
use crate::case::Case;
use crate::gpu::Gpu;
use crate::peer::Peer;
use crate::tensors::{Results, Tensors};
use std::time::{Duration, Instant};

/// One way to compute a case on the device, its tensors at hand in [`Case::sets`] sets.
pub trait Contender {
    fn peer(&self) -> Peer;

    fn name(&self) -> &'static str;

    /// Computes with the first set and reads back, in the order of [`Results`]. Statistics that it keeps to itself are
    /// missing at the end.
    fn results(&self) -> Result<Vec<Vec<f32>>>;

    /// Computes once with a set; the time from enqueueing to the device's being done.
    fn time(&self, set: usize) -> Result<Duration>;
}

/// Makes the contenders of a case.
pub type Make<'a> = dyn Fn(&Case, &Tensors) -> Result<Vec<Box<dyn Contender + 'a>>> + 'a;

/// The time of work that is enqueued, then waited for. Its results are dropped later.
pub fn clock<T>(
    enqueue: impl FnOnce() -> Result<T>,
    wait: impl FnOnce() -> Result<()>,
) -> Result<Duration> {
    let start = Instant::now();
    let results = enqueue()?;
    wait()?;
    let time = start.elapsed();
    drop(results);
    Ok(time)
}

/// What is made of many times.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    /// The median of the rounds' medians.
    Median,
    /// The least of all: what other work on the machine slows least.
    Least,
}

impl Statistic {
    fn of(self, mut times: Vec<f64>) -> f64 {
        times.sort_by(f64::total_cmp);
        let middle = times.len() / 2;
        match self {
            Self::Least => times[0],
            Self::Median if times.len().is_multiple_of(2) => {
                (times[middle - 1] + times[middle]) / 2.0
            }
            Self::Median => times[middle],
        }
    }
}

pub struct Time {
    pub peer: Peer,
    pub name: &'static str,
    pub ms: f64,
}

/// How a case is timed.
#[derive(Clone, Copy)]
pub struct Settings {
    pub rounds: u32,
    pub statistic: Statistic,
    /// Added to src's numbers.
    pub mean: f32,
}

/// Largest error of a result, relative to its largest element.
const TOLERANCE: f64 = 1e-3;

/// Times every contender of a case whose results are right.
pub fn case(gpu: &Gpu, case: &Case, make: &Make<'_>, settings: Settings) -> Result<Vec<Time>> {
    let Settings {
        rounds,
        statistic,
        mean,
    } = settings;
    let tensors = Tensors::new(case, mean);
    let contenders = make(case, &tensors)?;
    let want = tensors.reference(case);
    drop(tensors);

    let mut right = Vec::new();
    for contender in contenders {
        match check(contender.as_ref(), &want) {
            Ok(()) => right.push(contender),
            Err(error) => {
                let (peer, name) = (contender.peer().name(), contender.name());
                println!("  {peer}, {name}: not timed: {error}");
            }
        }
    }
    drop(want);
    let contenders = right;
    let ours = contenders.iter().filter(|one| one.peer().is_ours()).count();
    if ours == 0 || ours == contenders.len() {
        return Err("nothing to compare".into());
    }

    // Warm: kernels compiled, autotuning done, pools grown, clocks up. Then as many runs a round as
    // make it longer than the clock's and the scheduler's noise.
    let time = |contender: &dyn Contender, turn: u32| contender.time(turn as usize % case.sets());
    let mut runs = Vec::new();
    for contender in &contenders {
        let contender = contender.as_ref();
        time(contender, 0)?;
        let warm = time(contender, 1)?.min(time(contender, 2)?);
        runs.push((0.03 / warm.as_secs_f64()).clamp(1.0, 20.0) as u32);
    }
    let mut of_rounds = vec![Vec::new(); contenders.len()];
    for round in 0..rounds {
        for ((contender, runs), of_rounds) in contenders.iter().zip(&runs).zip(&mut of_rounds) {
            let times = (round * runs..(round + 1) * runs)
                .map(|turn| Ok(time(contender.as_ref(), turn)?.as_secs_f64() * 1e3))
                .collect::<Result<Vec<f64>>>()?;
            of_rounds.push(statistic.of(times));
        }
    }
    let times = contenders.iter().zip(of_rounds);
    let times = times.map(|(contender, of_rounds)| Time {
        peer: contender.peer(),
        name: contender.name(),
        ms: statistic.of(of_rounds),
    });
    let times = times.collect();

    // The next case's tensors need the room.
    drop(contenders);
    gpu.clean_up()?;
    Ok(times)
}

/// Which result of a contender is wrong, and by how much; times of wrong results mean nothing.
fn check(contender: &dyn Contender, want: &Results) -> Result<()> {
    for ((what, want), got) in want.iter().zip(contender.results()?) {
        if want.len() != got.len() {
            let (want, got) = (want.len(), got.len());
            return Err(format!("{what} has {got} elements, not {want}").into());
        }
        let difference = difference(want, &got);
        if difference.is_nan() || difference >= TOLERANCE {
            return Err(format!("{what} is wrong by {difference:.1e}").into());
        }
    }
    Ok(())
}

fn difference(want: &[f32], got: &[f32]) -> f64 {
    // Not f32::max, which would drop a NaN.
    let largest = |largest: f64, x: f64| {
        if x > largest || x.is_nan() {
            x
        } else {
            largest
        }
    };
    let scale = want
        .iter()
        .map(|&x| f64::from(x).abs())
        .fold(f64::MIN_POSITIVE, largest);
    let pairs = want.iter().zip(got);
    pairs
        .map(|(&x, &y)| (f64::from(x) - f64::from(y)).abs())
        .fold(0.0, largest)
        / scale
}
