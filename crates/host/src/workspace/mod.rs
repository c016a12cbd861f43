//! Workspaces: the folders in which work happens, and safe copies of files in and out of them.
//!
//! Owns the folders of runs and everything that is copied between them. Does not know processes and journals. Read
//! [`root`] first: every name goes through it.

mod artifact;
mod context;
mod control_files;
mod file_survey;
mod folder_grants;

mod repositories;
pub mod root;
mod run_dir;
mod workflow_files;

pub(crate) use artifact::KeptSizes;
pub use artifact::{ArtifactError, ArtifactForm, ArtifactLimits, ArtifactManifest, KeptArtifact, KeptFile};
pub use context::{
    ArtifactSource, ContextFolder, ContextHolder, ContextInput, ContextLocks, WorkerObservation, WrittenArtifacts,
    WrittenSteps, find_step,
};
pub(crate) use control_files::{control_files, control_owner, is_harmless_config, parse_git_config};
pub(crate) use file_survey::PathPattern;
pub(crate) use file_survey::{FileSurvey, PathChange, SurveyedFile};
pub use folder_grants::{FolderGrants, GrantError};
pub(crate) use repositories::{GitPlace, RepositoryScan, find_git_folder, resolve_below};
pub use root::RootFolder;
pub(crate) use run_dir::none_if_missing;
pub use run_dir::{AttemptDir, RunDir};
pub use workflow_files::{
    GivenFile, GivenOutcome, PathTokens, ROOT_PARAMETER, StagingError, has_files, with_root_parameter,
};
