//! The dispatches that add partial sums and derive what follows from the sums.

use super::pack::PACK_WORKGROUP;
use super::workspace::{Part, Workspace};
use super::{Binding, Dispatch, Planner, Requirement, div_ceil, threads, word};
use crate::Shards;
use crate::kernels::{Body, Finish, FinishUniforms, Scalars};
use crate::{Error, Tensor};

/// Partial sums of channels, as a reduction left them: channel c's part p is record
/// c · channel_stride + split · part_stride + k · channels · inner + i of `part`, with
/// p = (split · repeats + k) · inner + i.
pub(crate) struct Partials {
    pub part: Part,
    pub channels: u32,
    pub channel_stride: u64,
    /// Parts of a channel.
    pub parts: u64,
    pub part_stride: u64,
    pub repeats: u64,
    pub inner: u32,
    /// Two channels share a record: c is half of record c / 2.
    pub paired: bool,
}

impl Partials {
    /// One part in each split.
    pub fn plain(part: Part, channels: u32, parts: u64, part_stride: u64) -> Self {
        Self {
            part,
            channels,
            channel_stride: 1,
            parts,
            part_stride,
            repeats: 1,
            inner: 1,
            paired: false,
        }
    }

    /// One part in each split, two channels to a record. Channels come in whole vec4s, or there is one part, which is
    /// reserved in whole vec4s.
    pub fn paired(part: Part, channels: u32, parts: u64) -> Self {
        Self {
            paired: true,
            ..Self::plain(part, channels, parts, u64::from(channels) / 2)
        }
    }

    /// Whether they are the channels' sums themselves, side by side.
    pub fn is_sums(&self) -> bool {
        self.parts == 1 && self.channel_stride == 1 && !self.paired
    }

    /// No partial sums: every sum is 0. `part` is any place in the workspace.
    pub fn none(channels: u32, part: Part) -> Self {
        Self::plain(part, channels, 0, 0)
    }
}

/// Parts that an invocation adds, at most; of more, groups are added first. In the kernel's three tiers no more than 32
/// numbers follow one another.
const MOST_PARTS: u64 = 1024;

/// Where a channel's sums come from, and where they go.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Route {
    /// From partial sums to the results.
    Whole,
    /// From partial sums to the buffer `sums`.
    ToSums,
    /// From the buffer `sums` to the results.
    FromSums,
}

/// What the sums of channels of `count` elements become.
#[derive(Clone)]
pub(crate) struct Derived {
    pub count: u64,
    /// Tensors that are read for it, and what is written; each line together.
    pub operands: Vec<Vec<Requirement>>,
    /// What the elementwise pass needs of them, which the first line is read for.
    pub means: Option<Part>,
    pub scalars: Scalars,
    pub shards: Shards,
}

impl Derived {
    /// From sums of so many elements, by plain means.
    pub fn of(count: u64) -> Self {
        Self {
            count,
            operands: Vec::new(),
            means: None,
            scalars: Scalars {
                epsilon: 0.0,
                inverse_count: 1.0 / f64::from(word(count).max(1)),
                running_weight: 0.0,
                running_correction: 0.0,
            },
            shards: Shards::default(),
        }
    }
}

/// Elements of the buffer `sums`: two sums of each channel, then their number; or a record of each channel, of each
/// part of the batch.
pub(super) fn sums_elements(body: Body, channels: u64, shards: Shards) -> u64 {
    match body.pairs() {
        true => 2 * channels + 1,
        false => 4 * channels * u64::from(shards.count),
    }
}

impl Planner<'_> {
    /// Records of the sums of a group of each channel's parts.
    pub fn group_records(&self, channels: u32) -> u64 {
        let of_four = if self.body.pairs() { 2 } else { 4 };
        of_four * div_ceil(u64::from(channels), 4)
    }

    /// Sums of groups of parts, each in whole vec4s.
    pub fn groups(&self, part: Part, channels: u32, groups: u64) -> Partials {
        let sums = match self.body.pairs() {
            true => Partials::paired(part, channels, groups),
            false => Partials::plain(part, channels, groups, 0),
        };
        Partials {
            part_stride: self.group_records(channels),
            ..sums
        }
    }

    /// Adds groups of parts until there are so few that a workgroup adds them all: the dispatches, and the sums that
    /// they leave.
    pub fn group(
        &self,
        partials: Partials,
        workspace: &mut Workspace,
    ) -> Result<(Vec<Dispatch>, Partials), Error> {
        let mut dispatches = Vec::new();
        let mut partials = partials;
        let threads = u64::from(self.workgroup(self.profile.tuning.workgroup));
        let group_parts = threads * MOST_PARTS;
        while partials.parts > group_parts {
            let groups = div_ceil(partials.parts, group_parts);
            let part = workspace.reserve(groups * self.group_records(partials.channels))?;
            let sums = self.groups(part, partials.channels, groups);
            dispatches.push(self.sums(
                &partials,
                &Sums::OfGroups {
                    parts: group_parts,
                    at: part,
                    added: false,
                },
            )?);
            partials = sums;
        }
        Ok((dispatches, partials))
    }

    /// Adds partial sums to `total`, a group of its own, or begins it with them.
    pub fn add_to(&self, partials: &Partials, total: Part, begun: bool) -> Result<Dispatch, Error> {
        let added = begun;
        self.sums(
            partials,
            &Sums::OfGroups {
                parts: partials.parts,
                at: total,
                added,
            },
        )
    }

    /// Adds partial sums, and derives what follows from the sums: in one dispatch if it can bind all that takes, else in
    /// one for each line of operands.
    pub fn finish(
        &self,
        partials: &Partials,
        derived: &Derived,
        route: Route,
    ) -> Result<Vec<Dispatch>, Error> {
        let all = derived.operands.iter().map(Vec::len).sum::<usize>();
        let scratch = if route == Route::Whole { 1 } else { 2 };
        if route == Route::ToSums || all + scratch <= self.profile.max_storage_buffers as usize {
            let operands = derived.operands.concat();
            let sums = Sums::OfChannels(derived, &operands, derived.means, route);
            return Ok(vec![self.sums(partials, &sums)?]);
        }
        let lines = derived
            .operands
            .iter()
            .zip([derived.means].into_iter().chain(std::iter::repeat(None)));
        lines
            .map(|(line, means)| {
                self.sums(partials, &Sums::OfChannels(derived, line, means, route))
            })
            .collect()
    }

    fn sums(&self, partials: &Partials, sums: &Sums<'_>) -> Result<Dispatch, Error> {
        let most = self.workgroup(self.profile.tuning.workgroup);
        let none = Partials::none(partials.channels, partials.part);
        let partials = match sums {
            Sums::OfChannels(.., Route::FromSums) => &none,
            _ => partials,
        };
        let (group_parts, groups_at) = match sums {
            Sums::OfGroups { parts, at, .. } => (*parts, at.first),
            Sums::OfChannels(..) => (partials.parts, 0),
        };
        // Four parts count as a vec4: both are four additions.
        let threads = threads(most, group_parts, self.profile.tuning.channels_first_vec4s);
        // The bound on a group is for all of them.
        let threads = match group_parts > u64::from(threads) * MOST_PARTS {
            true => most,
            false => threads,
        };
        let workgroup_size = match threads {
            1 => self.workgroup(PACK_WORKGROUP),
            _ => most,
        };
        let vec4s = div_ceil(u64::from(partials.channels), 4);
        let channel_tiles = div_ceil(vec4s, u64::from(workgroup_size / threads));
        let groups = div_ceil(partials.parts, group_parts).max(1);
        let workgroups = self.workgroups(channel_tiles * groups)?;
        let mut bindings = vec![Binding::workspace()];
        let mut kernel = Finish {
            threads,
            plain: partials.repeats * u64::from(partials.inner) == 1,
            paired: partials.paired,
            grouped: false,
            added: false,
            from_sums: false,
            to_sums: false,
            derive: false,
        };
        let of_groups = Derived::of(0);
        let mut uniforms = (&of_groups, 0);
        match sums {
            Sums::OfGroups { added, .. } => {
                kernel.grouped = true;
                kernel.added = *added;
            }
            Sums::OfChannels(derived, operands, means, route) => {
                let results = *route != Route::ToSums;
                if *route != Route::Whole {
                    let sums = sums_elements(self.body, partials.channels.into(), derived.shards);
                    bindings.push(Binding {
                        tensor: Tensor::Sums,
                        bytes: 0..sums * self.data.accumulator().size(),
                    });
                }
                if results {
                    bindings.extend(operands.iter().map(Binding::whole));
                }
                kernel.from_sums = *route == Route::FromSums;
                kernel.to_sums = *route == Route::ToSums;
                kernel.derive = results && means.is_some();
                uniforms = (derived, means.map_or(0, |part| part.first));
            }
        }
        let (derived, means) = uniforms;
        Ok(self.dispatch(
            kernel,
            workgroup_size,
            bindings,
            &FinishUniforms {
                channels: partials.channels,
                channel_stride: word(partials.channel_stride),
                channel_tiles: word(channel_tiles),
                parts: word(partials.parts),
                part_stride: word(partials.part_stride),
                group_parts: word(group_parts),
                repeats: word(partials.repeats),
                inner: partials.inner,
                grid_width: workgroups[0],
                partials: partials.part.first,
                groups: groups_at,
                means,
                shards: derived.shards.count,
                shard: derived.shards.index,
                count: derived.count as f64,
                scalars: derived.scalars,
            },
            workgroups,
        ))
    }
}

/// What parts are added to.
enum Sums<'a> {
    /// Sums of groups of so many parts, which go back to the workspace, or are added to what is there.
    OfGroups { parts: u64, at: Part, added: bool },
    /// The sums of channels and what follows from them: by these operands, and for the elementwise pass.
    OfChannels(&'a Derived, &'a [Requirement], Option<Part>, Route),
}
