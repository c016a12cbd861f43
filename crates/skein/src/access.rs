//! Who may have the secrets of a project, and how they are handed out: what its SECRETS.md say, for whoever begins a run.
//!
//! Owns the answer before a run begins; it holds for the whole run. Refuses to know a value.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use skein_core::{
    ir::Workflow,
    secret_name::{slug, variable},
    time::Time,
};
use skein_dialects::{Diagnostic, Exposure, Principal, Project, Secret, secrets};
use skein_host::{
    audit::{Actor, Entry, Subject},
    crew::{Grant, Handing},
};

use crate::{config::Config, project::OnDisk};

/// What a project describes of its secrets, as it is for someone.
#[derive(Debug)]
pub struct Access {
    described: BTreeMap<String, Secret>,
    /// What is wrong with a file that describes some. Nobody is given anything then.
    broken: Option<String>,
    user: String,
    roles: Vec<String>,
}

/// For what a secret is asked.
#[derive(Debug, Clone, Copy)]
pub struct Asking<'a> {
    pub secret: &'a str,
    pub workflow: &'a str,
    pub step: &'a str,
    pub tool: Option<&'a str>,
}

/// A secret that someone asked for and was not given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    secret: String,
    workflow: String,
    step: String,
    tool: Option<String>,
    pub why: String,
}

impl Access {
    pub fn of(project: &OnDisk, user: &str) -> Access {
        let (mut described, mut broken) = (BTreeMap::new(), None);
        for source in project.secrets() {
            match secrets(source) {
                Ok(all) => described.extend(all.into_iter().map(|secret| (secret.slug.clone(), secret))),
                Err(wrong) => broken = broken.or_else(|| wrong.first().map(told)),
            }
        }
        let roles = project.config.roles_of(user);
        Access { described, broken, user: user.to_owned(), roles }
    }

    /// How a secret is handed out, if the project says; or why it is not.
    pub fn handing(&self, asking: Asking<'_>) -> Result<Option<Handing>, Refused> {
        let refused = |why: String| Refused {
            secret: slug(asking.secret),
            workflow: asking.workflow.to_owned(),
            step: asking.step.to_owned(),
            tool: asking.tool.map(str::to_owned),
            why,
        };
        if let Some(broken) = &self.broken {
            return Err(refused(format!("it cannot be told who may have it: {broken}")));
        }
        let Some(secret) = self.described.get(&slug(asking.secret)) else { return Ok(None) };
        let granted = self.granted(secret);
        let fits = |principal: &Principal| self.is(principal) || principal.is(asking.tool, asking.workflow);
        if let Some(reveal) = secret.reveal.as_ref().filter(|reveal| !reveal.iter().any(fits)) {
            let who: Vec<String> = reveal.iter().map(ToString::to_string).collect();
            let who = if who.is_empty() { "nobody".to_owned() } else { who.join(", ") };
            return Err(refused(format!("SECRETS.md lets {who} have it")));
        }
        let [env, file] = [Exposure::Env, Exposure::File].map(|one| secret.exposures.contains(&one));
        let env = env || secret.exposures.is_empty();
        if !env && !file {
            return Err(refused(
                "it is only handed out by `egress-substitute`, which this version does not do; add `env` or `file` to its \
                 `exposures` in SECRETS.md"
                    .to_owned(),
            ));
        }
        Ok(Some(Handing { granted, env, file }))
    }

    /// The reasons that can hold in this run.
    fn granted(&self, secret: &Secret) -> Vec<Grant> {
        let plain = |name: &String| name.rsplit_once('@').map_or(name.as_str(), |(id, _)| id).to_owned();
        let all = secret.reveal.iter().flatten();
        let grant = |principal: &Principal| match principal {
            Principal::Tool(name) => Some(Grant::Tool(plain(name))),
            Principal::Workflow(name) => Some(Grant::Workflow(name.clone())),
            Principal::Role(name) => self.is(principal).then(|| Grant::Role(name.clone())),
            Principal::User(name) => self.is(principal).then(|| Grant::User(name.clone())),
            Principal::Cap(_) => None,
        };
        all.filter_map(grant).collect()
    }

    /// Whether whoever begins the run is this.
    fn is(&self, principal: &Principal) -> bool {
        match principal {
            Principal::Role(role) => self.roles.contains(role),
            Principal::User(user) => *user == self.user,
            Principal::Tool(_) | Principal::Workflow(_) | Principal::Cap(_) => false,
        }
    }
}

/// What a workflow says that it needs and nobody has.
pub fn required(workflow: &Workflow, config: &Config) -> Vec<String> {
    let names = workflow.labels.get("requires").and_then(|requires| requires["secrets"].as_array());
    let names = names.into_iter().flatten().filter_map(Value::as_str).map(variable);
    let missing = names.filter(|name| config.secret(name).is_none());
    missing
        .map(|name| {
            format!(
                "the workflow `{}` requires the secret `{name}`; add it to `[secrets]` in skein.toml",
                workflow.id
            )
        })
        .collect()
}

fn told(diagnostic: &Diagnostic) -> String {
    let place = diagnostic.place();
    let line = place.source.position(place.span.start).line;
    format!("{}:{line}: {}", place.source.name, diagnostic.message)
}

impl Refused {
    /// For people.
    pub fn message(&self) -> String {
        format!("`{}` may not have the secret `{}`: {}", self.step, self.secret, self.why)
    }

    /// For the audit. There is no run yet, and will be none.
    pub fn entry(&self, user: &str, at: Time) -> Entry {
        let mut context = json!({"workflow": self.workflow, "step": self.step});
        if let Some(tool) = &self.tool {
            context["tool"] = json!(tool);
        }
        Entry {
            at,
            actor: Actor::person(user),
            action: "secret.refuse",
            subject: Subject { kind: "secret", name: self.secret.clone(), path: None },
            input: json!({"context": context, "why": self.why}),
            output: Value::Null,
        }
    }
}
