//! The limits of expressions under the names that this module uses. Owns no number: those are in [`limits`].

use crate::limits;

/// Bytes of one condition, or of the inside of one `${{ }}`.
pub const MAX_SOURCE: usize = limits::EXPRESSION_BYTES;

/// How deep operators, calls and brackets may nest; a lone leaf is 1 deep.
pub const MAX_DEPTH: usize = limits::EXPRESSION_DEPTH;

/// Units of work that one evaluation may spend. Visiting a node costs one; so do 256 bytes of text compared,
/// searched, joined or written, 16 elements looked at, and 8 values read from JSON.
pub const FUEL: u64 = limits::EXPRESSION_FUEL;

/// Bytes of the compact JSON of a result, and of any text made on the way to it.
pub const MAX_RESULT: usize = limits::EXPRESSION_RESULT;

/// Bytes of all the text around and inside the `${{ }}` of one string: instructions are templates too.
pub const MAX_TEXT: usize = limits::EXPRESSION_TEXT;

/// Nodes of one expression: what could never be visited within the fuel is refused when it is read.
pub const MAX_NODES: usize = limits::EXPRESSION_NODES;

/// JSON levels of an encoded expression. `serde_json` reads 128; the rest is for whatever embeds it.
pub const MAX_WIRE_DEPTH: usize = limits::EXPRESSION_WIRE_DEPTH;

/// JSON levels of a result. Objects built around earlier results would otherwise grow, pass by pass, into
/// something that can be written but not read back.
pub const MAX_VALUE_DEPTH: usize = limits::VALUE_DEPTH;
