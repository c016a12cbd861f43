//! Access to the secrets of a project: the rules of its SECRETS.md files, applied to the user who starts a run.
//!
//! Owns the decision before a run starts; it holds for the whole run. Does not know any value.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use skein_core::{
    ir::{Workflow, WorkflowRequirements},
    secret_name::{to_slug, to_variable_name},
    time::Timestamp,
};
use skein_dialects::{Diagnostic, Project, SecretDeclaration, SecretExposure, SecretPrincipal, read_secrets};
use skein_host::{
    audit::{AuditActor, AuditEntry, AuditSubject},
    run_settings::{SecretDelivery, SecretGrant},
};

use crate::project::{DiskProject, config::ProjectConfig};

/// The declarations of a project's secrets, with the user that they are applied to.
#[derive(Debug)]
pub(crate) struct SecretAccessRules {
    described: BTreeMap<String, SecretDeclaration>,
    /// The error in a file of declarations. All secrets are refused then.
    broken: Option<String>,
    user: String,
    roles: Vec<String>,
}

/// A request for a secret, and its purpose.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SecretQuery<'a> {
    pub secret: &'a str,
    pub workflow: &'a str,
    pub step: &'a str,
    pub tool: Option<&'a str>,
}

/// A secret that was requested and refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SecretRefusal {
    secret: String,
    workflow: String,
    step: String,
    tool: Option<String>,
    pub why: String,
}

impl SecretAccessRules {
    pub(crate) fn load(project: &DiskProject, user: &str) -> SecretAccessRules {
        let (mut described, mut broken) = (BTreeMap::new(), None);
        for source in project.secret_sources() {
            match read_secrets(source) {
                Ok(all) => described.extend(all.into_iter().map(|secret| (secret.slug.clone(), secret))),
                Err(wrong) => broken = broken.or_else(|| wrong.first().map(describe_diagnostic)),
            }
        }
        let roles = project.config.user_roles(user);
        SecretAccessRules { described, broken, user: user.to_owned(), roles }
    }

    /// Returns the delivery of a secret, if the project declares it, or the refusal.
    pub(crate) fn authorize_secret(&self, query: SecretQuery<'_>) -> Result<Option<SecretDelivery>, SecretRefusal> {
        let refused = |why: String| SecretRefusal {
            secret: to_slug(query.secret),
            workflow: query.workflow.to_owned(),
            step: query.step.to_owned(),
            tool: query.tool.map(str::to_owned),
            why,
        };
        if let Some(broken) = &self.broken {
            return Err(refused(format!("cannot check who may use it: {broken}")));
        }
        let Some(secret) = self.described.get(&to_slug(query.secret)) else { return Ok(None) };
        let granted = self.list_grants(secret);
        let fits = |principal: &SecretPrincipal| {
            self.matches_principal(principal) || principal.matches(query.tool, query.workflow)
        };
        if let Some(reveal) = secret.reveal.as_ref().filter(|reveal| !reveal.iter().any(fits)) {
            let readers: Vec<String> = reveal.iter().map(ToString::to_string).collect();
            let readers = if readers.is_empty() { "nobody".to_owned() } else { readers.join(", ") };
            return Err(refused(format!("SECRETS.md grants it to {readers}")));
        }
        let [env, file] = [SecretExposure::Env, SecretExposure::File].map(|one| secret.exposures.contains(&one));
        let env = env || secret.exposures.is_empty();
        if !env && !file {
            return Err(refused(
                "its only exposure is `egress-substitute`, which this version does not support; add `env` or `file` to its \
                 `exposures` in SECRETS.md"
                    .to_owned(),
            ));
        }
        Ok(Some(SecretDelivery { granted, env, file }))
    }

    /// Returns the grants that can apply in this run.
    fn list_grants(&self, secret: &SecretDeclaration) -> Vec<SecretGrant> {
        let plain = |name: &String| name.rsplit_once('@').map_or(name.as_str(), |(id, _)| id).to_owned();
        let all = secret.reveal.iter().flatten();
        let grant = |principal: &SecretPrincipal| match principal {
            SecretPrincipal::Tool(name) => Some(SecretGrant::Tool(plain(name))),
            SecretPrincipal::Workflow(name) => Some(SecretGrant::Workflow(name.clone())),
            SecretPrincipal::Role(name) => self.matches_principal(principal).then(|| SecretGrant::Role(name.clone())),
            SecretPrincipal::User(name) => self.matches_principal(principal).then(|| SecretGrant::User(name.clone())),
            SecretPrincipal::Cap(_) => None,
        };
        all.filter_map(grant).collect()
    }

    /// Returns true if the user who starts the run matches a principal.
    fn matches_principal(&self, principal: &SecretPrincipal) -> bool {
        match principal {
            SecretPrincipal::Role(role) => self.roles.contains(role),
            SecretPrincipal::User(user) => *user == self.user,
            SecretPrincipal::Tool(_) | SecretPrincipal::Workflow(_) | SecretPrincipal::Cap(_) => false,
        }
    }
}

/// Returns the secrets that a workflow requires and the project does not configure.
pub(crate) fn find_missing_secrets(workflow: &Workflow, config: &ProjectConfig) -> Vec<String> {
    let names = workflow.extensions.requires.iter().flat_map(WorkflowRequirements::secrets);
    let names = names.map(to_variable_name);
    let missing = names.filter(|name| config.find_secret(name).is_none());
    missing
        .map(|name| {
            format!("the workflow `{}` requires the secret `{name}`; add it to `[secrets]` in skein.toml", workflow.id)
        })
        .collect()
}

fn describe_diagnostic(diagnostic: &Diagnostic) -> String {
    let place = diagnostic.primary_label();
    let line = place.source.position(place.span.start).line;
    format!("{}:{line}: {}", place.source.name, diagnostic.message)
}

impl SecretRefusal {
    /// Returns the message for people.
    pub(crate) fn message(&self) -> String {
        format!("`{}` may not have the secret `{}`: {}", self.step, self.secret, self.why)
    }

    /// Returns the entry for the audit. It belongs to no run, because none is started.
    pub(crate) fn to_audit_entry(&self, user: &str, at: Timestamp) -> AuditEntry {
        let mut context = json!({"workflow": self.workflow, "step": self.step});
        if let Some(tool) = &self.tool {
            context["tool"] = json!(tool);
        }
        AuditEntry {
            at,
            actor: AuditActor::from_user(user),
            action: "secret.refuse",
            subject: AuditSubject { kind: "secret", name: self.secret.clone(), path: None },
            input: json!({"context": context, "why": self.why}),
            output: Value::Null,
        }
    }
}
