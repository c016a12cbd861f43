//! From a workflow to a definition: everything that can be known to be wrong, and what a person should know.
//!
//! First the limits, so that nothing below walks something endless; then the arrays, which are made even of a
//! workflow that is wrong; then one check after the other over those.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Problem, advice, artifacts, calls, contracts, cost,
    definition::Definition,
    frozen,
    library::{Library, gather},
    numbers, order,
    problem::Problems,
    references, settlers, shape,
    survey::Survey,
    untrusted,
};
use crate::ir::Workflow;

/// What came out of a check.
#[derive(Debug)]
pub struct Checked {
    /// There is one unless some problem is an error.
    pub definition: Option<Arc<Definition>>,
    pub problems: Vec<Problem>,
}

/// Checks a workflow with everything it calls and freezes it.
pub fn check(workflow: Arc<Workflow>, library: &dyn Library) -> Checked {
    let mut problems = Problems::default();
    let definition = gather(&workflow, library, &mut problems)
        .and_then(|called| freeze(&workflow, &called, &mut problems))
        .filter(|_| !problems.has_errors());
    Checked { definition: definition.map(Arc::new), problems: problems.finish() }
}

fn freeze(
    root: &Arc<Workflow>,
    called: &BTreeMap<String, Arc<Workflow>>,
    problems: &mut Problems,
) -> Option<Definition> {
    frozen::check_depth(root, called, problems)?;
    let definition = Definition::index(root, called);
    let survey = Survey::of(&definition);
    shape::check(&survey, problems);
    order::check(&survey, problems);
    settlers::check(&survey, problems);
    numbers::check(&survey, problems);
    contracts::check(&survey, problems);
    calls::check(&survey, problems);
    artifacts::check(&survey, problems);
    references::check(&survey, problems);
    advice::check(&survey, problems);
    untrusted::check(&survey, problems);
    // Of something wrong, the number would be wrong.
    if !problems.has_errors() {
        cost::check(&survey, problems);
    }
    Some(definition)
}
