//! Checks what every plan needs of a profile, and what a problem needs of it whatever its shape.

use crate::kernels::Body;
use crate::options::check_epsilon;
use crate::profile::STORAGE_BUFFERS;
use crate::tuning::SMALLEST_WORKGROUP;
use crate::{DType, DTypes, Error, Profile};

/// The profile within its bounds, on which kernels without checks rely. An error if no plan can run there, or none with
/// these types and this epsilon.
pub(crate) fn fit(profile: &Profile, types: DTypes, epsilon: f64) -> Result<Profile, Error> {
    let profile = profile.clone().within_bounds();
    let shared = u64::from(SMALLEST_WORKGROUP) * Body::FEWEST_REALS * DType::F64.size();
    Error::check_limit(
        "a plan",
        "max_storage_buffers_per_shader_stage",
        STORAGE_BUFFERS,
        profile.max_storage_buffers,
    )?;
    Error::check_limit(
        "a plan",
        "max_compute_invocations_per_workgroup",
        SMALLEST_WORKGROUP,
        profile.max_invocations,
    )?;
    Error::check_limit(
        "a plan",
        "max_compute_workgroup_storage_size",
        shared,
        profile.max_workgroup_storage,
    )?;
    profile.check_dtypes(types)?;
    check_epsilon(epsilon, types.data)?;
    Ok(profile)
}
