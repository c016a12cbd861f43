//! Policies: files that say who may do what, who is asked first, and who decides where a rule stops something.
//!
//! Three shapes, read here and judged by one function: grants (AIP-38), rules (AIP-7) and governance (IOA). Refuses to
//! know what a workflow is: whoever has a step asks about one [`Request`] after the other.

mod evaluate;
mod governance;
mod grants;
mod moment;
mod pattern;
mod request;
mod rule;

use std::sync::Arc;

pub(crate) use evaluate::{Decision, Finding, strictest};
pub use governance::{Governance, governance};
pub use grants::Grants;
pub use request::Person;
pub(crate) use request::Request;
pub use rule::Rule;

use crate::{
    code::Code,
    detect::front_matter,
    diagnostic::{Diagnostic, Sink},
    read::Fields,
    source::Source,
};

/// A policy of any shape.
#[derive(Debug, Clone, PartialEq)]
pub enum Policy {
    Grants(Grants),
    Rule(Rule),
    Governance(Governance),
}

impl Policy {
    /// What it asks for and nobody here can see to.
    pub(crate) fn unkept(&self) -> &[String] {
        match self {
            Policy::Grants(grants) => &grants.unkept,
            Policy::Rule(rule) => &rule.unkept,
            Policy::Governance(_) => &[],
        }
    }
}

/// Reads a POLICY.md: the policy if there is one, and all there is to say about the file.
pub fn policy(source: Arc<Source>) -> (Option<Policy>, Vec<Diagnostic>) {
    let mut sink = Sink::new(source);
    let read = front_matter(&mut sink).and_then(|tree| {
        let mut fields = Fields::of(tree.root(), "a policy", &mut sink)?;
        let schema = fields.required("schema", &mut sink);
        let shape = schema
            .and_then(|given| given.one_of(&[("policy/v1", true), ("agentgovernance/v1", false)], &mut sink));
        match shape?.value {
            true => Grants::read(fields, &mut sink).map(Policy::Grants),
            false => Rule::read(fields, &mut sink).map(Policy::Rule),
        }
    });
    let read = read.filter(|_| !sink.has_errors());
    for what in read.iter().flat_map(Policy::unkept) {
        let message = format!("nobody here sees to this: {what}");
        let span = skein_core::expr::Span::default();
        let hint = "`skein explain SK0606` says what becomes of it";
        sink.push(Diagnostic::new(Code::PolicyNotKept, &sink.source, span, message).hint(hint));
    }
    (read, sink.finish())
}

#[cfg(test)]
mod tests;
