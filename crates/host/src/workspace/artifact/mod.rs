//! Artifacts: the results of an attempt, copied from its workspace and into the workspaces of others.
//!
//! Owns the guarantees that an artifact is an immutable copy, that it is complete or absent, and that repeating an
//! operation after a crash has the same result. All artifacts of an attempt are kept together. Does not know when
//! artifacts are kept and who consumes them.

mod keep;
mod put;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use skein_core::{ids::ArtifactName, limits, plan::ContentHash};

pub(crate) use keep::KeptSizes;
pub(super) use keep::{copy_single_file, is_copy};

use super::root::FilePathError;

/// The artifacts of an attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactManifest {
    pub artifacts: Vec<KeptArtifact>,
}

/// One artifact, and its contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptArtifact {
    pub name: ArtifactName,
    /// The normalized path in the workspace; empty for the workspace itself.
    pub path: String,
    /// The kind that its source declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub found: ArtifactForm,
    pub bytes: u64,
    /// The hash of all following fields.
    pub hash: ContentHash,
    /// Files by path in the artifact, which starts like the path in the workspace.
    pub files: Vec<KeptFile>,
    pub folders: Vec<String>,
    /// Symbolic links, each to a target within the artifact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<KeptLink>,
}

/// A symbolic link of an artifact. It is only recorded here, and created where the artifact is placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptLink {
    pub path: String,
    pub target: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactForm {
    File,
    Folder,
    /// It did not exist. Consumers get an empty folder.
    Missing,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptFile {
    pub path: String,
    pub bytes: u64,
    pub hash: ContentHash,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
}

impl ArtifactManifest {
    pub(crate) fn total_bytes(&self) -> u64 {
        self.artifacts.iter().fold(0, |sum, artifact| sum.saturating_add(artifact.bytes))
    }

    pub(crate) fn find_artifact(&self, name: &ArtifactName) -> Option<&KeptArtifact> {
        self.artifacts.iter().find(|artifact| artifact.name == *name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArtifactLimits {
    pub artifact_bytes: u64,
    /// The bytes that the run may still keep, for all its attempts together.
    pub run_bytes: u64,
    pub files: usize,
    pub depth: usize,
}

impl Default for ArtifactLimits {
    fn default() -> ArtifactLimits {
        ArtifactLimits {
            artifact_bytes: limits::ARTIFACT_BYTES,
            run_bytes: limits::ARTIFACTS_BYTES,
            files: limits::ARTIFACT_FILES,
            depth: limits::ARTIFACT_DEPTH,
        }
    }
}

impl ArtifactLimits {
    /// Returns the limits for a run that has already kept this many bytes.
    pub(crate) fn with_used(used: u64) -> ArtifactLimits {
        let run_bytes = limits::ARTIFACTS_BYTES.saturating_sub(used);
        ArtifactLimits { run_bytes, ..ArtifactLimits::default() }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    #[error("the artifact `{name}`: {error}")]
    Of { name: ArtifactName, error: FilePathError },
    #[error(
        "the artifact `{name}` exceeds the artifact limit of this run: {left} bytes are left of {}",
        limits::ARTIFACTS_BYTES
    )]
    RunTooLarge { name: ArtifactName, left: u64 },
    #[error(transparent)]
    Path(#[from] FilePathError),
    #[error("the kept artifacts of attempt {attempt} cannot be read: {why}")]
    Damaged { attempt: String, why: String },
    #[error("another run is using the context folder `{folder}`")]
    ContextInUse { folder: String },
    #[error(
        "the context folder `{folder}` is {nested} `{other}`, the context folder of another active run, and each run \
         would remove files of the other"
    )]
    ContextNested { folder: String, other: String, nested: ContextNesting },
}

/// The relation of a context folder to that of another run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextNesting {
    Inside,
    Around,
}

impl std::fmt::Display for ContextNesting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ContextNesting::Inside => "inside of",
            ContextNesting::Around => "around",
        })
    }
}

impl ArtifactError {
    pub fn is_no_space(&self) -> bool {
        match self {
            ArtifactError::Of { error, .. } | ArtifactError::Path(error) => error.is_no_space(),
            ArtifactError::RunTooLarge { .. }
            | ArtifactError::Damaged { .. }
            | ArtifactError::ContextInUse { .. }
            | ArtifactError::ContextNested { .. } => false,
        }
    }
}
