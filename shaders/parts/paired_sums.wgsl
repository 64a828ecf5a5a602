// Partial sums of four columns side by side. Two columns share a record: `part` + column / 2 has (Σ, Σ·x̂) of
// an even column and of the next.

fn store_paired(part: u32, column: u32, sum: real4, sum_xhat: real4) {
    let to = part + column / 2u;
    store_workspace(to, real4(sum.x, sum_xhat.x, sum.y, sum_xhat.y));
    store_workspace(to + 1u, real4(sum.z, sum_xhat.z, sum.w, sum_xhat.w));
}
