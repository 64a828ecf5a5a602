// The numbers that an operator needs beside its tensors, of a kernel's uniforms.

#import records

fn scalars() -> Scalars {
    return Scalars(uniforms.epsilon, uniforms.inverse_count, uniforms.running_weight, uniforms.running_correction);
}
