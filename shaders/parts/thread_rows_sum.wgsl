// Sums over the invocations of a workgroup that own the same columns: those whose indices are equal modulo
// `threads_per_row`. Their number is a power of two. They add in a tree, in an order that never changes.

#import body, threads

var<workgroup> shared_sums: array<Accumulator, workgroup_size>;

// Every invocation calls it with its own share, and gets the sums of its columns.
fn sum_of_thread_rows(local: u32, threads_per_row: u32, own: Accumulator) -> Accumulator {
    if !add_thread_rows { return own; }
    shared_sums[local] = own;
    workgroupBarrier();
    for (var half = workgroup_size / 2u; half >= threads_per_row; half /= 2u) {
        if local < half {
            shared_sums[local] = merge(shared_sums[local], shared_sums[local + half]);
        }
        workgroupBarrier();
    }
    let total = shared_sums[thread_of(local, threads_per_row)];
    workgroupBarrier(); // they may be overwritten
    return total;
}
