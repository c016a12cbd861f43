//! The drivers that may provide a tool, and the best of them.

use std::path::Path;

use skein_dialects::{Aip15Tool, DriverKind};

use super::{DriverCandidate, DriverRequest, DriverResolver, LoadedDriver, PassedOverDriver, ResolutionPhase};

impl DriverResolver<'_> {
    /// First phase: finds the drivers that offer this tool in this version, for the inputs of this step.
    pub(super) fn find_candidates<'t>(
        &'t self,
        tool: &'t Aip15Tool,
        path: &Path,
        wanted: DriverRequest<'_>,
        passed_over: &mut Vec<PassedOverDriver>,
    ) -> Vec<DriverCandidate<'t>> {
        let mut found = Vec::new();
        for (number, entry) in self.offers.find_offers(tool, path) {
            let driver = &self.all[number];
            let candidate = DriverCandidate { tool, found: driver, offer: &driver.driver.implements[entry] };
            match find_mismatch(candidate, wanted) {
                Some(why) => passed_over.push(candidate.pass_over(ResolutionPhase::Candidates, why)),
                None => found.push(candidate),
            }
        }
        found
    }

    /// Second and third phase: keeps the drivers that work here, and that the policy allows.
    pub(super) fn keep_usable<'t>(
        &self,
        candidates: Vec<DriverCandidate<'t>>,
        passed_over: &mut Vec<PassedOverDriver>,
    ) -> Vec<DriverCandidate<'t>> {
        let mut kept = Vec::new();
        for candidate in candidates {
            if let Err(why) = self.check_capable(candidate) {
                passed_over.push(candidate.pass_over(ResolutionPhase::Capability, why.to_string()));
            } else if let Some(why) = self.find_policy_conflict(candidate.found) {
                passed_over.push(candidate.pass_over(ResolutionPhase::Policy, why));
            } else {
                kept.push(candidate);
            }
        }
        kept
    }

    fn find_policy_conflict(&self, found: &LoadedDriver) -> Option<String> {
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
            format!("works in {}, and skein.toml allows only {}", driver.regions.join(", "), policy.regions.join(", "))
        })
    }
}

fn find_mismatch(candidate: DriverCandidate<'_>, wanted: DriverRequest<'_>) -> Option<String> {
    let DriverCandidate { tool, found, offer } = candidate;
    if offer.version.as_ref().is_some_and(|range| !range.contains(&tool.version)) {
        return Some(format!("is for other versions of the tool than {}", tool.version));
    }
    if tool.forbid.contains(&found.driver.id) {
        return Some("is forbidden by the tool".to_owned());
    }
    let kind = found.driver.kind;
    if !tool.require_kind.is_empty() && !tool.require_kind.contains(&kind) {
        return Some(format!("is of the kind {}, which the tool does not allow", kind.as_str()));
    }
    let dropped = |input: &&&str| offer.drop_inputs.iter().any(|name| name == **input);
    wanted.inputs.iter().find(dropped).map(|input| format!("does not take the input `{input}`"))
}

/// Fourth phase: keeps the driver that the step is pinned to.
pub(super) fn keep_pinned<'t>(
    candidates: Vec<DriverCandidate<'t>>,
    pinned: Option<&str>,
    passed_over: &mut Vec<PassedOverDriver>,
) -> Vec<DriverCandidate<'t>> {
    let Some(pinned) = pinned else { return candidates };
    let (kept, other): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|one| one.found.driver.id == pinned);
    let why = format!("is not `{pinned}`, which the step is pinned to");
    passed_over.extend(other.iter().map(|one| one.pass_over(ResolutionPhase::Pin, why.clone())));
    kept
}

/// Fifth phase: chooses the best driver. Returns it with the reason.
pub(super) fn choose_best<'t>(
    mut candidates: Vec<DriverCandidate<'t>>,
    passed_over: &mut Vec<PassedOverDriver>,
) -> Option<(DriverCandidate<'t>, String)> {
    let preferred = |one: &DriverCandidate<'_>| one.tool.default_implementation.as_ref() == Some(&one.found.driver.id);
    let order = |a: &DriverCandidate<'_>, b: &DriverCandidate<'_>| {
        let kind = |one: &DriverCandidate<'_>| one.kind();
        (preferred(b).cmp(&preferred(a)))
            .then(a.cost().total_cmp(&b.cost()))
            .then(kind(a).cmp(&kind(b)))
            .then(a.found.driver.id.cmp(&b.found.driver.id))
            .then(a.tool.id.cmp(&b.tool.id))
    };
    candidates.sort_by(order);
    let mut rest = candidates.into_iter();
    let first = rest.next()?;
    let rest: Vec<DriverCandidate<'_>> = rest.collect();
    passed_over.extend(rest.iter().map(|one| {
        let why = format!("comes after `{}`: {}", first.found.driver.id, explain_ranking(&first, one, preferred));
        one.pass_over(ResolutionPhase::Rank, why)
    }));
    let why =
        rest.first().map_or("it is the only usable one".to_owned(), |next| explain_ranking(&first, next, preferred));
    Some((first, why))
}

/// Returns the reason why one driver ranks before another.
fn explain_ranking(
    first: &DriverCandidate<'_>,
    next: &DriverCandidate<'_>,
    preferred: impl Fn(&DriverCandidate<'_>) -> bool,
) -> String {
    if preferred(first) != preferred(next) {
        return "the tool prefers it".to_owned();
    }
    if first.cost().total_cmp(&next.cost()).is_ne() {
        return format!("it costs {} per call, and the other {}", first.cost(), next.cost());
    }
    let kind = |kind: DriverKind| kind.as_str();
    if first.kind() != next.kind() {
        return format!("the kind {} comes before {}", kind(first.kind()), kind(next.kind()));
    }
    "it is first by name".to_owned()
}
