//! Policies: files with permissions, required approvals, and the approvers of exceptions.
//!
//! Three forms, read here and evaluated by one function: grants (AIP-38), rules (AIP-7) and governance (IOA). Does not
//! know workflows: the caller evaluates one [`PolicyRequest`] per step.

mod evaluate;
mod governance;
mod grants;
mod pattern;
mod request;
mod rule;
mod timestamp;

use std::sync::Arc;

pub(crate) use evaluate::{PolicyDecision, PolicyFinding, combine_findings};
pub use governance::{IoaGovernance, read_governance};
pub use grants::GrantPolicy;
pub use request::PolicyPrincipal;
pub(crate) use request::PolicyRequest;
pub use rule::PolicyRule;

use crate::{
    code::Code,
    detect::parse_front_matter,
    diagnostic::{Diagnostic, DiagnosticSink},
    fields::FieldReader,
    source::SourceFile,
};

/// A policy of any form.
#[derive(Debug, Clone, PartialEq)]
pub enum PolicyDocument {
    Grants(GrantPolicy),
    Rule(PolicyRule),
    Governance(IoaGovernance),
}

impl PolicyDocument {
    /// Returns the parts that are not supported.
    pub(crate) fn unsupported_parts(&self) -> &[String] {
        match self {
            PolicyDocument::Grants(grants) => &grants.unkept,
            PolicyDocument::Rule(rule) => &rule.unkept,
            PolicyDocument::Governance(_) => &[],
        }
    }
}

/// Reads a POLICY.md. Returns the policy, if it is valid, and the diagnostics about the file.
pub fn read_policy(source: Arc<SourceFile>) -> (Option<PolicyDocument>, Vec<Diagnostic>) {
    let mut sink = DiagnosticSink::new(source);
    let read = parse_front_matter(&mut sink).and_then(|tree| {
        let mut fields = FieldReader::from_node(tree.root(), "a policy", &mut sink)?;
        let schema = fields.required("schema", &mut sink);
        let shape = schema.and_then(|given| {
            given.read_one_of(&[("policy/v1", true), ("agentgovernance/v1", false)], &mut sink)
        });
        match shape?.value {
            true => GrantPolicy::read(fields, &mut sink).map(PolicyDocument::Grants),
            false => PolicyRule::read(fields, &mut sink).map(PolicyDocument::Rule),
        }
    });
    let read = read.filter(|_| !sink.has_errors());
    for what in read.iter().flat_map(PolicyDocument::unsupported_parts) {
        let message = format!("this is not supported: {what}");
        let span = skein_core::expr::ExprSpan::default();
        let hint = "run `skein explain SK0606` for its effect";
        sink.push(Diagnostic::new(Code::PolicyNotKept, &sink.source, span, message).with_hint(hint));
    }
    (read, sink.into_diagnostics())
}

#[cfg(test)]
mod tests;
