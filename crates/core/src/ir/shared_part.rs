//! Parts that are equal in most steps: the default, or the same as another step's.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, LazyLock},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{IsolationSpec, StepExtensions, StepPolicy};

/// The policy of a step.
pub type SharedStepPolicy = SharedPart<StepPolicy>;

/// The extensions of a step.
pub type SharedStepExtensions = SharedPart<StepExtensions>;

/// A shared part. The default takes no memory, and changing one part changes no other.
#[derive(Debug, Clone)]
pub struct SharedPart<T>(Option<Arc<T>>);

/// A part that has a default if nothing is declared.
pub trait StaticDefault: Clone + Default + PartialEq + 'static {
    /// Returns the default.
    fn static_default() -> &'static Self;
}

static USUAL_POLICY: LazyLock<StepPolicy> = LazyLock::new(StepPolicy::default);
static NO_EXTENSIONS: LazyLock<StepExtensions> = LazyLock::new(StepExtensions::default);
static USUAL_ISOLATION: LazyLock<IsolationSpec> = LazyLock::new(IsolationSpec::default);

impl StaticDefault for StepPolicy {
    fn static_default() -> &'static StepPolicy {
        &USUAL_POLICY
    }
}

impl StaticDefault for StepExtensions {
    fn static_default() -> &'static StepExtensions {
        &NO_EXTENSIONS
    }
}

impl StaticDefault for IsolationSpec {
    fn static_default() -> &'static IsolationSpec {
        &USUAL_ISOLATION
    }
}

impl<T: StaticDefault> SharedPart<T> {
    /// Shares the value of `last` if it is equal; otherwise the next part may share this one.
    pub fn share_if_equal(&mut self, last: &mut SharedPart<T>) {
        if self == last {
            self.0.clone_from(&last.0);
        } else {
            last.0.clone_from(&self.0);
        }
    }
}

impl<T> Default for SharedPart<T> {
    fn default() -> SharedPart<T> {
        SharedPart(None)
    }
}

impl<T: StaticDefault> Deref for SharedPart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(own) => own,
            None => T::static_default(),
        }
    }
}

impl<T: StaticDefault> DerefMut for SharedPart<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl<T: StaticDefault> PartialEq for SharedPart<T> {
    fn eq(&self, other: &SharedPart<T>) -> bool {
        std::ptr::eq(&raw const **self, &raw const **other) || **self == **other
    }
}

impl<T: StaticDefault> From<T> for SharedPart<T> {
    fn from(part: T) -> SharedPart<T> {
        SharedPart((part != *T::static_default()).then(|| Arc::new(part)))
    }
}

impl<T: StaticDefault + Serialize> Serialize for SharedPart<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        T::serialize(self, serializer)
    }
}

impl<'de, T: StaticDefault + Deserialize<'de>> Deserialize<'de> for SharedPart<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SharedPart<T>, D::Error> {
        T::deserialize(deserializer).map(SharedPart::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Millis;

    #[test]
    fn policies_that_are_the_same_are_shared_until_one_changes() {
        let timed = |seconds| {
            let timeout = Some(Millis::from_secs(seconds));
            SharedStepPolicy::from(StepPolicy { timeout, ..StepPolicy::default() })
        };
        let (mut one, mut two, mut other, mut last) = (timed(5), timed(5), timed(6), SharedStepPolicy::default());
        one.share_if_equal(&mut last);
        two.share_if_equal(&mut last);
        assert!(std::ptr::eq(&raw const *one, &raw const *two));
        other.share_if_equal(&mut last);
        assert_eq!((other.timeout, last.timeout), (Some(Millis::from_secs(6)), Some(Millis::from_secs(6))));
        two.timeout = None;
        assert_eq!((one.timeout, two == SharedStepPolicy::default()), (Some(Millis::from_secs(5)), true));
    }
}
