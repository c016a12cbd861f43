//! Who of those that offer a tool may do it, and who of those is best.

use std::path::Path;

use skein_dialects::{DriverKind, Tool};

use super::{Candidate, Found, PassedOver, Phase, Resolver, Wanted};

impl Resolver<'_> {
    /// First phase: who offers this tool in this version, to this step.
    pub(super) fn candidates<'t>(
        &'t self,
        tool: &'t Tool,
        path: &Path,
        wanted: Wanted<'_>,
        passed_over: &mut Vec<PassedOver>,
    ) -> Vec<Candidate<'t>> {
        let mut found = Vec::new();
        for (number, entry) in self.offers.about(tool, path) {
            let driver = &self.all[number];
            let candidate = Candidate { tool, found: driver, offer: &driver.driver.implements[entry] };
            match unfit(candidate, wanted) {
                Some(why) => passed_over.push(candidate.passed(Phase::Candidates, why)),
                None => found.push(candidate),
            }
        }
        found
    }

    /// Second and third phase: who can do it here, and who may.
    pub(super) fn keep<'t>(
        &self,
        candidates: Vec<Candidate<'t>>,
        passed_over: &mut Vec<PassedOver>,
    ) -> Vec<Candidate<'t>> {
        let mut kept = Vec::new();
        for candidate in candidates {
            if let Err(why) = self.capable(candidate) {
                passed_over.push(candidate.passed(Phase::Capability, why));
            } else if let Some(why) = self.forbidden(candidate.found) {
                passed_over.push(candidate.passed(Phase::Policy, why));
            } else {
                kept.push(candidate);
            }
        }
        kept
    }

    fn forbidden(&self, found: &Found) -> Option<String> {
        let (driver, policy) = (&found.driver, &self.config.drivers);
        let has = |tag: &&String| driver.policy_tags.contains(tag);
        if let Some(tag) = policy.forbid_tags.iter().find(has) {
            return Some(format!("has the policy tag `{tag}`, which `[drivers]` in skein.toml forbids"));
        }
        if let Some(tag) = policy.require_tags.iter().find(|tag| !has(tag)) {
            return Some(format!("lacks the policy tag `{tag}`, which `[drivers]` in skein.toml requires"));
        }
        let anywhere = driver.regions.is_empty() || driver.regions.iter().any(|region| region == "global");
        let here = driver.regions.iter().any(|region| policy.regions.contains(region));
        (!policy.regions.is_empty() && !anywhere && !here).then(|| {
            format!(
                "works in {}, and skein.toml allows only {}",
                driver.regions.join(", "),
                policy.regions.join(", ")
            )
        })
    }
}

fn unfit(candidate: Candidate<'_>, wanted: Wanted<'_>) -> Option<String> {
    let Candidate { tool, found, offer } = candidate;
    if offer.version.as_ref().is_some_and(|range| !range.holds(&tool.version)) {
        return Some(format!("is for other versions of the tool than {}", tool.version));
    }
    if tool.forbid.contains(&found.driver.id) {
        return Some("may not provide it, as the tool says".to_owned());
    }
    let kind = found.driver.kind;
    if !tool.require_kind.is_empty() && !tool.require_kind.contains(&kind) {
        return Some(format!("is of the kind {}, which the tool does not allow", kind.as_str()));
    }
    let dropped = |input: &&&str| offer.drop_inputs.iter().any(|name| name == **input);
    wanted.inputs.iter().find(dropped).map(|input| format!("does not take the input `{input}`"))
}

/// Fourth phase: who the step asks for.
pub(super) fn pinned<'t>(
    candidates: Vec<Candidate<'t>>,
    pinned: Option<&str>,
    passed_over: &mut Vec<PassedOver>,
) -> Vec<Candidate<'t>> {
    let Some(pinned) = pinned else { return candidates };
    let (kept, other): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|one| one.found.driver.id == pinned);
    let why = format!("is not `{pinned}`, which the step is pinned to");
    passed_over.extend(other.iter().map(|one| one.passed(Phase::Pin, why.clone())));
    kept
}

/// Fifth phase: who is best, and what made it so.
pub(super) fn best<'t>(
    mut candidates: Vec<Candidate<'t>>,
    passed_over: &mut Vec<PassedOver>,
) -> Option<(Candidate<'t>, String)> {
    let preferred =
        |one: &Candidate<'_>| one.tool.default_implementation.as_ref() == Some(&one.found.driver.id);
    let order = |a: &Candidate<'_>, b: &Candidate<'_>| {
        let kind = |one: &Candidate<'_>| one.kind();
        (preferred(b).cmp(&preferred(a)))
            .then(a.cost().total_cmp(&b.cost()))
            .then(kind(a).cmp(&kind(b)))
            .then(a.found.driver.id.cmp(&b.found.driver.id))
            .then(a.tool.id.cmp(&b.tool.id))
    };
    candidates.sort_by(order);
    let mut rest = candidates.into_iter();
    let first = rest.next()?;
    let rest: Vec<Candidate<'_>> = rest.collect();
    passed_over.extend(rest.iter().map(|one| {
        let why = format!("comes after `{}`: {}", first.found.driver.id, ahead(&first, one, preferred));
        one.passed(Phase::Rank, why)
    }));
    let why =
        rest.first().map_or("it is the only one that can".to_owned(), |next| ahead(&first, next, preferred));
    Some((first, why))
}

/// What puts one before another.
fn ahead(first: &Candidate<'_>, next: &Candidate<'_>, preferred: impl Fn(&Candidate<'_>) -> bool) -> String {
    if preferred(first) != preferred(next) {
        return "the tool prefers it".to_owned();
    }
    if first.cost().total_cmp(&next.cost()).is_ne() {
        return format!("it costs {} a call, and the other {}", first.cost(), next.cost());
    }
    let kind = |kind: DriverKind| kind.as_str();
    if first.kind() != next.kind() {
        return format!("the kind {} comes before {}", kind(first.kind()), kind(next.kind()));
    }
    "it is first by name".to_owned()
}
