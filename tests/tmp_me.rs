#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code, unused)]
#[path = "library/common/mod.rs"] mod common;
use common::data::*; use common::subjects; use wgpu_norm::*;
#[test] fn all() {
  for subject in subjects() { for norm in [Norm::batch(DataFormat::Ncx), Norm::Layer{begin_axis:-1}, Norm::Rms{begin_axis:-1}, Norm::Group{groups:2,format:DataFormat::Nxc}] {
    let f = Operation::new(norm, Forward::default(), &[3,5,4], DType::F32); 
    Problem::random(&f, 3).check(subject, "f");
    Problem::random(&f.gradient(ParamGrads::Both).unwrap(), 3).check(subject, "b");
    }
    let f = Operation::new(Norm::batch(DataFormat::Ncx), Forward::default(), &[3,5,7], DType::F32).with_epilogue(Epilogue::new(Residual::After, Activation::Relu));
    Problem::random(&f, 3).check(subject, "f");
    Problem::random(&f.gradient(ParamGrads::Both).unwrap(), 3).check(subject, "b");
    let p = common::errors::problem(); common::errors::still_works(subject);
  }
}
