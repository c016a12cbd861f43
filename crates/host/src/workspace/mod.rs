//! Workspaces: where work happens, and how files go in and out without a name leading astray.
//!
//! Owns the folders of runs and everything that is copied between them. Refuses to know processes and journals. Read
//! [`root`] first: every name goes through it.

mod artifact;
mod context;
mod control;
mod files;
mod git_config;
mod grant;
mod pattern;
mod repositories;
pub mod root;
mod run_dir;
mod survey;

pub use artifact::{
    ArtifactError, ArtifactLimits, ArtifactRecord, Found, Kept, KeptArtifact, KeptFile, Sizes,
};
pub use context::{
    CheckRecord, Context, Contexts, Holder, Ledger, Observation, Source, Story, Written, WrittenArtifacts,
    find_step,
};
pub(crate) use control::{control_files, owner as control_owner};
pub use files::{FileError, Given, GivenAs, ROOT_PARAMETER, Tokens, has_files, with_root};
pub(crate) use git_config::{is_harmless_config, parse_git_config};
pub use grant::{GrantError, Grants};
pub use pattern::Pattern;
pub(crate) use repositories::{GitPlace, RepositoryScan, find_git_folder, resolve_below};
pub use root::Root;
pub use run_dir::{AttemptDir, RunDir};
pub use survey::{Became, Seen, Survey};
