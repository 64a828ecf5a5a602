// Sums over the invocations of a workgroup that own the same columns: those whose indices are equal modulo
// `apart`. Their number is a power of two.

#import body, sum_across

// Every invocation calls it with its own share, and gets the sums of its columns.
fn sum_of_thread_rows(local: u32, apart: u32, own: Accumulator) -> Accumulator {
    if !add_thread_rows { return own; }
    let sum = sum_across(local, apart, workgroup_size, own);
    if workgroup_size > max(apart, subgroup_size) { workgroupBarrier(); } // the next columns' overwrite them
    return sum;
}
