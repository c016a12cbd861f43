//! From bytes to a tree with places: decoding, front matter, the detection of the format, YAML, and the map from a
//! workflow back to its source.

mod detect;
pub(crate) mod load;
mod source_map;
pub mod yaml;

pub use detect::{
    DetectedSource, Dialect, detect_dialect, dialect_schema, has_front_matter, is_probably_workflow, markdown_body,
    read_as_json, read_workflow_id,
};
pub(crate) use detect::{front_matter_span, parse_front_matter};
pub use load::load_source;
pub use source_map::SourceMap;
pub(crate) use source_map::{FieldRenames, PatternSegment};
