//! Checks what every plan needs of a profile, and what a problem needs of it whatever its shape.

use crate::element::{DType, DTypes};
use crate::error::Error;
use crate::kernels::Body;
use crate::options::check_epsilon;
use crate::profile::{Profile, STORAGE_BUFFERS};
use crate::tuning::SMALLEST_WORKGROUP;

/// The profile within its bounds, on which kernels without checks rely. An error if no plan can run there, or none with
/// these types and this epsilon.
pub(crate) fn fit(profile: &Profile, types: DTypes, epsilon: f64) -> Result<Profile, Error> {
    let profile = profile.clone().within_bounds();
    let shared = u64::from(SMALLEST_WORKGROUP) * Body::FEWEST_REALS * DType::F64.size();
    let name = "max_storage_buffers_per_shader_stage";
    Error::check_limit("a plan", name, STORAGE_BUFFERS, profile.max_storage_buffers)?;
    let name = "max_compute_invocations_per_workgroup";
    Error::check_limit("a plan", name, SMALLEST_WORKGROUP, profile.max_invocations)?;
    let name = "max_compute_workgroup_storage_size";
    Error::check_limit("a plan", name, shared, profile.max_workgroup_storage)?;
    profile.check_dtypes(types)?;
    check_epsilon(epsilon, types.data)?;
    Ok(profile)
}
