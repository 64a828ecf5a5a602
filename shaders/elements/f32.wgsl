// The type that sums and everything between storage and storage are kept in.

alias real = f32;
alias real2 = vec2<f32>;
alias real4 = vec4<f32>;
