// gamma and beta of four elements, or of four channels; and the gate, if there is one. src/kernels/params.rs makes
// their struct, and the functions that load and move them.

#import realigned

// Multiplies gamma and beta by the gate, unless gate · gamma, with some room for a factor r, is beyond the type, or below its normal numbers: then
// the gate stays apart, since gate · (x̂ · gamma + beta) may not be.
fn joined_params(params: Params) -> Params {
    if !gated { return params; }
    var joint = params;
    joint.gamma *= params.gate;
    joint.beta *= params.gate;
    joint.gate = real4(1.0);
    let is_joint = is_normal(joint.gamma) & is_normal(joint.gamma * real4(1048576.0));
    return select_params(params, joint, is_joint);
}
