#![no_main]

use wgpu_norm::{
    Activation, Backward, Channels, DType, DTypes, DataFormat, Epilogue, Forward, Norm, Operation,
    Pass, Profile, Residual, RunningUpdate, RunningVariance, Through,
};

/// Bytes that become numbers, and zeros after their end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        u64::from_le_bytes([(); 8].map(|()| self.byte()))
    }

    /// Small numbers more often than any.
    fn size(&mut self) -> usize {
        match self.byte() % 4 {
            0 => self.number() as usize,
            1 => 1 << (self.byte() % 34),
            _ => self.byte().into(),
        }
    }

    fn axes(&mut self) -> Vec<i64> {
        (0..self.byte() % 10)
            .map(|_| (self.byte() as i8).into())
            .collect()
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.byte() as usize % choices.len()]
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut bytes = Bytes(bytes);
    let shape: Vec<_> = (0..bytes.byte() % 10).map(|_| bytes.size()).collect();
    let format = bytes.of(&[DataFormat::Ncx, DataFormat::Nxc]);
    let axis = (bytes.byte() as i8).into();
    let norm = match bytes.byte() % 7 {
        0 => Norm::batch(format),
        1 => Norm::Batch(Channels::Broadcast(
            (0..bytes.byte() % 10).map(|_| bytes.size()).collect(),
        )),
        2 => Norm::group(bytes.size(), format),
        3 => Norm::instance(format),
        4 => Norm::layer(axis),
        5 => Norm::rms(axis),
        _ => Norm::axes(&bytes.axes(), &bytes.axes()).centered(bytes.byte() % 2 == 0),
    };
    let pass: Pass = match bytes.byte() % 4 {
        0 => {
            let weight = f64::from_bits(bytes.number());
            let update = RunningUpdate::new(weight, RunningVariance::Unbiased);
            Forward::default().with_running(update).into()
        }
        1 => Forward::default().into(),
        2 => Pass::Inference,
        _ => {
            let through = bytes.of(&[Through::Batch, Through::Constant]);
            Backward::default().with_through(through).into()
        }
    };
    let [data, params, statistics] = [(); 3].map(|()| bytes.of(&DType::ALL));
    let types = DTypes::from((data, params)).with_statistics(statistics);
    let residual = bytes.of(&[
        Residual::None,
        Residual::None,
        Residual::Before,
        Residual::After,
    ]);
    let (_, activation) = bytes.of(Activation::NAMES);
    let epsilon = if bytes.byte() % 2 == 0 {
        1e-5
    } else {
        f64::from_bits(bytes.number())
    };
    let operation = Operation::new(norm, pass, &shape, types)
        .with_epsilon(epsilon)
        .with_params(bytes.byte() % 2 == 0, bytes.byte() % 2 == 0)
        .with_zero_centered_gamma(bytes.byte() % 2 == 0)
        .with_gate(bytes.byte() % 4 == 0)
        .with_epilogue(Epilogue::new(residual, activation));
    let _ = operation.tensors();
    let _ = operation.gradient();
    let mut profile = Profile::webgpu("fuzzed");
    if bytes.byte() % 2 == 0 {
        profile.max_binding = bytes.number();
        profile.max_workgroups = bytes.number() as u32;
    }
    if let Ok(plan) = operation.plan(&profile) {
        assert_eq!(plan.operation(), &operation);
        let _ = (plan.buffers(), plan.workspace_bytes());
    }
});
