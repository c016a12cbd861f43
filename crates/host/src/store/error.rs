//! Errors of a store.

use skein_core::ids::RunId;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    #[error("there is no run `{0}`")]
    Unknown(RunId),
    #[error("it is being run by {0}")]
    Owned(String),
    #[error("it was set aside: {0}")]
    Quarantined(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("there is no run `{0}`")]
    Unknown(RunId),
    /// The stored bytes are not the bytes that were written.
    #[error("{0}")]
    Damaged(String),
    /// The data was written by a later version of Skein.
    #[error("{0}")]
    Newer(String),
    #[error("disk full: no space left for the journal; free some space and try again")]
    NoSpace,
    #[error("{0}")]
    Failed(String),
}
