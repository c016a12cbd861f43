//! Whether every expression can be worked out: what it names exists, and can have happened by then.

use super::{
    contracts::{Says, is_unknown_parameter, names, says},
    problem::{At, Problem, ProblemCode, Problems},
    sites::{self, Site},
    survey::{Seen, Spot, Survey, Unseen},
    types::{self, Types},
};
use crate::{
    expr::{Part, Read, Root, Span},
    ids::StepId,
    ir::{Effect, Kind, Schema, Step, Then},
};

pub(super) fn check(survey: &Survey<'_>, problems: &mut Problems) {
    let types = Types::default();
    sites::each(survey.definition, &mut |site| {
        let mut site = SiteCheck { survey, site, wrong: Vec::new(), problems: &mut *problems };
        for read in site.site.expr.reads() {
            site.check_read(&read);
        }
        types::check(survey, &types, &site.site, &site.wrong, site.problems);
    });
}

struct SiteCheck<'a> {
    survey: &'a Survey<'a>,
    site: Site<'a>,
    /// References about which something was said, so that their types are not complained about too.
    wrong: Vec<Span>,
    problems: &'a mut Problems,
}

impl<'a> SiteCheck<'a> {
    fn at(&self, read: &Read<'_>) -> At {
        at(self.survey, &self.site, &read.at, read.span)
    }

    fn push(
        &mut self,
        read: &Read<'_>,
        code: ProblemCode,
        make: impl FnOnce(Problem) -> Problem,
        message: String,
    ) {
        self.wrong.push(read.span);
        let at = self.at(read);
        self.problems.push_with(code, || make(Problem::new(code, at, message)));
    }

    fn check_read(&mut self, read: &Read<'_>) {
        match read.root {
            Root::Input => self.check_input(read),
            Root::Step { id, part } => self.check_step(read, id, *part),
            Root::Item | Root::Index if !self.survey.has_item(self.site.spot.scope) => {
                let message = "there is no item here: only steps inside an each have one";
                self.push(read, ProblemCode::NoItem, |problem| problem, message.to_owned());
            }
            Root::Item | Root::Index | Root::Context | Root::Env | Root::Run | Root::Workflow => {}
        }
    }

    fn check_input(&mut self, read: &Read<'_>) {
        let schema = &self.survey.definition.workflow_of(self.site.spot.scope).workflow.inputs;
        let Some(name) = read.path.first() else { return };
        if is_unknown_parameter(schema, name) {
            let message = format!("there is no parameter `{name}`");
            let hint = |problem: Problem| problem.near(name, names(schema));
            self.push(read, ProblemCode::UnknownParameter, hint, message);
        }
    }

    fn check_step(&mut self, read: &Read<'_>, id: &str, part: Part) {
        match self.survey.see(self.site.spot, id) {
            Ok(seen) => {
                self.remark(read, seen);
                if part == Part::Output {
                    self.check_output(read, seen);
                }
            }
            Err(Unseen::Doubtful) => {}
            Err(unseen) => self.unseen(read, id, &unseen),
        }
    }

    fn unseen(&mut self, read: &Read<'_>, id: &str, unseen: &Unseen) {
        let (code, message) = match unseen {
            Unseen::NoSuchStep => (ProblemCode::UnknownStep, format!("there is no step `{id}`")),
            Unseen::Itself => (ProblemCode::SelfReference, format!("`{id}` reads itself before it has run")),
            Unseen::Around => {
                (ProblemCode::SelfReference, format!("`{id}` is around this and has not ended yet"))
            }
            Unseen::NotBefore | Unseen::Doubtful => {
                (ProblemCode::NotBefore, format!("`{id}` can never have run before this"))
            }
            Unseen::SiblingLane => {
                (ProblemCode::SiblingLane, format!("`{id}` is in another lane that runs at the same time"))
            }
            Unseen::InsideEach(each) => (
                ProblemCode::InsideEach,
                format!("`{id}` runs once for each item of `{each}`, and none of them is meant here"),
            ),
        };
        let (survey, spot) = (self.survey, self.site.spot);
        let known = &survey.definition.workflow_of(spot.scope).names;
        let hint = |problem: Problem| match unseen {
            Unseen::NoSuchStep => problem.near(id, known.keys().map(StepId::as_str)),
            unseen => problem.maybe_hint(unseen_hint(survey, spot, id, unseen)),
        };
        self.push(read, code, hint, message);
    }

    fn check_output(&mut self, read: &Read<'_>, seen: Seen) {
        let Some(name) = read.path.first() else { return };
        let entry = self.survey.definition.scope(seen.scope);
        let step = entry.step(seen.step);
        let schema = types::output_schema(self.survey.definition, entry, seen.step);
        // An `outputs` that is a field of the output is behind another name than it seems.
        if read.lenient_outputs && schema.property("outputs").is_some() {
            return;
        }
        let code = match says(schema, name) {
            Says::Forbidden => ProblemCode::UnknownOutput,
            Says::Nothing => ProblemCode::UndeclaredOutput,
            Says::Yes | Says::Allowed => return,
        };
        let message = format!("`{}` does not declare the output `{name}`", step.id);
        let declared = self.survey.at(seen.scope, seen.step, "outputs");
        let what = if names(schema).next().is_some() { "declared here" } else { "it declares none" };
        let hint = |problem: Problem| {
            problem.maybe_hint(declares(schema)).near(name, names(schema)).related(declared, what)
        };
        self.push(read, code, hint, message);
    }

    /// References that work and that a person should know about.
    fn remark(&mut self, read: &Read<'_>, seen: Seen) {
        let entry = self.survey.definition.scope(seen.scope);
        let step = entry.step(seen.step);
        if seen.indirect {
            let message = format!("`{}` is only an indirect dependency", step.id);
            let problem = Problem::new(ProblemCode::IndirectReference, self.at(read), message);
            self.problems.push(problem.hint("wait for it directly, so that nobody removes the way to it"));
        }
        if self.site.required && may_fail_and_go_on(step) {
            let reader = self.survey.at_spot(self.site.spot, "").step;
            let reader = reader.as_ref().map_or("this", StepId::as_str);
            let message = format!(
                "`{reader}` starts even if `{}` fails, and then fails for want of this required input",
                step.id
            );
            let goes_on = self.survey.at(seen.scope, seen.step, "policy.effects");
            let problem = Problem::new(ProblemCode::InputMayBeMissing, self.at(read), message);
            let problem = problem.related(goes_on, "if it fails, the run goes on");
            let hint = "make the input optional, or let the failure stop the run";
            self.problems.push(problem.hint(hint));
        }
    }
}

fn unseen_hint(survey: &Survey<'_>, spot: Spot, id: &str, unseen: &Unseen) -> Option<String> {
    match unseen {
        Unseen::NotBefore => {
            let entry = survey.definition.scope(spot.scope);
            let step = entry.step(spot.step?);
            let can_wait = entry.by_id.contains_key(id) && !entry.is_routed();
            can_wait.then(|| format!("let `{}` wait for it", step.id))
        }
        Unseen::SiblingLane => Some("read it after the parallel step".to_owned()),
        Unseen::InsideEach(each) => Some(format!("read `{each}`, which has what every item gave")),
        Unseen::NoSuchStep | Unseen::Itself | Unseen::Around | Unseen::Doubtful => None,
    }
}

/// Where in a site: spans only mean something in the outermost text.
pub(super) fn at(survey: &Survey<'_>, site: &Site<'_>, pointer: &str, span: Span) -> At {
    let field = format!("{}{}", site.field, pointer.replace('/', "."));
    At { span: (span != Span::default()).then_some(span), ..survey.at_spot(site.spot, &field) }
}

fn declares(schema: &Schema) -> Option<String> {
    let known: Vec<&str> = names(schema).take(8).collect();
    (!known.is_empty()).then(|| format!("it declares {}", known.join(", ")))
}

fn may_fail_and_go_on(step: &Step) -> bool {
    let goes_on = |effect: &Effect| effect.then == Then::GoOn && effect.satisfies;
    let effects = &step.policy.effects;
    matches!(step.kind, Kind::Work(_) | Kind::Call(_) | Kind::Parallel(_) | Kind::Each(_) | Kind::Loop(_))
        && (goes_on(&effects.failed) || effects.failed_by_class.values().any(goes_on))
}
