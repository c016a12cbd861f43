//! The limits of expressions under the names that this module uses. Owns no number: those are in [`limits`].

use crate::limits;

/// Maximum bytes of one condition, or of the inside of one `${{ }}`.
pub const MAX_SOURCE: usize = limits::EXPRESSION_BYTES;

/// Maximum nesting of operators, calls and brackets. A single leaf has depth 1.
pub const MAX_DEPTH: usize = limits::EXPRESSION_DEPTH;

/// Units of work that one evaluation may spend. One unit pays for visiting a node, for 256 bytes of text compared,
/// searched, joined or written, for 16 elements visited, or for 8 values parsed from JSON.
pub const FUEL: u64 = limits::EXPRESSION_FUEL;

/// Maximum bytes of the compact JSON of a result, and of any intermediate text.
pub const MAX_RESULT: usize = limits::EXPRESSION_RESULT;

/// Maximum bytes of all the text around and inside the `${{ }}` of one string. Instructions are templates too.
pub const MAX_TEXT: usize = limits::EXPRESSION_TEXT;

/// Maximum nodes of one expression. One that could never be evaluated within the fuel is refused when it is parsed.
pub const MAX_NODES: usize = limits::EXPRESSION_NODES;

/// Maximum JSON levels of an encoded expression. `serde_json` reads 128; the rest is for the document around it.
pub const MAX_WIRE_DEPTH: usize = limits::EXPRESSION_WIRE_DEPTH;

/// Maximum JSON levels of a result. Otherwise objects built around earlier results could grow, iteration by iteration,
/// into a value that can be written but not read back.
pub const MAX_VALUE_DEPTH: usize = limits::VALUE_DEPTH;
