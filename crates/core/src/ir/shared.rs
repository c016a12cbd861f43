//! Parts that most steps have alike: nothing of their own, or the same as another.

use std::{
    collections::BTreeMap,
    ops::{Deref, DerefMut},
    sync::{Arc, LazyLock},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{Isolation, StepPolicy};

/// The policy of a step.
pub type Policy = Shared<StepPolicy>;

/// What a format keeps beside a step and the engine does not understand.
pub type Labels = Shared<BTreeMap<String, Value>>;

/// One of them. It takes no room where nothing is said, and changing it changes no other.
#[derive(Debug, Clone)]
pub struct Shared<T>(Option<Arc<T>>);

/// A part that is there even where nothing is said of it.
pub trait Usual: Clone + Default + PartialEq + 'static {
    /// What it is then.
    fn usual() -> &'static Self;
}

static USUAL_POLICY: LazyLock<StepPolicy> = LazyLock::new(StepPolicy::default);
static NO_LABELS: BTreeMap<String, Value> = BTreeMap::new();
static USUAL_ISOLATION: LazyLock<Isolation> = LazyLock::new(Isolation::default);

impl Usual for StepPolicy {
    fn usual() -> &'static StepPolicy {
        &USUAL_POLICY
    }
}

impl Usual for BTreeMap<String, Value> {
    fn usual() -> &'static BTreeMap<String, Value> {
        &NO_LABELS
    }
}

impl Usual for Isolation {
    fn usual() -> &'static Isolation {
        &USUAL_ISOLATION
    }
}

impl<T: Usual> Shared<T> {
    /// Shares what another has, if it is the same; otherwise it is what the next may share.
    pub fn share(&mut self, last: &mut Shared<T>) {
        if self == last {
            self.0.clone_from(&last.0);
        } else {
            last.0.clone_from(&self.0);
        }
    }
}

impl<T> Default for Shared<T> {
    fn default() -> Shared<T> {
        Shared(None)
    }
}

impl<T: Usual> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(own) => own,
            None => T::usual(),
        }
    }
}

impl<T: Usual> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl<T: Usual> PartialEq for Shared<T> {
    fn eq(&self, other: &Shared<T>) -> bool {
        std::ptr::eq(&raw const **self, &raw const **other) || **self == **other
    }
}

impl<T: Usual> From<T> for Shared<T> {
    fn from(part: T) -> Shared<T> {
        Shared((part != *T::usual()).then(|| Arc::new(part)))
    }
}

impl<T: Usual + Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        T::serialize(self, serializer)
    }
}

impl<'de, T: Usual + Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Shared<T>, D::Error> {
        T::deserialize(deserializer).map(Shared::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Millis;

    #[test]
    fn policies_that_are_the_same_are_shared_until_one_changes() {
        let timed = |seconds| {
            let timeout = Some(Millis::seconds(seconds));
            Policy::from(StepPolicy { timeout, ..StepPolicy::default() })
        };
        let (mut one, mut two, mut other, mut last) = (timed(5), timed(5), timed(6), Policy::default());
        one.share(&mut last);
        two.share(&mut last);
        assert!(std::ptr::eq(&raw const *one, &raw const *two));
        other.share(&mut last);
        assert_eq!((other.timeout, last.timeout), (Some(Millis::seconds(6)), Some(Millis::seconds(6))));
        two.timeout = None;
        assert_eq!((one.timeout, two == Policy::default()), (Some(Millis::seconds(5)), true));
    }
}
