//! Settings that formats add to steps and workflows and that only the host reads, and data that is only shown.
//!
//! Owns the types and their stored form: one JSON object, `labels`. Front ends fill in the types. A stored value that
//! its type would not write in the same way stays a label, so a stored definition keeps its hash.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned, ser};
use serde_json::Value;

use super::{WorkflowContext, is_default};

/// The label with the marks of a composer, such as the positions of steps. It does not count in the hash of a plan.
pub(super) const UI: &str = "ui";

/// Extensions of a step. Stored as its `labels`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepExtensions {
    /// The rest of the `x-skein` block of the step and its workflow.
    pub skein: SkeinExtensions,
    /// Context that the agent receives in addition to the workflow's.
    pub context: Option<WorkflowContext>,
    /// The model of the format, for agents that know it, if the step names none.
    pub default_model: Option<String>,
    /// The form in which later steps receive the results of the step.
    pub handoff: Option<HandoffSpec>,
    /// The name by which users know a step that was created for each item.
    pub stage: Option<String>,
    /// Data that is kept and only shown.
    pub labels: BTreeMap<String, Value>,
}

/// Values of an `x-skein` block that only the host needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SkeinExtensions {
    /// The agents that continue if the step's own agent cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// Programs with their arguments that an agent may run as tests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_commands: Option<Vec<Vec<String>>>,
    /// False: changes stay in the step's worktree.
    #[serde(rename = "workspace.merge", skip_serializing_if = "Option::is_none")]
    pub merge: Option<bool>,
    #[serde(rename = "workspace.on_retry", skip_serializing_if = "Option::is_none")]
    pub on_retry: Option<OnRetry>,
}

/// The treatment of a workspace before a retry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnRetry {
    #[default]
    Keep,
    Reset,
    KeepAndTell,
}

/// The form in which later steps receive the results of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandoffSpec {
    pub format: HandoffFormat,
    pub include_run_log: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandoffFormat {
    #[default]
    Structured,
    Markdown,
    Raw,
}

/// Extensions of a workflow. Stored as its `labels`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkflowExtensions {
    /// Set if the workflow is a resource of a format with resources.
    pub resource: Option<WorkflowResource>,
    pub requires: Option<WorkflowRequirements>,
    /// Data that is kept and only shown.
    pub labels: BTreeMap<String, Value>,
}

/// A workflow that is a resource of domains. Its runs publish telemetry events and report conditions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkflowResource {
    /// In the order of the source. The first one names the telemetry events.
    pub domains: Vec<String>,
}

/// The environment that a workflow requires, as its source describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkflowRequirements(pub Value);

impl WorkflowRequirements {
    /// The names of the required secrets.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.0["secrets"].as_array().into_iter().flatten().filter_map(Value::as_str)
    }
}

impl WorkflowExtensions {
    /// True if a label of this name is one of the typed extensions.
    pub fn is_typed(name: &str) -> bool {
        matches!(name, "domainsInvolved" | "requires")
    }
}

impl SkeinExtensions {
    /// True if the changes of a step stay in its own worktree.
    pub fn never_merges(&self) -> bool {
        self.merge == Some(false)
    }
}

impl Serialize for StepExtensions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut labels = LabelMap::new(&self.labels);
        labels.add("context", self.context.as_ref())?;
        labels.add("default_model", self.default_model.as_ref())?;
        labels.add("handoff", self.handoff.as_ref())?;
        labels.add("stage", self.stage.as_ref())?;
        labels.add("x-skein", Some(&self.skein).filter(|skein| !is_default(*skein)))?;
        serializer.collect_map(labels.0)
    }
}

impl<'de> Deserialize<'de> for StepExtensions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StepExtensions, D::Error> {
        let mut labels = BTreeMap::deserialize(deserializer)?;
        Ok(StepExtensions {
            context: take_label(&mut labels, "context"),
            default_model: take_label(&mut labels, "default_model"),
            handoff: take_label(&mut labels, "handoff"),
            stage: take_label(&mut labels, "stage"),
            skein: take_label(&mut labels, "x-skein").unwrap_or_default(),
            labels,
        })
    }
}

impl Serialize for WorkflowExtensions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut labels = LabelMap::new(&self.labels);
        labels.add("domainsInvolved", self.resource.as_ref())?;
        labels.add("requires", self.requires.as_ref())?;
        serializer.collect_map(labels.0)
    }
}

impl<'de> Deserialize<'de> for WorkflowExtensions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WorkflowExtensions, D::Error> {
        let mut labels = BTreeMap::deserialize(deserializer)?;
        Ok(WorkflowExtensions {
            resource: take_label(&mut labels, "domainsInvolved"),
            requires: take_label(&mut labels, "requires"),
            labels,
        })
    }
}

/// Removes a label and returns it as its type, if the type writes it in the same way.
fn take_label<T: Serialize + DeserializeOwned>(labels: &mut BTreeMap<String, Value>, name: &str) -> Option<T> {
    let stored = labels.get(name)?;
    let typed = T::deserialize(stored).ok()?;
    let stored_text = stored.to_string();
    if serde_json::to_string(&typed).ok()? != stored_text {
        return None;
    }
    labels.remove(name);
    Some(typed)
}

/// The stored form: labels and typed values in the order of their names.
struct LabelMap<'a>(BTreeMap<&'a str, Cow<'a, Value>>);

impl<'a> LabelMap<'a> {
    fn new(labels: &'a BTreeMap<String, Value>) -> LabelMap<'a> {
        LabelMap(labels.iter().map(|(name, value)| (name.as_str(), Cow::Borrowed(value))).collect())
    }

    fn add<T: Serialize, E: ser::Error>(&mut self, name: &'a str, value: Option<&T>) -> Result<(), E> {
        if let Some(value) = value {
            let value = serde_json::to_value(value).map_err(E::custom)?;
            self.0.insert(name, Cow::Owned(value));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_back<T: Serialize + DeserializeOwned>(stored: &Value) -> T {
        let typed: T = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(serde_json::to_string(&typed).unwrap(), stored.to_string());
        typed
    }

    #[test]
    fn extensions_are_stored_as_labels() {
        let stored = json!({
            "context": {"modules": ["ctx:a"]},
            "default_model": "sonnet",
            "handoff": {"format": "markdown", "include_run_log": true},
            "stage": "review",
            "ui": {"x": 1},
            "x-skein": {"agents": ["b"], "test_commands": [["t", "-q"]], "workspace.merge": false,
                        "workspace.on_retry": "keep_and_tell"},
        });
        let step: StepExtensions = read_back(&stored);
        assert_eq!(step.context.unwrap().modules, ["ctx:a"]);
        assert_eq!(step.default_model.as_deref(), Some("sonnet"));
        assert_eq!(step.handoff.unwrap().format, HandoffFormat::Markdown);
        assert_eq!(step.stage.as_deref(), Some("review"));
        assert_eq!((step.skein.never_merges(), step.skein.on_retry), (true, Some(OnRetry::KeepAndTell)));
        assert_eq!(step.skein.agents, Some(vec!["b".to_owned()]));
        assert_eq!(step.labels.into_iter().collect::<Vec<_>>(), [("ui".to_owned(), json!({"x": 1}))]);
        let stored = json!({
            "author": "ada",
            "domainsInvolved": ["art"],
            "requires": {"tools": [], "secrets": ["key", 5]},
        });
        let workflow: WorkflowExtensions = read_back(&stored);
        assert_eq!(workflow.resource.unwrap().domains, ["art"]);
        assert_eq!(workflow.requires.unwrap().secrets().collect::<Vec<_>>(), ["key"]);
        assert_eq!(workflow.labels["author"], "ada");
    }

    #[test]
    fn value_that_its_type_writes_differently_stays_a_label() {
        let other = json!({"handoff": {"include_run_log": true, "format": "raw"}, "stage": 5});
        let step: StepExtensions = read_back(&other);
        assert_eq!((step.handoff, step.stage, step.labels.len()), (None, None, 2));
        let domains: WorkflowExtensions = read_back(&json!({"domainsInvolved": "art"}));
        assert_eq!(domains.resource, None);
    }
}
