//! Workspaces: where work happens, and how files go in and out without a name leading astray.
//!
//! Owns the folders of runs and everything that is copied between them. Refuses to know processes and journals. Read
//! [`root`] first: every name goes through it.

mod artifact;
mod context;
mod control;
mod files;
mod grant;
mod pattern;
pub mod root;
mod run_dir;
mod survey;

pub use artifact::{
    ArtifactError, ArtifactLimits, ArtifactRecord, Found, Kept, KeptArtifact, KeptFile, Sizes,
};
pub use context::{Context, Contexts, Holder, Ledger, Observation, Source, Story, Written, find_step};
pub(crate) use control::{control_files, harmless_config, owner as control_owner};
pub use files::{FileError, Given, GivenAs, ROOT_PARAMETER, Tokens, has_files, with_root};
pub use grant::{GrantError, Grants};
pub use pattern::Pattern;
pub use root::Root;
pub use run_dir::{AttemptDir, RunDir};
pub use survey::{Became, Seen, Survey};
