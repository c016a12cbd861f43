//! Owns the numbers that keep parsing, decoding and evaluating finite. Knows nothing of what they bound.

/// Bytes of one condition, or of the inside of one `${{ }}`.
pub const MAX_SOURCE: usize = 4 * 1024;

/// How deep operators, calls and brackets may nest; a lone leaf is 1 deep.
pub const MAX_DEPTH: usize = 32;

/// Units of work that one evaluation may spend. Visiting a node costs one; so do 256 bytes of text compared,
/// searched, joined or written, 16 elements looked at, and 8 values read from JSON.
pub const FUEL: u64 = 10_000;

/// Bytes of the compact JSON of a result, and of any text made on the way to it.
pub const MAX_RESULT: usize = 1024 * 1024;

/// Bytes of all the text around and inside the `${{ }}` of one string: instructions are templates too.
pub const MAX_TEXT: usize = MAX_RESULT;

/// Nodes of one expression: what could never be visited within the fuel is refused when it is read.
pub const MAX_NODES: usize = FUEL as usize;

/// JSON levels of an encoded expression. `serde_json` reads 128; the rest is for whatever embeds it.
pub const MAX_WIRE_DEPTH: usize = 112;

/// JSON levels of a result. Objects built around earlier results would otherwise grow, pass by pass, into
/// something that can be written but not read back.
pub const MAX_VALUE_DEPTH: usize = 100;
