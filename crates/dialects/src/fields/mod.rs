//! Readers of fields and values that the formats share. They report missing, unknown, mistyped and invalid values.

pub(crate) mod command;
pub(crate) mod cron;
mod duration;
mod names;
mod reader;
pub(crate) mod workspace_path;

pub use duration::{DurationError, DurationUnits};
pub(crate) use duration::{check_delay, refuse_short_max_delay};
pub(crate) use names::{check_variable, read_dependencies, refuse_duplicates, refuse_twins, warn_duplicates};
pub(crate) use reader::{FieldNames, FieldReader, FieldTable, FieldValue, ForeignKey, Spanned, UnloweredSteps};
