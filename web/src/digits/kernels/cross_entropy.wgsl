// Softmax and cross entropy, with the gradient of the mean loss:
//
// loss[n] = ln Σ over c of exp(logits[n, c]) − logits[n, label[n]]
// diff_logits[n, c] = (exp(logits[n, c]) / Σ over k of exp(logits[n, k]) − (1 where c is label[n])) / N
//
// One invocation for each image.

const CLASSES = 10u;

@group(0) @binding(0) var<storage, read> logits: array<f32>; // [N, CLASSES]
@group(0) @binding(1) var<storage, read> label: array<u32>; // [N]
@group(0) @binding(2) var<storage, read_write> loss: array<f32>; // [N]
@group(0) @binding(3) var<storage, read_write> diff_logits: array<f32>; // [N, CLASSES]

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3u) {
    let n = id.x;
    let images = arrayLength(&loss);
    if n >= images {
        return;
    }
    let first = n * CLASSES;
    var largest = logits[first]; // subtracted, so that no power overflows
    for (var c = 1u; c < CLASSES; c++) {
        largest = max(largest, logits[first + c]);
    }
    var total = 0.0;
    for (var c = 0u; c < CLASSES; c++) {
        total += exp(logits[first + c] - largest);
    }
    loss[n] = log(total) + largest - logits[first + label[n]];
    for (var c = 0u; c < CLASSES; c++) {
        let wanted = select(0.0, 1.0, c == label[n]);
        diff_logits[first + c] = (exp(logits[first + c] - largest) / total - wanted) / f32(images);
    }
}
