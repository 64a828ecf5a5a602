// What bodies of forward passes share: what they take of four elements, and do with them after the normalization.

struct Element {
    x: real4,
    after: real4, // added to the layer's output
}

fn element_of(inputs: Inputs, coefficients: Coefficients) -> Element {
    if residual_after { return Element(inputs.src, inputs.residual); }
    return Element(inputs.src + inputs.residual, real4());
}

fn after_params(shifted: real4, element: Element, coefficients: Coefficients) -> real4 {
    var y = shifted;
    if gated { y *= coefficients.params.gate; }
    if residual_after { y += element.after; }
    return y;
}
