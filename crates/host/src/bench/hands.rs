//! Hands that do nothing.

use std::sync::Arc;

use serde_json::Value;
use skein_core::{
    engine::{Assignment, AttemptEnd, AttemptId, Cost, Finding, Publication, Report, Role},
    ids::RunId,
};

use crate::hands::{Finish, Hands, Published, Running};

/// What checks say.
const NOT_YET: &str = "it is not done yet";

/// Does nothing, and is done with it at once; or never. No check is ever content.
#[derive(Debug, Default)]
pub struct Nobody {
    never: bool,
    begun: Vec<Finish>,
    /// What every step gives.
    output: Arc<Value>,
}

impl Nobody {
    /// One who begins everything and ends nothing.
    pub fn idle() -> Nobody {
        Nobody { never: true, ..Nobody::default() }
    }

    /// One whose steps all give this.
    pub fn giving(output: Value) -> Nobody {
        Nobody { output: Arc::new(output), ..Nobody::default() }
    }
}

impl Hands for Nobody {
    fn start(&mut self, _: Running<'_>, attempt: AttemptId, _: &Assignment, finish: Finish) {
        if self.never {
            return self.begun.push(finish);
        }
        let end = match attempt.role {
            Role::Check => AttemptEnd::Checked {
                finding: Finding::Incomplete,
                reasons: vec![NOT_YET.to_owned()],
                output: None,
                fingerprints: Vec::new(),
            },
            _ => AttemptEnd::Succeeded { output: Arc::clone(&self.output) },
        };
        finish.tell(Report::new(end, Cost::default()));
    }

    fn stop(&mut self, _: &RunId, _: AttemptId) {}

    fn publish(&mut self, _: Running<'_>, _: Publication, published: Published) {
        published.tell(None);
    }

    fn clear(&mut self, _: &[RunId]) {}

    fn forget(&mut self, _: &RunId) {}
}
