// Takes the numbers that an operator needs besides its tensors from a kernel's uniforms.

#import records

fn scalars() -> Scalars {
    return Scalars(uniforms.epsilon, uniforms.inverse_count, uniforms.running_weight, uniforms.running_correction);
}
