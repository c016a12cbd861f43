//! Artifacts: what an attempt gave, copied out of its workspace and into the workspaces of others.
//!
//! Owns that an artifact is a copy that nobody changes any more, that it is all there or not at all, and that doing it
//! again after a crash comes to the same. All artifacts of an attempt are kept together. Refuses to know when they are
//! taken and who is given them.

mod adopt;
mod copy;
mod keep;
mod put;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use skein_core::{ids::ArtifactName, limits, plan::ContentHash};

pub(super) use copy::{copy_single_file, is_copy};
pub use keep::KeptSizes;

use super::root::FilePathError;

/// What an attempt gave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactManifest {
    pub artifacts: Vec<KeptArtifact>,
}

/// One artifact, and everything in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptArtifact {
    pub name: ArtifactName,
    /// Where it was in the workspace, without what changes nothing; empty for the workspace itself.
    pub path: String,
    /// What its source says it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub found: ArtifactForm,
    pub bytes: u64,
    /// Of all that follows.
    pub hash: ContentHash,
    /// By path in the artifact, which begins as the path in the workspace does.
    pub files: Vec<KeptFile>,
    pub folders: Vec<String>,
    /// Symbolic links, each to something within the artifact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<KeptLink>,
}

/// A symbolic link of an artifact. It is only written down here, and made where the artifact is put.
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
    /// It was not there. Whoever takes it is given an empty folder.
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

/// What a journal holds of an artifact: enough to know it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactRecord {
    pub name: ArtifactName,
    pub found: ArtifactForm,
    pub files: usize,
    pub bytes: u64,
    pub hash: ContentHash,
}

impl ArtifactManifest {
    pub fn total_bytes(&self) -> u64 {
        self.artifacts.iter().fold(0, |sum, artifact| sum.saturating_add(artifact.bytes))
    }

    pub fn find_artifact(&self, name: &ArtifactName) -> Option<&KeptArtifact> {
        self.artifacts.iter().find(|artifact| artifact.name == *name)
    }

    /// Those that were declared and not there.
    pub fn missing_artifacts(&self) -> impl Iterator<Item = &KeptArtifact> {
        self.artifacts.iter().filter(|artifact| artifact.found == ArtifactForm::Missing)
    }

    pub fn to_records(&self) -> Vec<ArtifactRecord> {
        let record = |artifact: &KeptArtifact| ArtifactRecord {
            name: artifact.name.clone(),
            found: artifact.found,
            files: artifact.files.len(),
            bytes: artifact.bytes,
            hash: artifact.hash,
        };
        self.artifacts.iter().map(record).collect()
    }
}

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArtifactLimits {
    pub artifact_bytes: u64,
    /// What the run may still keep, all its attempts together.
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
    /// For a run that has kept this much already.
    pub fn with_used(used: u64) -> ArtifactLimits {
        let run_bytes = limits::ARTIFACTS_BYTES.saturating_sub(used);
        ArtifactLimits { run_bytes, ..ArtifactLimits::default() }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    #[error("the artifact `{name}`: {error}")]
    Of { name: ArtifactName, error: FilePathError },
    #[error(
        "the artifact `{name}` is more than this run may still keep: {left} bytes are left of {}",
        limits::ARTIFACTS_BYTES
    )]
    RunTooLarge { name: ArtifactName, left: u64 },
    #[error(transparent)]
    Path(#[from] FilePathError),
    #[error("what was kept of the attempt {attempt} cannot be read: {why}")]
    Damaged { attempt: String, why: String },
    #[error("another run is at work in the context folder `{folder}`")]
    ContextInUse { folder: String },
    #[error(
        "the context folder `{folder}` is {nested} `{other}`, the context folder of another run that is at work, and each run \
         would remove what the other writes"
    )]
    ContextNested { folder: String, other: String, nested: ContextNesting },
}

/// How a context folder lies to that of another run.
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
