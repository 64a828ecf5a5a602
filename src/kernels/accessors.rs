//! How a tensor lies in storage, and the functions by which kernels read and write it.
//!
//! * `load_TENSOR(vec4) -> real4`, `store_TENSOR(vec4, value)`
//! * `store_lanes_TENSOR(vec4, value, lanes)`: those of four elements from `lanes.x` to `lanes.y`. Elements of 16 bits
//!   begin with a word, and where the tensor ends within one, its upper half is padding that belongs to the tensor; it
//!   becomes 0. In words of 64 bits all of them begin with the first.
//! * `store_one_TENSOR(index, value)`: one element, of 32 bits or 64.
//! * `store_some_TENSOR(vec4, value, some)`: the words whose elements are all among `some`.
//! * `load_vector_TENSOR`, `store_vector_TENSOR`, `store_first_vector_TENSOR`: the same for vectors.

use crate::element::DType;
use std::fmt::Write;

/// How a kernel reads and writes the storage of its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Four elements at once: a vector, of 32-bit words for types of 16 bits.
    Vec4,
    /// Four elements at once, in 64-bit words: half as many for a driver that moves them one by one.
    LongWords,
    /// Word by word, none beyond the tensor's end.
    Exact,
}

/// How a tensor lies in storage.
#[derive(Clone, Copy)]
pub(super) struct Storage {
    pub dtype: DType,
    pub access: Access,
    /// An element of the binding's array is a vector of two vec4s.
    pub wide: bool,
    /// The halves of a word may be stored at the same time, so words are atomic.
    pub shared: bool,
}

/// A tensor's functions.
pub(super) struct Accessors<'a> {
    pub storage: Storage,
    /// The tensor, and the binding through which it is read and written.
    pub tensor: &'a str,
    pub array: &'a str,
    /// The uniform that holds its length.
    pub length: &'a str,
}

impl Storage {
    /// Elements in a word of 32 bits, or for f64 of 64.
    fn elements_of_a_word(&self) -> usize {
        match self.dtype {
            DType::F16 | DType::Bf16 => 2,
            DType::F32 | DType::F64 => 1,
        }
    }

    fn is_half(&self) -> bool {
        self.elements_of_a_word() == 2
    }

    /// WGSL's type of an element of the binding's array.
    pub fn element(&self) -> &'static str {
        match (self.is_half(), self.access, self.wide) {
            (false, Access::Exact, _) => "real",
            (false, Access::Vec4, _) => "real4",
            (false, Access::LongWords, false) => "vec2<u64>",
            (false, Access::LongWords, true) => "vec4<u64>",
            (true, Access::Exact, _) if self.shared => "atomic<u32>",
            (true, Access::Exact, _) => "u32",
            (true, Access::Vec4, false) => "vec2<u32>",
            (true, Access::Vec4, true) => "vec4<u32>",
            (true, Access::LongWords, false) => "u64",
            (true, Access::LongWords, true) => "vec2<u64>",
        }
    }

    /// Decodes four elements from storage to reals.
    fn decode(&self, stored: &str) -> String {
        let dtype = self.dtype;
        match (self.is_half(), self.access) {
            (false, Access::LongWords) => format!("real_of_longs({stored})"),
            (false, _) => stored.to_owned(),
            (true, Access::LongWords) => format!("decode_{dtype}(split_long({stored}))"),
            (true, _) => format!("decode_{dtype}({stored})"),
        }
    }

    /// Encodes four reals for storage.
    fn encode(&self, value: &str) -> String {
        let dtype = self.dtype;
        match (self.is_half(), self.access) {
            (false, Access::LongWords) => format!("longs_of_real({value})"),
            (false, _) => value.to_owned(),
            (true, Access::LongWords) => format!("join_long(encode_{dtype}({value}))"),
            (true, _) => format!("encode_{dtype}({value})"),
        }
    }

    /// The two vec4s of a wide element, and the constructor that joins them.
    fn halves(&self) -> ([&'static str; 2], &'static str) {
        match (self.is_half(), self.access) {
            (true, Access::LongWords) => (["x", "y"], "vec2"),
            _ => (["xy", "zw"], "vec4"),
        }
    }
}

impl Accessors<'_> {
    /// The function that reads four elements and adds 1 to them.
    pub fn load_plus_one(&self) -> String {
        let name = self.tensor;
        let stored = Accessors {
            tensor: "stored",
            ..*self
        };
        let load = format!(
            "fn load_{name}(vec4_index: u32) -> real4 {{
    return load_stored(vec4_index) + real4(1.0);
}}
"
        );
        stored.load() + &load
    }

    /// The function that reads four elements, or a vector where elements are read only in vectors.
    pub fn load(&self) -> String {
        let Self { tensor, array, .. } = self;
        let storage = &self.storage;
        if storage.wide {
            let ([first, second], _) = storage.halves();
            return format!(
                "fn load_vector_{tensor}(vector: u32) -> Vector {{
    let stored = {array}[vector];
    return Vector({}, {});
}}
",
                storage.decode(&format!("stored.{first}")),
                storage.decode(&format!("stored.{second}"))
            );
        }
        let body = match storage.access {
            Access::Exact => {
                let of_a_word = storage.elements_of_a_word();
                let words = 4 / of_a_word;
                let read = |place: String| {
                    if storage.shared {
                        format!("atomicLoad(&{place})")
                    } else {
                        place
                    }
                };
                let reads = (0..words).map(|i| read(format!("{array}[min(first + {i}u, last)]")));
                let vector = if storage.is_half() { "vec2" } else { "real4" };
                let reads = reads.collect::<Vec<_>>().join(", ");
                format!(
                    "    // No word beyond the tensor's end is touched.
    let first = {words}u * vec4_index;
    let last = (max(uniforms.{}, 1u) - 1u) / {of_a_word}u;
    return {};
",
                    self.length,
                    storage.decode(&format!("{vector}({reads})"))
                )
            }
            _ => format!(
                "    return {};\n",
                storage.decode(&format!("{array}[vec4_index]"))
            ),
        };
        format!("fn load_{tensor}(vec4_index: u32) -> real4 {{\n{body}}}\n")
    }

    /// The function that reads diff_dst, with 0 for elements that the mask leaves out. Bit i of word w belongs to
    /// element 32 · w + i. The mask's binding begins at the last multiple of `mask_unit` elements at or before the
    /// data's.
    pub fn load_masked(&self, has_window: bool) -> String {
        let name = self.tensor;
        let unmasked = Accessors {
            storage: self.storage,
            tensor: "unmasked",
            ..*self
        };
        let before = if has_window {
            "uniforms.window % mask_unit / 4u + "
        } else {
            ""
        };
        let load = if self.storage.wide {
            format!(
                "fn load_vector_{name}(vector: u32) -> Vector {{
    let all = load_vector_unmasked(vector);
    return Vector(masked(all[0], 2u * vector), masked(all[1], 2u * vector + 1u));
}}
"
            )
        } else {
            format!(
                "fn load_{name}(vec4_index: u32) -> real4 {{
    return masked(load_unmasked(vec4_index), vec4_index);
}}
"
            )
        };
        format!(
            "{}
fn masked(value: real4, vec4_index: u32) -> real4 {{
    let place = {before}vec4_index;
    let bits = mask[place / 8u] >> (4u * (place % 8u));
    return select(real4(), value, (vec4(bits) & vec4(1u, 2u, 4u, 8u)) != vec4(0u));
}}

{load}",
            unmasked.load()
        )
    }

    /// The functions that write four elements, and the first of them.
    pub fn store(&self) -> String {
        let Self { tensor, array, .. } = self;
        let storage = &self.storage;
        if storage.wide {
            let (_, join) = storage.halves();
            return format!(
                "fn store_vector_{tensor}(vector: u32, value: Vector) {{
    {array}[vector] = {join}({}, {});
}}

// A tensor that is stored by vectors of two vec4s ends with one.
fn store_first_vector_{tensor}(vector: u32, value: Vector, count: u32) {{
    store_vector_{tensor}(vector, value);
}}
",
                storage.encode("value[0]"),
                storage.encode("value[1]")
            );
        }
        let all = match storage.access {
            Access::Exact => format!("store_lanes_{tensor}(vec4_index, value, vec2(0u, 4u))"),
            _ => format!("{array}[vec4_index] = {}", storage.encode("value")),
        };
        format!(
            "fn store_{tensor}(vec4_index: u32, value: real4) {{
    {all};
}}

fn store_lanes_{tensor}(vec4_index: u32, value: real4, lanes: vec2<u32>) {{
{}}}
",
            match storage.access {
                Access::LongWords => self.store_some_of_long_words(),
                _ => self.store_words(|first| format!("lanes.x <= {first}u && {first}u < lanes.y")),
            }
        )
    }

    /// Stores one by one the words for whose first element `condition` holds.
    fn store_words(&self, condition: impl Fn(usize) -> String) -> String {
        let storage = &self.storage;
        let of_a_word = storage.elements_of_a_word();
        let words = 4 / of_a_word;
        let mut text = if storage.is_half() {
            let inside = "select(real4(), value, vec4(0u, 1u, 2u, 3u) < vec4(lanes.y))";
            format!("    let words = encode_{}({inside});\n", storage.dtype)
        } else {
            "    let words = value;\n".to_owned()
        };
        for (i, component) in ["x", "y", "z", "w"].into_iter().take(words).enumerate() {
            let place = match storage.access {
                Access::Exact => format!("{}[{words}u * vec4_index + {i}u]", self.array),
                _ => format!("{}[vec4_index].{component}", self.array),
            };
            let condition = condition(i * of_a_word);
            let store = if storage.shared {
                format!("atomicStore(&{place}, words.{component})")
            } else {
                format!("{place} = words.{component}")
            };
            let _ = writeln!(text, "    if {condition} {{ {store}; }}");
        }
        text
    }

    /// Keeps the words after those of the lanes.
    fn store_some_of_long_words(&self) -> String {
        let array = self.array;
        if self.storage.is_half() {
            format!(
                "    var words = encode_{}(select(real4(), value, vec4(0u, 1u, 2u, 3u) < vec4(lanes.y)));
    if lanes.y < 3u {{ words.y = split_long({array}[vec4_index]).y; }}
    if lanes.y > 0u {{ {array}[vec4_index] = join_long(words); }}
",
                self.storage.dtype
            )
        } else {
            format!(
                "    let behind = vec4(0u, 1u, 2u, 3u) >= vec4(lanes.y);
    let words = select(bitcast<vec4<u32>>(value), bitcast<vec4<u32>>(real_of_longs({array}[vec4_index])), behind);
    if lanes.y > 0u {{ {array}[vec4_index] = vec2(join_long(words.xy), join_long(words.zw)); }}
"
            )
        }
    }

    /// The function that writes one element, which shares no word with others.
    pub fn store_one(&self) -> String {
        let Self { tensor, array, .. } = self;
        format!(
            "fn store_one_{tensor}(index: u32, value: real) {{\n    {array}[index] = value;\n}}\n"
        )
    }

    /// The function that writes some words of four elements, for a vec4 of which other invocations store words, too.
    pub fn store_some(&self) -> String {
        let tensor = self.tensor;
        if self.storage.shared {
            return self.store_halves();
        }
        let inside = if self.storage.is_half() {
            "vec2(some.x && some.y, some.z && some.w)"
        } else {
            "some"
        };
        let of_a_word = self.storage.elements_of_a_word();
        let component = |first: usize| ["x", "y", "z", "w"].get(first / of_a_word).copied();
        let condition = |first| format!("inside.{}", component(first).unwrap_or_default());
        format!(
            "fn store_some_{tensor}(vec4_index: u32, value: real4, some: vec4<bool>) {{
    let inside = {inside};
    let lanes = vec2(0u, 4u);
{}}}
",
            self.store_words(condition)
        )
    }

    /// The same function where two rows may share a word: each stores its half, and elements past the tensor's end
    /// become 0.
    fn store_halves(&self) -> String {
        let Self { tensor, array, .. } = self;
        format!(
            "fn store_some_{tensor}(vec4_index: u32, value: real4, some: vec4<bool>) {{
    let behind = vec4(4u * vec4_index) + vec4(0u, 1u, 2u, 3u) >= vec4(uniforms.{});
    let halves = select(vec4(0u), vec4(0xffffu, 0xffff0000u, 0xffffu, 0xffff0000u), some | behind);
    let words = encode_{}(select(real4(), value, some));
    if some.x || some.y {{ store_halves_{tensor}(2u * vec4_index, words.x, halves.x | halves.y); }}
    if some.z || some.w {{ store_halves_{tensor}(2u * vec4_index + 1u, words.y, halves.z | halves.w); }}
}}

fn store_halves_{tensor}(index: u32, word: u32, own: u32) {{
    if own == 0xffffffffu {{
        atomicStore(&{array}[index], word);
    }} else {{
        // No other invocation changes this half.
        atomicXor(&{array}[index], (atomicLoad(&{array}[index]) ^ word) & own);
    }}
}}
",
            self.length, self.storage.dtype
        )
    }
}

/// The function that reads a vector of one vec4 or two, one by one. It has no loop: lavapipe unrolls loops around at
/// most one.
pub(super) fn load_vectors(tensor: &str, vec4s: u32) -> String {
    let loads = match vec4s {
        1 => format!("load_{tensor}(vector)"),
        _ => format!("load_{tensor}(2u * vector), load_{tensor}(2u * vector + 1u)"),
    };
    format!("fn load_vector_{tensor}(vector: u32) -> Vector {{\n    return Vector({loads});\n}}\n")
}

/// The functions that write such a vector.
pub(super) fn store_vectors(tensor: &str, vec4s: u32) -> String {
    let (all, some) = match vec4s {
        1 => (
            format!("    store_{tensor}(vector, value[0]);\n"),
            format!("    store_lanes_{tensor}(vector, value[0], vec2(0u, count));\n"),
        ),
        _ => (
            format!(
                "    store_{tensor}(2u * vector, value[0]);
    store_{tensor}(2u * vector + 1u, value[1]);
"
            ),
            format!(
                "    store_lanes_{tensor}(2u * vector, value[0], vec2(0u, min(count, 4u)));
    store_lanes_{tensor}(2u * vector + 1u, value[1], vec2(0u, max(count, 4u) - 4u));
"
            ),
        ),
    };
    format!(
        "fn store_vector_{tensor}(vector: u32, value: Vector) {{
{all}}}

fn store_first_vector_{tensor}(vector: u32, value: Vector, count: u32) {{
{some}}}
"
    )
}

/// The function for a tensor that is not bound: every element reads as one value.
pub(super) fn absent_load(tensor: &str, value: &str) -> String {
    format!("fn load_{tensor}(vec4_index: u32) -> real4 {{\n    return {value};\n}}\n")
}

/// The functions for a tensor that is not bound: nothing is written.
pub(super) fn absent_store(tensor: &str) -> String {
    format!(
        "fn store_{tensor}(vec4_index: u32, value: real4) {{}}
fn store_lanes_{tensor}(vec4_index: u32, value: real4, lanes: vec2<u32>) {{}}
"
    )
}

/// The function for a tensor whose elements are not written singly.
pub(super) fn absent_store_one(tensor: &str) -> String {
    format!("fn store_one_{tensor}(index: u32, value: real) {{}}\n")
}

/// The functions that read and write the sums of all channels, one by one.
pub(super) fn sums(bound: bool) -> String {
    let (load, store) = if bound {
        ("sums[index]", "\n    sums[index] = value;\n")
    } else {
        ("real()", "")
    };
    format!(
        "fn load_of_sums(index: u32) -> real {{\n    return {load};\n}}

fn store_of_sums(index: u32, value: real) {{{store}}}
"
    )
}
