//! The dispatch that combines the sums of a group's channels.

use super::axes::Groups;
use super::finish::Partials;
use super::pack::PACK_WORKGROUP;
use super::workspace::{Region, Workspace};
use super::{Binding, Dispatch, Planner, div_ceil, group_sizes, threads, word};
use crate::Error;
use crate::kernels::{CombineGroups, CombineGroupsUniforms, Scalars, TIER};

use super::tensors::Tensors;

/// The most channels whose sums an invocation adds up.
const MOST_CHANNELS: u64 = 128 * TIER;

/// Records of the workspace, one for each channel of all samples.
#[derive(Clone, Copy)]
pub(super) struct ChannelRecords {
    /// The coefficients known before the sums.
    pub stats: Region,
    /// The sums; later, in their place, the records that the elementwise pass needs.
    pub sums: Region,
}

impl Planner<'_> {
    /// The sums of each channel, in a record of their own: those that a reduction left, or the totals of its partial
    /// sums.
    pub(super) fn sums_of_channels(
        &self,
        partials: Partials,
        workspace: &mut Workspace,
    ) -> Result<(Vec<Dispatch>, Region), Error> {
        if partials.is_sums() {
            return Ok((vec![], partials.region));
        }
        let (mut dispatches, partials) = self.add_subtotals(partials, workspace)?;
        let sums = workspace.reserve(self.subtotal_records(partials.channels))?;
        dispatches.push(self.add_to(&partials, sums, false)?);
        Ok((dispatches, sums))
    }

    pub(super) fn combine_groups(
        &self,
        groups: &Groups,
        tensors: &Tensors,
        records: ChannelRecords,
        scalars: Scalars,
    ) -> Result<Dispatch, Error> {
        let channels = u64::from(groups.group_channels);
        // Larger workgroups than elsewhere for very many channels.
        let fewest = word(div_ceil(channels, MOST_CHANNELS)).next_power_of_two();
        let most = self.workgroup(self.profile.tuning.workgroup.max(fewest));
        // They are shared like partial sums.
        let few = threads(most, channels, self.profile.tuning.channels_first_vec4s);
        let threads = match channels > u64::from(few) * TIER {
            true => most,
            false => few,
        };
        Error::check_limit(
            "a group",
            "channels whose sums a workgroup adds up",
            channels,
            u64::from(threads) * MOST_CHANNELS,
        )?;
        let workgroup_size = match threads {
            1 => self.workgroup(PACK_WORKGROUP),
            _ => most,
        };
        let vec4s = div_ceil(u64::from(groups.count), 4);
        let workgroups = self.workgroups(div_ceil(vec4s, u64::from(workgroup_size / threads)))?;
        let mut bindings = Vec::new();
        if self.body.statistics().is_empty() {
            bindings.extend(tensors.params().map(Binding::whole));
        }
        bindings.push(Binding::workspace());
        Ok(self.dispatch(
            CombineGroups {
                threads,
                mixed: groups.mixed.is_some(),
            },
            workgroup_size,
            bindings,
            &CombineGroupsUniforms {
                groups: group_sizes(groups),
                grid_width: workgroups[0],
                stats: records.stats.first,
                sums: records.sums.first,
                scalars,
            },
            workgroups,
        ))
    }
}
