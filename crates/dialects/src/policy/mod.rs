//! Policies: files with permissions, required approvals, and the approvers of exceptions.
//!
//! Owns the files of three forms: grants (AIP-38), rules (AIP-7) and governance (IOA), and the rules that they and
//! approval classes set for steps (`lowering`). Does not judge a run: the core does when a run is bound.

mod governance;
mod grants;
pub(crate) mod lowering;
mod rule;
pub(crate) mod secret_access;
mod timestamp;

use std::sync::Arc;

pub use governance::read_governance;
use skein_core::{expr::ExprSpan, ir::rules::PolicyDocument};

use crate::{
    diagnostics::{Code, Diagnostic, DiagnosticSink, SourceFile},
    fields::{FieldReader, FieldTable},
    source::parse_front_matter,
};

/// Reads a POLICY.md. Returns the policy, if it is valid, and the diagnostics about the file.
pub fn read_policy(source: Arc<SourceFile>) -> (Option<PolicyDocument>, Vec<Diagnostic>) {
    let mut sink = DiagnosticSink::new(source);
    let policy = read_supported_parts(&mut sink).map(|(policy, unsupported)| {
        for part in unsupported {
            let message = format!("this is not supported: {part}");
            let hint = "run `skein explain SK0606` for its effect";
            let diagnostic = Diagnostic::new(Code::PolicyNotKept, &sink.source, ExprSpan::default(), message);
            sink.push(diagnostic.with_hint(hint));
        }
        policy
    });
    (policy, sink.into_diagnostics())
}

const POLICY_FIELDS: FieldTable = FieldTable::closed(&["schema"])
    .with_more(&[grants::GRANT_POLICY_FIELDS, rule::RULE_FIELDS])
    .with_unread(&["name", "description", "metadata"]);

/// Reads a valid policy, with a description of each part of its file that is not supported.
fn read_supported_parts(sink: &mut DiagnosticSink) -> Option<(PolicyDocument, Vec<String>)> {
    let tree = parse_front_matter(sink)?;
    let mut fields = FieldReader::from_node(tree.root(), "a policy", POLICY_FIELDS, sink)?;
    let schema = fields.required("schema", sink);
    let shape = schema.and_then(|given| given.read_one_of(&[("policy/v1", true), ("agentgovernance/v1", false)], sink));
    let read = match shape?.value {
        true => grants::read_grant_policy(fields, sink)
            .map(|(grants, unsupported)| (PolicyDocument::Grants(grants), unsupported)),
        false => rule::read_rule(fields, sink).map(|(rule, unsupported)| (PolicyDocument::Rule(rule), unsupported)),
    };
    read.filter(|_| !sink.has_errors())
}

#[cfg(test)]
mod tests;
