// How a workgroup is divided into teams of `threads` invocations, a power of two. Computed by bits, since a GPU has no
// instruction for division, which takes a dozen.

// An invocation's position in its team.
fn thread_of(local: u32, threads: u32) -> u32 {
    return local & (threads - 1u);
}

// An invocation's team; for a number of invocations, the number of teams.
fn team_of(local: u32, threads: u32) -> u32 {
    return local >> firstTrailingBit(threads);
}
