//! The folder of the demonstration: a project of its own, temporary unless it is to be kept.

use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use skein_app::{app_error::AppError, init::create_file};
use skein_host::host::new_run_id;

use super::DemoError;

macro_rules! template {
    ($name:literal) => {
        ($name, include_str!(concat!("../../templates/demo/", $name)))
    };
}

/// The files of the project, with their contents.
const FILES: [(&str, &str); 3] = [template!("demo.yaml"), template!("agree.yaml"), template!("skein.toml")];

/// Creates the folder, with the project in it.
pub(super) fn create_demo_folder(wanted: Option<&Path>) -> Result<PathBuf, DemoError> {
    let folder =
        wanted.map_or_else(|| std::env::temp_dir().join(format!("skein-demo-{}", new_run_id())), Path::to_owned);
    let failed =
        |error| DemoError::Refused(AppError::refused(format!("`{}` cannot be created: {error}", folder.display())));
    if wanted.is_some() && folder.exists() {
        let mut entries = fs::read_dir(&folder).map_err(failed)?;
        if entries.next().is_some() {
            let message =
                format!("`{}` is not empty, and the demonstration needs a folder of its own", folder.display());
            let hint = "name one that is empty, or that does not exist";
            return Err(DemoError::Refused(AppError::refused(message).with_hint(hint)));
        }
    } else {
        DirBuilder::new().recursive(wanted.is_some()).mode(0o700).create(&folder).map_err(failed)?;
    }
    let folder = fs::canonicalize(&folder).map_err(failed)?;
    for (name, text) in FILES {
        create_file(&folder.join(name), text).map_err(failed)?;
    }
    Ok(folder)
}
