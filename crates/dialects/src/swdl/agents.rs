//! The agents that stages name, looked up in the project.

use skein_core::closest::closest;

use crate::{
    code::Code,
    diagnostic::{Diagnostic, Sink},
    project::{Project, Sort},
    read::Given,
};

/// Refuses each agent that the project does not define. Where it defines none, nothing can be said about any, and that
/// is said once.
pub(super) fn check<'a>(
    uses: impl IntoIterator<Item = (Given<'a>, &'a str)>,
    project: &dyn Project,
    sink: &mut Sink,
) {
    let known = project.names(Sort::Agent);
    for (given, name) in uses {
        let (source, span) = (given.node.source(), given.node.mark());
        if known.is_empty() {
            let message = format!("the project defines no agents, so `{name}` cannot be checked");
            let hint = "define it before a run: `[agents.NAME]` in `skein.toml`, or `agents/NAME.md`";
            sink.push(Diagnostic::new(Code::UncheckedAgents, source, span, message).hint(hint));
            return;
        }
        if !known.iter().any(|known| known == name) {
            let near = closest(name, known.iter().map(String::as_str));
            let message = format!("the project has no agent `{name}`");
            let diagnostic = Diagnostic::new(Code::UnknownAgent, source, span, message);
            sink.push(diagnostic.maybe_hint(near.map(|near| format!("did you mean `{near}`?"))));
        }
    }
}
