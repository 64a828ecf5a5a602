// How a workgroup is divided into groups of `threads` invocations, a power of two. By bits, for a GPU has no
// instruction for a division, which takes a dozen.

// An invocation's place in its group.
fn thread_of(local: u32, threads: u32) -> u32 {
    return local & (threads - 1u);
}

// The group of an invocation; of as many invocations, the number of groups.
fn group_of(local: u32, threads: u32) -> u32 {
    return local >> firstTrailingBit(threads);
}
