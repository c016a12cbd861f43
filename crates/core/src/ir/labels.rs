//! What a format keeps beside a step and the engine does not understand.

use std::{collections::BTreeMap, ops::Deref, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Values by name. Most steps have none, and those of one workflow mostly the same, which they share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, Value>")]
pub struct Labels(Option<Arc<BTreeMap<String, Value>>>);

static NONE: BTreeMap<String, Value> = BTreeMap::new();

impl Labels {
    pub fn insert(&mut self, name: impl Into<String>, value: Value) {
        Arc::make_mut(self.0.get_or_insert_default()).insert(name.into(), value);
    }
}

impl Deref for Labels {
    type Target = BTreeMap<String, Value>;

    fn deref(&self) -> &BTreeMap<String, Value> {
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl From<BTreeMap<String, Value>> for Labels {
    fn from(labels: BTreeMap<String, Value>) -> Labels {
        Labels((!labels.is_empty()).then(|| Arc::new(labels)))
    }
}
