// gamma and beta of four cells.
//
// Needs: records.

fn load_params(vec4_index: u32) -> Params {
    return Params(load_gamma(vec4_index), load_beta(vec4_index));
}
