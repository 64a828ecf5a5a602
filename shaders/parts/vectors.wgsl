// A vector, which one load moves: `vector_vec4s` vec4s, a constant of the text, 1 or 2.

// Not a struct: FXC, which compiles for DirectX where DXC is not available, refuses to index arrays in structs.
alias Vector = array<real4, vector_vec4s>;

const vector_elements: u32 = 4u * vector_vec4s;
